"""Why a group keeps its memory: what protects it, and what keeps it from swap."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallward.actuator.levers.cgroup.reclaim import why_unreclaimable

MORE_SWAP = "Give the node more swap."


def write(folder: Path, **values: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in values.items():
        (folder / name.replace("_", ".", name.count("_"))).write_text(f"{text}\n")
    return folder


@pytest.fixture
def slot(tmp_path: Path) -> Path:
    values = {"memory_min": "0", "memory_low": "0", "memory_swap_current": "0"}
    write(tmp_path, memory_swap_max="max", memory_swap_current="0")
    return write(tmp_path / "slot", memory_swap_max="max", **values)


def test_where_nothing_of_the_group_is_the_cause_the_swap_is_full(slot: Path) -> None:
    assert why_unreclaimable(slot) == ("", MORE_SWAP)
    assert why_unreclaimable(slot / "gone") == ("", MORE_SWAP)


@pytest.mark.parametrize("name", ["memory_min", "memory_low"])
@pytest.mark.parametrize("below", [False, True])
def test_what_is_protected_is_named(slot: Path, name: str, below: bool) -> None:
    held = write(slot / "child" if below else slot, **{name: "4096"})
    why, step = why_unreclaimable(slot)
    assert why == f"{name.replace('_', '.')} of {held} protects 4096 bytes"
    assert step.startswith(f"Lower {name.replace('_', '.')}")
    assert MORE_SWAP not in step


@pytest.mark.parametrize(("limit", "used"), [("0", "0"), ("8192", "8192")])
def test_a_limit_on_swap_is_named_also_of_a_group_above(
    slot: Path, tmp_path: Path, limit: str, used: str
) -> None:
    for folder in (tmp_path, slot):
        write(folder, memory_swap_max=limit, memory_swap_current=used)
        why, step = why_unreclaimable(slot)
        assert why == f"memory.swap.max of {folder} is {limit}, and {used} bytes are used"
        assert step.startswith("Raise memory.swap.max")


def test_all_causes_are_named(slot: Path) -> None:
    write(slot, memory_min="1", memory_swap_max="0", memory_swappiness="0")
    why, step = why_unreclaimable(slot)
    assert [part.split()[0] for part in why.split("; ")] == [
        "memory.min",
        "memory.swap.max",
        "memory.swappiness",
    ]
    assert step.count("there") == 3
