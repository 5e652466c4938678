"""A loop without a guardian undoes its changes; those that it cannot undo stay in the journal."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stallward.actuator.ipc.shared_memory import in_force
from stallward.actuator.journal.disk import Journal
from stallward.actuator.journal.entries import FileValue, Noted
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.loop.loop import end_and_restore

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

TOUCHED = b"\1\0\1"


class Node:
    """Three settings: the first loop moved ``stuck``, the second ``moved``, and none ``never``."""

    def __init__(self, folder: Path) -> None:
        self.paths = Paths(proc=folder / "proc", cgroup=folder)
        boot = self.paths.proc / "sys/kernel/random/boot_id"
        boot.parent.mkdir(parents=True)
        boot.write_text("this-boot\n")
        self.stuck, self.never, self.moved = (
            folder / name for name in ("memory.high", "memory.max", "memory.low")
        )
        for path in (self.stuck, self.never, self.moved):
            path.write_text("10")
        self.second = (
            Noted(FileValue(self.moved, "60"), 2),
            FileValue(self.stuck, "90"),  # as the first loop had left it
        )
        self.journal = Journal(folder / "journal", self.paths)
        first = (Noted(FileValue(self.stuck, "60"), 0), Noted(FileValue(self.never, "60"), 1))
        self.journal.append((*first, *self.second))

    def lose_guardian(self, *, unfinished: bool) -> None:
        """Be the second loop; returns when its child is done."""
        read, write = os.pipe()
        loop = os.fork()
        if loop == 0:
            os.close(read)
            chosen = (lambda entries: in_force(entries, TOUCHED)) if unfinished else None
            end_and_restore(lambda: self.second, self.paths, self.journal.path, (), chosen)
            os._exit(3)
        os.close(write)
        assert os.read(read, 1) == b"", "both have ended"
        os.close(read)
        assert os.waitstatus_to_exitcode(os.waitpid(loop, 0)[1]) == -9

    def values(self) -> list[str]:
        return [path.read_text() for path in (self.stuck, self.never, self.moved)]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_settings_that_it_moved_itself_are_undone(node: Node) -> None:
    node.lose_guardian(unfinished=False)
    assert node.values() == ["90", "10", "60"]
    assert node.journal.load() == ()


def test_settings_that_an_earlier_loop_left_are_undone_too(node: Node) -> None:
    node.lose_guardian(unfinished=True)
    assert node.values() == ["60", "10", "60"]
    assert node.journal.load() == ()


def test_a_setting_that_still_cannot_be_undone_stays_in_the_journal(node: Node) -> None:
    node.stuck.unlink()
    node.stuck.mkdir()
    held = node.journal.load()
    node.lose_guardian(unfinished=True)
    assert node.moved.read_text() == "60"
    assert node.journal.load() == held


def test_a_journal_that_cannot_be_read_stays_and_hinders_nothing(node: Node) -> None:
    node.journal.path.chmod(0o666)
    node.lose_guardian(unfinished=True)
    assert node.values() == ["90", "10", "60"]
    assert node.journal.path.exists()
