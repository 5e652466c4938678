"""What a group holds is read from either kind of memory controller."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from stallward.actuator.kernel.cgroups import Cgroup, Hierarchy
from stallward.env.sandbox.watch import held_bytes, major_faults


def group(root: Path, kind: Literal["v2", "hybrid"], **files: str) -> Cgroup:
    folder = root / "g"
    folder.mkdir()
    for name, text in files.items():
        (folder / f"memory.{name}").write_text(text)
    hierarchy = Hierarchy(kind=kind, memory_root=root, unified_root=root)
    return hierarchy.group("g")


def test_v2_has_memory_and_swap_apart(tmp_path: Path) -> None:
    files = {"current": "900\n", "swap.current": "300\n", "stat": "anon 700\ninactive_file 150\n"}
    assert held_bytes(group(tmp_path, "v2", **files)) == 1050


def test_v1_has_them_together_where_swap_is_accounted(tmp_path: Path) -> None:
    files = {
        "usage_in_bytes": "900\n",
        "memsw.usage_in_bytes": "1200\n",
        "stat": "inactive_file 1\ntotal_inactive_file 150\n",
    }
    assert held_bytes(group(tmp_path, "hybrid", **files)) == 1050


@pytest.mark.parametrize("files", [{}, {"usage_in_bytes": "x\n"}])
def test_what_cannot_be_read_counts_as_nothing(tmp_path: Path, files: dict[str, str]) -> None:
    assert held_bytes(group(tmp_path, "hybrid", **files)) == 0


def test_major_faults_include_those_of_the_groups_below(tmp_path: Path) -> None:
    stat = "pgfault 9\npgmajfault 2\n"
    assert major_faults(group(tmp_path, "v2", stat=stat)) == 2


def test_on_v1_only_the_total_includes_the_groups_below(tmp_path: Path) -> None:
    stat = "pgmajfault 2\ntotal_pgmajfault 7\n"
    assert major_faults(group(tmp_path, "hybrid", stat=stat)) == 7


@pytest.mark.parametrize("files", [{}, {"stat": "total_pgfault 3\ntotal_pgmajfault x\n"}])
def test_major_faults_that_are_not_counted_are_not_0(
    tmp_path: Path, files: dict[str, str]
) -> None:
    assert major_faults(group(tmp_path, "hybrid", **files)) is None
