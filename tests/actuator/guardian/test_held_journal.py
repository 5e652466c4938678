"""Tests of the entries that the guardian holds, with real sockets and real files."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stallward.actuator.errors import JournalError
from stallward.actuator.guardian.held_journal import HeldJournal
from stallward.actuator.ipc.channels import BEAT, SILENCE_S, GuardianLink
from stallward.actuator.journal.disk import Journal
from stallward.actuator.journal.entries import FileValue, Stopped, to_line
from stallward.actuator.kernel.paths import Paths


class Setting:
    """A guardian's journal behind a socket, answering in a thread."""

    def __init__(self, folder: Path) -> None:
        self.paths = Paths(proc=folder / "proc", cgroup=folder)
        boot = self.paths.proc / "sys/kernel/random/boot_id"
        boot.parent.mkdir(parents=True, exist_ok=True)
        boot.write_text("this-boot\n")
        self.journal_path = folder / "journal"
        self.held = HeldJournal(Journal(self.journal_path, self.paths), self.paths)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.link = GuardianLink(ours, timeout_s=2.0)
        self._theirs = theirs
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while message := self._theirs.recv(65536):
            if message != BEAT:
                self.held.take(message, self._answer)

    def _answer(self, answer: bytes) -> None:
        self._theirs.send(answer)

    def close(self) -> None:
        self.link.connection.close()
        self._thread.join()
        self._theirs.close()
        self.held.close()

    def on_disk(self) -> tuple[object, ...]:
        return Journal(self.journal_path, self.paths).load()


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Setting]:
    value = Setting(tmp_path)
    yield value
    value.close()


def test_an_original_is_on_disk_before_it_is_acknowledged(
    setting: Setting, tmp_path: Path
) -> None:
    knob = tmp_path / "memory.high"
    entry = FileValue(knob, "60")
    setting.link.hold_all((entry,))
    assert setting.on_disk() == (entry,)


def test_restoring_puts_back_and_forgets(setting: Setting, tmp_path: Path) -> None:
    knob = tmp_path / "memory.high"
    knob.write_text("60")
    setting.link.hold_all((FileValue(knob, "60"),))
    knob.write_text("90")
    assert setting.held.restore() == ()
    assert knob.read_text() == "60"
    assert setting.held.entries == ()


def test_many_entries_go_in_one_call(setting: Setting, tmp_path: Path) -> None:
    entries = [FileValue(tmp_path / f"{i}/memory.high", "1") for i in range(450)]
    setting.link.hold_all(entries)
    assert setting.held.entries == tuple(entries)


def test_a_stopped_process_is_held_once(setting: Setting) -> None:
    entry = Stopped(999_999, 1)
    setting.link.hold(entry)
    setting.link.hold(entry)
    assert setting.held.entries == (entry,)


def test_a_released_entry_is_not_undone_any_more(setting: Setting, tmp_path: Path) -> None:
    stays, goes = Stopped(999_998, 1), Stopped(999_999, 1)
    original = FileValue(tmp_path / "memory.high", "60")
    setting.link.hold_all((stays, goes, original))
    setting.link.release(goes)
    setting.link.release(goes)
    setting.link.hold(FileValue(tmp_path / "memory.max", "1"))  # and waits for the disk
    kept = (stays, original, FileValue(tmp_path / "memory.max", "1"))
    assert setting.held.entries == setting.on_disk() == kept
    setting.link.hold(goes)
    assert goes in setting.held.entries


def test_the_journal_does_not_grow_with_entries_that_come_and_go(
    setting: Setting, tmp_path: Path
) -> None:
    original = FileValue(tmp_path / "memory.high", "60")
    setting.link.hold_all((original,))
    answers: list[bytes] = []
    for number in range(300):
        entry = Stopped(999_999, number)
        setting.held.take(to_line(entry).encode(), answers.append)
        setting.held.take(to_line(entry, "release").encode(), answers.append)
    setting.close()
    assert answers == [b"ok"] * 600
    assert len(setting.journal_path.read_text().splitlines()) < 250
    assert setting.on_disk() == (original,)
    assert list(tmp_path.glob("journal*")) == [setting.journal_path]


def test_releasing_never_waits() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        link = GuardianLink(ours, timeout_s=0.02)
        entry = Stopped(999_999, 1)
        theirs.send(b"ok")
        link.hold(entry)
        link.release(entry)  # it gets no answer
        theirs.send(b"ok")  # to the release, late
        with pytest.raises(JournalError):
            link.hold(entry)


def test_neither_releasing_nor_a_beat_waits_for_a_full_guardian() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        link = GuardianLink(ours)
        entries = [Stopped(999_999, ticks) for ticks in range(3)]
        theirs.send(b"ok")
        link.hold_all(entries, timeout_s=3.0)  # as at the start, when the disk may take its time
        for _ in range(100_000):  # the guardian takes in nothing
            try:
                ours.send(b"beat", socket.MSG_DONTWAIT)
            except OSError:
                break
        started_s = time.monotonic()
        link.beat()
        link.release(*entries)
        assert time.monotonic() - started_s < 1.0
        with pytest.raises(JournalError, match=r"within 0\.2 s"):
            link.hold_all((Stopped(1, 1),), timeout_s=0.2)
        assert 0.15 < time.monotonic() - started_s < 2.0


