"""Which processes are traced."""

from __future__ import annotations

from pathlib import Path

import pytest
from invented_lens import InventedProc, hierarchy

from stallward.lens.errors import LensError
from stallward.lens.trace.targets import (
    AllProcesses,
    GroupTarget,
    Members,
    OneProcess,
    StartedProcess,
)


@pytest.fixture
def proc(tmp_path: Path) -> InventedProc:
    return InventedProc(tmp_path / "proc")


def test_one_process_is_itself_until_it_ends(proc: InventedProc) -> None:
    proc.process(7)
    proc.process(8, parent=7)
    target = OneProcess(proc.path, 7)
    assert list(target.pids()) == [7]
    proc.end(7)
    assert target.ended()
    assert list(target.pids()) == []


def test_another_process_with_the_same_pid_is_not_traced(proc: InventedProc) -> None:
    proc.process(7, start=1000)
    target = OneProcess(proc.path, 7)
    proc.process(7, start=2000)
    assert target.ended()


def test_a_zombie_has_ended(proc: InventedProc) -> None:
    proc.process(7)
    target = OneProcess(proc.path, 7)
    folder = proc.process(7, state="Z")
    stat = (folder / "stat").read_text()
    (folder / "stat").write_text(stat.replace(" 20 0 4 0 ", " 20 0 1 0 "))
    assert target.ended()


def test_a_tree_keeps_members_whose_parent_has_ended(proc: InventedProc) -> None:
    proc.process(7, start=1)
    proc.process(8, parent=7, start=2)
    proc.process(9, parent=8, start=3)
    proc.process(20, parent=1, start=4)
    target = OneProcess(proc.path, 7, tree=True)
    assert target.pids() == [7, 8, 9]
    proc.end(8)
    proc.process(9, parent=1, start=3)
    proc.process(10, parent=9, start=5)
    assert target.pids() == [7, 9, 10]


def test_members_stay_known_after_their_end(proc: InventedProc) -> None:
    proc.process(7, start=1)
    proc.process(8, parent=7, start=2)
    members = Members(OneProcess(proc.path, 7, tree=True))
    assert members.pids() == {7, 8}
    proc.end(8)
    proc.end(7)
    assert members.pids() == {7, 8}
    started = StartedProcess(proc.path)
    assert Members(started).pids() == set()
    proc.process(9)
    started.begin(9)
    proc.end(9)
    assert Members(started).pids() == {9}, "it ended before the first look"


def test_a_missing_process_and_a_kernel_thread_are_refused_with_their_pid(
    proc: InventedProc,
) -> None:
    with pytest.raises(LensError, match=r"no process 99\..*trace largest"):
        OneProcess(proc.path, 99)
    folder = proc.process(2)
    stat = (folder / "stat").read_text()
    (folder / "stat").write_text(stat.replace(" 4194304 ", " 2129984 "))
    with pytest.raises(LensError, match="Process 2 is a thread of the kernel"):
        OneProcess(proc.path, 2)
    assert AllProcesses(proc.path).pids() == []


def test_a_group_is_all_that_is_in_it(tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    group = hierarchy(root, "a/b", (7, 9)).group("a/b")
    target = GroupTarget(group)
    assert target.pids() == [7, 9]
    for file in (root / "a/b").iterdir():
        file.unlink()
    (root / "a/b").rmdir()
    assert target.ended()
    target.close()
    with pytest.raises(LensError, match="no cgroup a/b"):
        GroupTarget(group)
