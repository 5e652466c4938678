"""An undoing that fails is tried again, before and after the next loop is started."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stallward.actuator.errors import KernelFileError
from stallward.actuator.guardian.held_journal import HeldJournal
from stallward.actuator.journal.disk import Journal
from stallward.actuator.journal.entries import FileValue, JournalEntry, Noted, to_line
from stallward.actuator.journal.kept_files import KeptFiles
from stallward.actuator.journal.restore import RETRY_S, run_bounded
from stallward.actuator.kernel.paths import Paths


class Faults:
    """Lets every write of some files fail, or block until ``blocks`` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.number = errno.EIO
        self.paths: set[Path] = set()
        self.blocks: threading.Event | None = None
        self.tries = 0
        write = KeptFiles.write

        def fail(kept: KeptFiles, path: Path, value: str) -> None:
            if path in self.paths:
                self.tries += 1
                if self.blocks is None:
                    raise KernelFileError(path, "cannot write", number=self.number)
                assert self.blocks.wait(30.0)
            write(kept, path, value)

        monkeypatch.setattr(KeptFiles, "write", fail)


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(monkeypatch)


class Held:
    """What a guardian holds, and two limits that a loop has changed."""

    def __init__(self, folder: Path) -> None:
        self.paths = Paths(proc=folder / "proc", cgroup=folder)
        boot = self.paths.proc / "sys/kernel/random/boot_id"
        boot.parent.mkdir(parents=True)
        boot.write_text("this-boot\n")
        self.journal = folder / "journal"
        self.held = HeldJournal(Journal(self.journal, self.paths), self.paths)
        self.memory = self.held.share(("batch",))
        self.first, self.second = folder / "a/memory.high", folder / "b/memory.high"

    def hold(self, path: Path, value: str, place: int) -> JournalEntry:
        """Note an original of a loop, and mark it as changed."""
        entry = Noted(FileValue(path, value), place)
        answers: list[bytes] = []
        self.held.take(to_line(entry).encode(), answers.append)
        deadline_s = time.monotonic() + 5.0
        while not answers and time.monotonic() < deadline_s:
            time.sleep(0.001)
        assert answers == [b"ok"]
        self.memory.touch(place, (value, "90"))
        path.write_text("90")
        return entry

    def on_disk(self) -> tuple[JournalEntry, ...]:
        """What the next daemon would undo."""
        self.held.close()
        return Journal(self.journal, self.paths).load()


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    value = Held(tmp_path)
    for path in (value.first, value.second):
        path.write_text("60")
    yield value
    value.held.close()


def test_only_what_failed_stays_held_and_is_undone_when_the_fault_ends(
    held: Held, faults: Faults
) -> None:
    stuck = held.hold(held.first, "60", 0)
    held.hold(held.second, "60", 1)
    faults.paths = {held.first}
    (problem,) = held.held.restore()
    assert problem.entries == (stuck,)
    assert (held.first.read_text(), held.second.read_text()) == ("90", "60")
    assert held.held.entries == (stuck,)
    assert 0.0 < held.held.retry_at_s - time.monotonic() <= RETRY_S
    (problem,) = held.held.retry()
    faults.paths.clear()
    assert held.held.retry() == ()
    assert held.first.read_text() == "60"
    assert not held.held.entries
    assert not held.held.unfinished
    assert held.on_disk() == ()


def test_a_write_that_the_kernel_still_blocks_is_not_begun_again(
    held: Held, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(run_bounded.__kwdefaults__ or {}, "give_up_s", 0.8)
    held.hold(held.first, "60", 0)
    held.hold(held.second, "60", 1)
    faults.paths, faults.blocks = {held.first}, threading.Event()
    (blocked,) = held.held.restore()
    assert held.second.read_text() == "60"
    threads, began_s = threading.active_count(), time.monotonic()
    for _ in range(10):
        assert held.held.retry() == (blocked,)
    assert time.monotonic() - began_s < 1.0, "the guardian would have waited for two seconds"
    assert threading.active_count() <= threads
    assert faults.tries == 1
    assert held.held.unfinished
    faults.blocks.set()
    while blocked.goes_on():
        time.sleep(0.001)
    assert held.held.retry() == ()
    assert held.first.read_text() == "60"
    assert not held.held.unfinished


def test_what_cannot_be_undone_is_left_to_the_next_daemon(held: Held, faults: Faults) -> None:
    stuck = held.hold(held.first, "60", 0)
    held.hold(held.second, "60", 1)
    faults.paths = {held.first}
    held.held.restore()
    left = held.on_disk()
    assert [getattr(entry, "entry", entry) for entry in left] == [getattr(stuck, "entry", stuck)]


def test_the_next_loop_s_own_changes_are_not_undone(held: Held, faults: Faults) -> None:
    held.hold(held.first, "60", 0)
    faults.paths = {held.first}
    held.held.restore()
    assert held.held.first_place == 1
    new = held.hold(held.second, "60", 1)
    faults.paths.clear()
    assert held.held.retry() == ()
    assert held.first.read_text() == "60"
    assert held.second.read_text() == "90", "the loop that runs has set it"
    assert held.held.entries == (new,)


def test_a_setting_that_the_next_loop_has_changed_again_waits_for_it(
    held: Held, faults: Faults
) -> None:
    held.hold(held.first, "60", 0)
    faults.paths = {held.first}
    held.held.restore()
    held.hold(held.first, "90", 1)  # what it takes for the original is our own limit
    faults.paths.clear()
    held.held.retry()
    assert held.first.read_text() == "90"
    assert held.held.unfinished
    held.memory.settle(1)  # it has put back what it found
    held.held.retry()
    assert held.first.read_text() == "60"
    assert not held.held.unfinished


def test_a_lasting_refusal_is_tried_seldom(held: Held, faults: Faults) -> None:
    held.hold(held.first, "60", 0)
    faults.paths, faults.number = {held.first}, errno.EPERM
    held.held.restore()
    assert held.held.unfinished
    assert not held.held.hopeful
    assert held.held.retry_at_s - time.monotonic() > 4 * RETRY_S


def test_what_is_undone_while_the_loop_dies_is_undone_again_at_its_death(
    held: Held, faults: Faults
) -> None:
    entry = held.hold(held.first, "60", 0)
    faults.paths = {held.first}
    held.held.restore(forget=False)
    faults.paths.clear()
    assert held.held.retry(forget=False) == ()
    assert held.first.read_text() == "60"
    assert held.held.entries == (entry,)
    held.first.write_text("90")  # a write in which the dying loop was stuck in the kernel
    assert held.held.restore() == ()
    assert held.first.read_text() == "60"
    assert not held.held.entries


def test_a_refusal_is_not_told_before_the_answer_to_what_was_asked_earlier(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = held.hold(held.first, "60", 0)
    go_on, append = threading.Event(), Journal.append

    def slow(*arguments: Any) -> None:
        assert go_on.wait(10.0)
        append(*arguments)

    monkeypatch.setattr(Journal, "append", slow)
    answers: list[bytes] = []
    held.held.take(to_line(entry, "release").encode(), answers.append)
    held.held.take(b"no entry at all", answers.append)
    assert answers == [], "the disk is slow"
    go_on.set()
    held.held.close()
    assert [answer[:1] for answer in answers] == [b"o", b"!"]