def test_beats_do_not_make_an_answer_wait_longer() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(0.02):
            theirs.send(BEAT)

    helper = threading.Thread(target=beat)
    with ours, theirs:
        link = GuardianLink(ours, timeout_s=0.1)
        helper.start()
        ending = threading.Timer(1.0, ended.set)
        ending.start()
        started_s = time.monotonic()
        with pytest.raises(JournalError, match=r"within 0\.1 s"):
            link.hold(Stopped(999_999, 1))
        took_s = time.monotonic() - started_s
        ending.cancel()
        ended.set()
        helper.join()
    assert took_s < 0.5


def test_a_beat_is_no_entry(setting: Setting) -> None:
    setting.link.beat()
    setting.link.hold(Stopped(999_999, 1))
    assert not setting.link.gone


def test_an_unanswered_beat_is_overdue_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr("stallward.actuator.ipc.channels.time.monotonic", lambda: clock[0])
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        link = GuardianLink(ours)
        for _ in range(20):  # answers are taken in with the next beat
            link.beat()
            theirs.send(BEAT)
            clock[0] += 1.0
            assert not link.overdue
        link.beat()
        link.beat()
        clock[0] += SILENCE_S + 0.1
        assert link.overdue
        assert link.gone, "nothing has come in either"


def test_a_journal_that_cannot_be_written_refuses_the_change(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    setting = Setting(tmp_path)
    try:
        with pytest.raises(JournalError, match="Is a directory"):
            setting.link.hold_all((FileValue(tmp_path / "memory.high", "60"),))
    finally:
        setting.close()


def test_a_silent_guardian_is_an_error_in_time() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        link = GuardianLink(ours, timeout_s=0.02)
        with pytest.raises(JournalError, match=r"within 0\.02 s"):
            link.hold(Stopped(999_999, 1))


def test_a_late_answer_is_not_taken_for_the_next_one() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        link = GuardianLink(ours, timeout_s=0.02)
        with pytest.raises(JournalError):
            link.hold(Stopped(999_998, 1))
        theirs.send(b"ok")  # to the first, late
        with pytest.raises(JournalError):
            link.hold(Stopped(999_999, 1))


def test_a_dead_guardian_is_noticed() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        link = GuardianLink(ours)
        assert not link.gone
        theirs.close()
        assert link.gone
        with pytest.raises(JournalError):
            link.hold(Stopped(999_999, 1))


def test_a_left_over_journal_is_undone_at_the_start(tmp_path: Path) -> None:
    knob = tmp_path / "memory.high"
    knob.write_text("90")
    dead = Setting(tmp_path)
    dead.link.hold_all((FileValue(knob, "60"),))
    dead.close()
    restarted = Setting(tmp_path)
    try:
        assert restarted.held.recover() == (FileValue(knob, "60"),)
        assert knob.read_text() == "60"
        assert restarted.on_disk() == ()
    finally:
        restarted.close()


def test_a_change_that_cannot_be_undone_stays_on_disk(tmp_path: Path) -> None:
    folder = tmp_path / "memory.high"
    folder.mkdir()
    dead = Setting(tmp_path)
    dead.link.hold_all((FileValue(folder, "60"),))
    dead.close()
    restarted = Setting(tmp_path)
    with pytest.raises(JournalError, match="by hand"):
        restarted.held.recover()
    assert restarted.held.restore() != ()  # as at every shutdown
    restarted.held.forget()
    restarted.close()
    assert restarted.on_disk() == (FileValue(folder, "60"),)


def test_a_journal_that_cannot_be_read_is_not_removed(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    setting.journal_path.mkdir()
    with pytest.raises(JournalError, match="Cannot read"):
        setting.held.recover()
    setting.held.restore()
    setting.close()
    assert setting.journal_path.is_dir()


def test_a_write_of_a_dying_loop_is_undone(setting: Setting, tmp_path: Path) -> None:
    knob = tmp_path / "memory.high"
    knob.write_text("60")
    setting.link.hold_all((FileValue(knob, "60"),))
    assert setting.held.restore(forget=False) == ()
    knob.write_text("90")  # its last write, which was stuck in the kernel
    assert setting.held.restore() == ()
    assert knob.read_text() == "60"


def test_forgetting_leaves_everything_as_it_is(setting: Setting, tmp_path: Path) -> None:
    knob = tmp_path / "memory.high"
    setting.link.hold_all((FileValue(knob, "60"),))
    knob.write_text("10")  # the administrator's
    setting.held.forget()
    assert setting.held.restore() == ()
    assert knob.read_text() == "10"
    setting.close()
    assert setting.on_disk() == ()
