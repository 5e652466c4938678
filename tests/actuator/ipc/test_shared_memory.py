"""After a crash exactly those settings are undone that were moved."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from stallward.actuator.errors import JournalError, KernelFileError
from stallward.actuator.guard.slot_tracker import PauseHistory, SlotTracker
from stallward.actuator.guardian.held_journal import HeldJournal
from stallward.actuator.guardian.restore_command import restore_left
from stallward.actuator.ipc.channels import GuardianLink
from stallward.actuator.ipc.shared_memory import (
    PLACES,
    TABLE_BYTES,
    PauseMemory,
    SharedMemory,
    close_journal,
    in_force,
    read_touched,
    touch_path,
)
from stallward.actuator.journal.disk import Journal
from stallward.actuator.journal.entries import FileValue, Frozen, JournalEntry, Noted, Stopped
from stallward.actuator.kernel.files import write_text
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.levers.base.held_setting import HeldSetting, PlainFile
from stallward.actuator.levers.base.originals import Originals

SHM = Path("/dev/shm")


class Setting:
    """A guardian's journal behind a socket, and the loop's side of it."""

    def __init__(self, folder: Path, slots: tuple[str, ...] = ("a", "b")) -> None:
        self.paths = Paths(proc=folder / "proc", cgroup=folder)
        boot = self.paths.proc / "sys/kernel/random/boot_id"
        boot.parent.mkdir(parents=True, exist_ok=True)
        boot.write_text("this-boot\n")
        (self.paths.proc / "self").mkdir(exist_ok=True)
        shutil.copy("/proc/self/mountinfo", self.paths.proc / "self/mountinfo")
        self.journal_path = folder / "journal"
        self.held = HeldJournal(Journal(self.journal_path, self.paths), self.paths)
        self.left = self.held.recover()
        self.memory = self.held.share(slots)
        self.start_loop()

    def start_loop(self) -> None:
        ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.link = GuardianLink(
            ours,
            timeout_s=2.0,
            memory=SharedMemory(self.memory.fd),
            first_place=self.held.first_place,
        )
        self.thread = threading.Thread(target=self._serve, args=(self.theirs,))
        self.thread.start()
        link = self.link
        self.originals = Originals(link.hold, link.release, link.touch)

    def _serve(self, theirs: socket.socket) -> None:
        with contextlib.suppress(ConnectionResetError):  # it ended with an answer unread
            while message := theirs.recv(65536):
                self.held.take(message, partial(_answer, theirs))

    def end_loop(self) -> None:
        self.link.connection.close()
        self.thread.join()
        self.theirs.close()

    def close(self) -> None:
        self.end_loop()
        self.held._jobs.put(None)  # as if it were killed: nothing is removed
        self.held._writer.join()


def _answer(link: socket.socket, answer: bytes) -> None:
    with contextlib.suppress(OSError):
        link.send(answer)


@pytest.fixture
def shm() -> Iterator[Path]:
    folder = SHM / f"stallward-test-{os.getpid()}"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Setting]:
    made = Setting(tmp_path)
    yield made
    made.close()


def knob(folder: Path, name: str = "knob") -> Path:
    path = folder / name / "memory.high"
    path.parent.mkdir(exist_ok=True)
    path.write_text("60")
    return path


def held(setting: Setting, path: Path) -> HeldSetting:
    return HeldSetting(PlainFile(path=path), setting.originals)


def test_only_moved_settings_are_undone(setting: Setting, tmp_path: Path) -> None:
    paths = [knob(tmp_path, name) for name in ("moved", "back", "never", "taken over")]
    moved, back, _never, taken_over = (held(setting, path) for path in paths)
    setting.link.hold_all(setting.originals.entries)
    for one in (moved, back, taken_over):
        one.move("90")
    back.put_back()
    paths[3].write_text("70")  # another program's
    with pytest.raises(Exception, match="another program"):
        taken_over.look()
    for path in paths[1:]:
        path.write_text("10")
    noted = [entry.entry for entry in setting.link.held if isinstance(entry, Noted)]
    assert noted == [FileValue(paths[0], "60")]
    assert setting.held.restore() == ()
    assert [path.read_text() for path in paths] == ["60", "10", "10", "10"]


def test_a_setting_that_was_put_back_may_be_moved_again(setting: Setting, tmp_path: Path) -> None:
    path = knob(tmp_path)
    one = held(setting, path)
    setting.link.hold_all(setting.originals.entries)
    for _ in range(2):
        one.move("90")
        one.put_back()
    path.write_text("33")  # this is the original from now on
    one.move("90")
    assert setting.held.restore() == ()
    assert path.read_text() == "33"


def test_the_original_is_read_before_the_first_move_without_a_table_too(tmp_path: Path) -> None:
    path = knob(tmp_path)
    with contextlib.closing(Setting(tmp_path)) as dead:
        one = held(dead, path)
        dead.link.hold_all(dead.originals.entries)
        path.write_text("70")  # the administrator's
        one.move("90")
        one.put_back()
        path.write_text("80")
        one.move("91")
    with contextlib.closing(Setting(tmp_path)) as restarted:
        assert restarted.left == (FileValue(path, "80"),)
    assert path.read_text() == "80"


def test_a_setting_is_touched_just_before_it_is_written(
    setting: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = knob(tmp_path)
    one = held(setting, path)
    setting.link.hold_all(setting.originals.entries)
    entry = one.save()
    assert setting.memory.in_force(setting.held.entries) == ()
    seen = []

    def write(where: Path, value: str) -> None:
        seen.append(setting.memory.in_force(setting.held.entries))
        if value == "refused":
            raise KernelFileError(where, "refused", number=22)
        write_text(where, value)

    monkeypatch.setattr("stallward.actuator.levers.base.held_setting.write_text", write)
    with pytest.raises(KernelFileError):
        one.move("refused")
    assert setting.memory.in_force(setting.held.entries) == (), "nothing was changed"
    one.move("90")
    one.put_back()
    assert [[e.entry for e in held if isinstance(e, Noted)] for held in seen] == [[entry]] * 3
    assert setting.memory.in_force(setting.held.entries) == ()


def test_an_entry_that_needs_an_answer_is_undone_until_it_is_released(setting: Setting) -> None:
    entry = Stopped(999_999, 1)
    setting.originals.ensure(entry)
    setting.originals.settle(entry)
    assert setting.memory.in_force(setting.held.entries) == (entry,)
    setting.originals.release(entry)
    setting.originals.ensure(
        Frozen(setting.paths.cgroup / "nowhere/cgroup.freeze")
    )  # waits for the answer
    (left,) = setting.memory.in_force(setting.held.entries)
    assert isinstance(left, Noted)


def test_beyond_the_places_everything_is_undone(setting: Setting, tmp_path: Path) -> None:
    setting.link._next_place = PLACES
    entry = FileValue(knob(tmp_path), "60")
    setting.link.hold(entry)
    assert setting.held.entries == setting.link.held == (entry,)


def test_the_next_loop_starts_with_nothing_touched(setting: Setting, tmp_path: Path) -> None:
    path = knob(tmp_path)
    setting.link.hold(FileValue(path, "60"))
    setting.link.touch(FileValue(path, "60"), moved=True)
    setting.end_loop()
    assert setting.held.restore() == ()
    setting.start_loop()
    setting.link.hold(FileValue(path, "60"))
    path.write_text("10")
    assert setting.held.restore() == ()
    assert path.read_text() == "10"


def test_an_entry_that_could_not_be_undone_is_not_mixed_up_with_those_of_the_next_loop(
    setting: Setting, tmp_path: Path
) -> None:
    stuck = tmp_path / "memory.high"
    stuck.mkdir()
    entry, other = FileValue(stuck, "60"), FileValue(knob(tmp_path), "60")
    for one in (entry, other):
        setting.link.hold(one)
    setting.link.touch(entry, moved=True)
    setting.end_loop()
    assert len(setting.held.restore()) == 1
    setting.start_loop()
    third = FileValue(knob(tmp_path, "third"), "60")
    setting.link.hold(third)
    stuck.rmdir()
    for path in (stuck, other.path, third.path):
        path.write_text("10")
    assert setting.held.restore() == ()
    assert [p.read_text() for p in (stuck, other.path, third.path)] == ["60", "10", "10"]


@pytest.mark.parametrize("way", ["recover", "restore command"])
def test_after_the_death_of_all_processes_only_moved_settings_are_undone(
    shm: Path, way: str
) -> None:
    dead = Setting(shm)
    moved, never = knob(shm, "moved"), knob(shm, "never")
    dead.link.hold_all([FileValue(moved, "60"), FileValue(never, "60")])
    dead.link.touch(FileValue(moved, "60"), moved=True)
    for path in (moved, never):
        path.write_text("10")
    dead.close()
    if way == "recover":
        restarted = Setting(shm)
        assert [e.entry for e in restarted.left if isinstance(e, Noted)] == [
            FileValue(moved, "60")
        ]
        restarted.close()
        restarted.held.close()
        assert not touch_path(dead.journal_path).exists()
    else:
        done = restore_left(dead.journal_path, dead.paths, wait_s=0.1)
        assert done.undone == (f"{moved} = 60",)
        assert read_touched(dead.journal_path) == bytes(TABLE_BYTES)
        assert not dead.journal_path.exists()
    assert (moved.read_text(), never.read_text()) == ("60", "10")


@pytest.mark.parametrize("way", ["recover", "restore first"])
@pytest.mark.parametrize("slots", [("a", "b"), ("a", "c"), ("a", "b", "c")])
def test_the_next_daemon_knows_the_pauses_of_the_same_slots(
    shm: Path, way: str, slots: tuple[str, ...]
) -> None:
    dead = Setting(shm)
    assert not dead.held.after_crash
    tracker = SlotTracker(2)
    tracker.begin(5.0, [1])
    PauseMemory(dead.memory.pauses(), 2).note(tracker)
    entry = FileValue(knob(shm), "60")
    dead.link.hold(entry)
    dead.link.touch(entry, moved=True)
    dead.close()
    if way == "restore first":
        restore_left(dead.journal_path, dead.paths, wait_s=0.1)
    restarted = Setting(shm, slots)
    assert restarted.held.after_crash
    known: tuple[PauseHistory | None, ...] = (PauseHistory(), PauseHistory(since_s=5.0))
    if slots != ("a", "b"):
        known = (None,) * len(slots)
    assert PauseMemory(restarted.memory.pauses(), len(slots)).load() == known
    assert read_touched(restarted.journal_path) == bytes(TABLE_BYTES), "nothing is touched"
    restarted.close()


@pytest.mark.parametrize("in_order", [True, False])
def test_after_a_death_the_past_of_a_journal_on_a_disk_is_not_clean(
    tmp_path: Path, in_order: bool
) -> None:
    dead = Setting(tmp_path)
    dead.link.hold(FileValue(knob(tmp_path), "60"))
    if in_order:
        dead.held.forget()
    dead.close()
    restore_left(dead.journal_path, dead.paths, wait_s=0.1)
    restarted = Setting(tmp_path)
    assert restarted.held.after_crash is not in_order
    assert PauseMemory(restarted.memory.pauses(), 2).load() == (None, None)
    restarted.close()


@pytest.mark.parametrize("fault", ["gone", "cut short", "others may write it", "a link"])
def test_without_a_table_that_can_be_trusted_every_entry_is_undone(shm: Path, fault: str) -> None:
    dead = Setting(shm)
    path = knob(shm)
    dead.link.hold(FileValue(path, "60"))
    path.write_text("10")
    dead.close()
    table = touch_path(dead.journal_path)
    assert read_touched(dead.journal_path) == bytes(TABLE_BYTES)
    if fault == "gone":
        table.unlink()
    elif fault == "cut short":
        os.truncate(table, 10)
    elif fault == "a link":
        table.rename(shm / "elsewhere")
        table.symlink_to(shm / "elsewhere")
    else:
        table.chmod(0o666)
    assert read_touched(dead.journal_path) is None
    Setting(shm).close()
    assert path.read_text() == "60"


@pytest.mark.skipif(os.statvfs("/tmp").f_fsid == os.statvfs(SHM).f_fsid, reason="tmp is a tmpfs")
def test_beside_a_journal_on_a_disk_there_is_no_table(tmp_path: Path) -> None:
    dead = Setting(tmp_path)
    entry = FileValue(knob(tmp_path), "60")
    dead.link.hold(entry)
    assert dead.memory.in_force(dead.held.entries) == ()
    dead.close()
    assert not touch_path(dead.journal_path).exists()
    assert Journal(dead.journal_path, dead.paths).load() == (entry,), "so it is undone anyway"


def test_a_full_tmpfs_is_no_reason_to_die(shm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    made = Setting(shm)
    made.memory.touch(3)
    assert not made.memory.named
    made.close()
    assert not touch_path(made.journal_path).exists()


def test_without_a_table_every_entry_counts() -> None:
    entries: tuple[JournalEntry, ...] = (
        Noted(Frozen(Path("/a")), 1),
        Noted(Frozen(Path("/b")), 2),
        Noted(Frozen(Path("/c")), 9),
        Stopped(9, 9),
    )
    assert in_force(entries, None) == entries
    assert in_force(entries, b"\0\0\1") == entries[1:], "a place beyond the table counts"


def test_no_memory_is_said(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> int:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(os, "memfd_create", refused)
    with pytest.raises(JournalError, match="Cannot allocate"):
        setting.held.share(("a", "b"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_kill_at_any_instant_leaves_nothing_moved(setting: Setting, tmp_path: Path) -> None:
    paths = [knob(tmp_path, str(number)) for number in range(3)]
    settings = [held(setting, path) for path in paths]
    setting.link.hold_all(setting.originals.entries)
    moved = 0
    for delay_ms in itertools.chain(range(0, 25, 2), itertools.repeat(25, 200)):
        if delay_ms == 25 and moved:  # on a busy host the child may not have begun before
            break
        child = os.fork()
        if child == 0:
            while True:  # it never asks the guardian, who has all originals
                for one in settings:
                    one.move("90")
                for one in settings:
                    one.put_back()
        time.sleep(delay_ms / 1e3)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        moved += any(path.read_text() != "60" for path in paths)
        assert setting.held.restore(forget=False) == ()
        assert [path.read_text() for path in paths] == ["60"] * 3
        setting.memory.settle_all()
    assert moved, "it was killed while something was moved"


def test_a_pipe_beside_the_journal_does_not_keep_a_restore_from_its_end(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal", Paths())
    journal.append((FileValue(tmp_path / "knob", "1"),))
    os.mkfifo(touch_path(journal.path))
    close_journal(journal)
    assert journal.path.read_bytes() == b"", "the sign that there was a daemon"
