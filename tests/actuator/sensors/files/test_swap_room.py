"""How much of a group may still go to swap, from the limits around and inside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallward.actuator.kernel.cgroups import Hierarchy
from stallward.actuator.sensors.files.memcg import RESCAN_S, SwapRoom
from stallward.actuator.sensors.group_reader import GroupReader

POD = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice"


def write(root: Path, name: str, limit: object = "max", *, swap: int = 0, used: int = 0) -> None:
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.swap.max").write_text(f"{limit}\n")
    (folder / "memory.swap.current").write_text(f"{swap}\n")
    (folder / "memory.current").write_text(f"{used}\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The groups of a pod with two containers, none of them limited."""
    for name in (
        "kubepods.slice",
        "kubepods.slice/kubepods-burstable.slice",
        POD,
        f"{POD}/a",
        f"{POD}/b",
    ):
        write(tmp_path, name, used=500)
    return tmp_path


def room(root: Path) -> int | None:
    return SwapRoom(root, root / POD).read(0.0)


def test_without_a_limit_there_is_no_bound(root: Path) -> None:
    assert room(root) is None


def test_containers_without_swap_leave_their_pod_none(root: Path) -> None:
    """As the kubelet has it by default; the pod's own group has no limit."""
    for name in ("a", "b"):
        write(root, f"{POD}/{name}", 0, used=500)
    assert room(root) == 0


def test_a_container_that_may_swap_counts_with_what_it_uses(root: Path) -> None:
    write(root, f"{POD}/a", 0, used=500)
    assert room(root) == 500, "only the other one may swap, as much as it has"
    write(root, f"{POD}/b", 300, swap=100, used=500)
    assert room(root) == 200, "no more than its limit leaves it"
    write(root, f"{POD}/b", 300, swap=400, used=500)
    assert room(root) == 0


@pytest.mark.parametrize("name", ["kubepods.slice", POD])
def test_a_limit_of_the_group_or_around_it_bounds_it(root: Path, name: str) -> None:
    write(root, name, 1000, swap=900)
    assert room(root) == 100
    write(root, f"{POD}/a", 0)
    write(root, f"{POD}/b", 50, used=500)
    assert room(root) == 50, "the least of all"


@pytest.mark.parametrize("text", ["", "x", "-1", "9" * 5000, "٣", "max\n0"])
def test_what_is_no_number_is_no_limit(root: Path, text: str) -> None:
    write(root, POD, text)
    assert room(root) is None


def test_without_swap_accounting_nothing_is_known(tmp_path: Path) -> None:
    (tmp_path / POD).mkdir(parents=True)
    assert room(tmp_path) is None
    assert SwapRoom(tmp_path, tmp_path / "gone").read(0.0) is None


def test_limits_are_read_again_after_a_while_and_what_is_left_at_once(root: Path) -> None:
    write(root, POD, 1000)
    reader = SwapRoom(root, root / POD)
    assert reader.read(0.0) == 1000
    write(root, POD, 400, swap=100)
    assert reader.read(0.1) == 900
    write(root, f"{POD}/late", 0)  # a container that was started meanwhile
    assert reader.read(RESCAN_S) == 300
    for name in ("a", "b", "late"):
        write(root, f"{POD}/{name}", 0)
    assert reader.read(2 * RESCAN_S) == 0


def test_a_sample_of_a_group_has_its_room_on_v2(root: Path) -> None:
    write(root, POD, 1000, swap=900)
    v2 = Hierarchy(kind="v2", memory_root=root, unified_root=root)
    assert GroupReader(v2.group(POD)).read(0.0).swap_room_bytes == 100
    hybrid = Hierarchy(kind="hybrid", memory_root=root, unified_root=root)
    assert GroupReader(hybrid.group(POD)).read(0.0).swap_room_bytes is None
