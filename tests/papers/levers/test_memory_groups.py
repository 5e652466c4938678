"""The memory group of a process, on every kind of node and from within a namespace."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallward.actuator.errors import GroupError
from stallward.actuator.kernel.cgroups import Hierarchy, Kind
from stallward.papers.levers.reader.memory_groups import memory_folder, memory_group_name

HYBRID = b"10:memory,hugetlb:/box/a:b\n4:cpu,cpuacct:/\n0::/other\n"
UNIFIED = b"0::/box/a:b\n"


def node(folder: Path, kind: Kind, content: bytes, members: str = "7\n") -> tuple[Path, Hierarchy]:
    proc, root = folder / "proc", folder / "memory"
    (proc / "7").mkdir(parents=True)
    (proc / "7" / "cgroup").write_bytes(content)
    (root / "box" / "a:b").mkdir(parents=True)
    (root / "box" / "a:b" / "cgroup.procs").write_text(members)
    return proc, Hierarchy(kind=kind, memory_root=root, unified_root=root)


@pytest.mark.parametrize(("kind", "content"), [("hybrid", HYBRID), ("v2", UNIFIED)])
def test_it_is_the_one_of_the_memory_controller(
    tmp_path: Path, kind: Kind, content: bytes
) -> None:
    proc, hierarchy = node(tmp_path, kind, content)
    assert memory_folder(proc, 7, hierarchy) == tmp_path / "memory" / "box" / "a:b"


def test_a_process_that_has_ended_has_none(tmp_path: Path) -> None:
    proc, hierarchy = node(tmp_path, "v2", UNIFIED)
    with pytest.raises(ProcessLookupError):
        memory_folder(proc, 8, hierarchy)


def test_a_node_without_memory_groups_has_none(tmp_path: Path) -> None:
    proc, _ = node(tmp_path, "v2", UNIFIED)
    assert memory_folder(proc, 7, Hierarchy()) is None


@pytest.mark.parametrize(
    ("content", "members"),
    [
        (UNIFIED, "8\n"),
        (b"0::/../../kubepods/pod7\n", "7\n"),
        (b"0::/..\n", "7\n"),
        (b"0::/elsewhere\n", "7\n"),
        (b"", "7\n"),
    ],
)
def test_a_name_of_another_namespace_is_not_taken_for_a_group_here(
    tmp_path: Path, content: bytes, members: str
) -> None:
    proc, hierarchy = node(tmp_path, "v2", content, members)
    with pytest.raises(GroupError, match="process 7 is not found"):
        memory_folder(proc, 7, hierarchy)


def test_only_the_line_of_the_controller_counts() -> None:
    assert memory_group_name(b"3:memory_other:/a\n0::/b\n", v2=False) is None
    assert memory_group_name(b"3:memory:/a\n", v2=True) is None
    assert memory_group_name(b"3:memory:/\n", v2=False) == ""
