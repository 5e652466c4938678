"""Walks of trees that others make: without recursion, with bounds, and continued later."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.cgroups import MOST_DEPTH, Hierarchy, Walk, few_below, remove_dirs
from stallward.actuator.kernel.memory.oom_control import reset_inherited, waiting_inside
from stallward.actuator.levers.base.lever import ExemptProcesses

DEEP = 300


def nested(top: Path, depth: int, name: str = "a") -> None:
    """Make directories inside each other, also more than one path can name."""
    fd = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=fd)
        inner = os.open(name, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)


def flattened(top: Path, name: str) -> None:
    """Remove them from above: pytest would fail to, by a path that is too long."""
    while (top / name).is_dir():
        (top / name).rename(top / "gone")
        if (top / "gone" / name).is_dir():
            (top / "gone" / name).rename(top / name)
        (top / "gone").rmdir()


@pytest.fixture
def shallow_stack() -> Iterator[None]:
    """Let Python call only so deep that a walk which recurses fails."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(DEEP)
    yield
    sys.setrecursionlimit(limit)


@pytest.mark.usefixtures("shallow_stack")
def test_a_walk_does_not_recurse(tmp_path: Path) -> None:
    nested(tmp_path, DEEP)
    paths = list(Walk(tmp_path))
    assert len(paths) == DEEP + 1
    assert paths[0] == tmp_path
    assert paths[-1].parent == paths[-2], "parents come first"
    bounded = Walk(tmp_path, most=10 * DEEP)
    assert len(list(bounded)) == MOST_DEPTH + 1
    assert bounded.cut
    assert remove_dirs(tmp_path) is None
    assert not tmp_path.exists()
    tmp_path.mkdir()


def test_a_walk_ends_where_no_path_can_name_a_group(tmp_path: Path) -> None:
    name = "x" * 200
    nested(tmp_path, 30, name)
    try:
        walk = Walk(tmp_path)
        assert 15 < len(list(walk)) < 30
        assert walk.cut
    finally:
        flattened(tmp_path, name)


def test_a_walk_with_a_bound_says_whether_it_left_anything_out(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"c{number}").mkdir()
    whole = Walk(tmp_path, most=6)
    assert [path.name for path in whole][1:] == ["c0", "c1", "c2", "c3", "c4"]
    assert not whole.cut
    short = Walk(tmp_path, most=3)
    assert len(list(short)) == 3
    assert short.cut


def test_a_walk_goes_on_where_a_group_is_gone_meanwhile(tmp_path: Path) -> None:
    for name in ("a", "b/inside", "c"):
        (tmp_path / name).mkdir(parents=True)
    walk = Walk(tmp_path)
    assert [path.name for path in islice(walk, 2)][1] == "a"
    shutil.rmtree(tmp_path / "b")
    assert [path.name for path in walk] == ["b", "c"]
    assert not walk.cut


def test_of_many_groups_each_exempt_process_is_asked_for_its_own(tmp_path: Path) -> None:
    root, proc = tmp_path / "cgroup", tmp_path / "proc"
    node = Hierarchy(kind="v2", memory_root=root, unified_root=root, proc=proc)
    slot = node.group("bg")
    (root / "bg/inner").mkdir(parents=True)
    (root / "bg/inner/cgroup.procs").write_text("7\n8\n")
    exempt = ExemptProcesses(frozenset({7, 9}))
    assert exempt.within(slot) == 7, "few groups are looked through"
    for number in range(100):
        (root / f"bg/many{number}").mkdir()
    assert few_below(root / "bg") is None
    assert exempt.within(slot) is None, "no process says so"
    for pid, line in ((7, "0::/bg/inner"), (9, "0::/bg2")):
        (proc / str(pid)).mkdir(parents=True)
        (proc / str(pid) / "cgroup").write_text(f"4:memory:/other\n{line}\n")
    assert exempt.within(slot) == 7
    (proc / "7/cgroup").write_text("4:memory:/bg\n0::/\n")
    assert exempt.within(slot) == 7, "in one hierarchy is enough"
    (proc / "7/cgroup").write_text("0::/bg2\n")
    assert exempt.within(slot) is None


def test_a_group_with_too_many_inside_is_not_let_wait(tmp_path: Path) -> None:
    for number in range(200):
        (tmp_path / f"c{number:03}").mkdir()
        (tmp_path / f"c{number:03}/memory.oom_control").write_text("oom_kill_disable 1\n")
    with pytest.raises(KernelFileError, match="more than 128 groups are inside"):
        waiting_inside(tmp_path)
    reset_inherited(tmp_path, keep={tmp_path / "c000/memory.oom_control"})
    contents = [path.read_text() for path in sorted(tmp_path.glob("*/memory.oom_control"))]
    assert contents[0] == "oom_kill_disable 1\n", "it waited before"
    assert 100 < contents.count("0") <= 128, "what is owed at once is bounded"
