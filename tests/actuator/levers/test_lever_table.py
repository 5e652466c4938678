"""The table of levers is complete, and the page generated from it is current."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from stallward.actuator.kernel.cgroups import Hierarchy
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.levers.lever_set import LeverSet
from stallward.actuator.levers.table import LEVERS, render
from stallward.agent.desired import DesiredState, SlotDesire, Tuning

ROOT = Path(__file__).parents[3]


def test_the_page_is_made_of_the_table() -> None:
    assert (ROOT / "docs/reference/levers.md").read_text() == render(), (
        "stale: python -m stallward.actuator.levers.table > docs/reference/levers.md"
    )


def test_every_field_of_a_desired_state_has_its_lever() -> None:
    wanted = {f.name for f in fields(DesiredState)} - {"slots", "tuning"}
    wanted |= {f"slots.{f.name}" for f in fields(SlotDesire)}
    wanted |= {f"tuning.{f.name}" for f in fields(Tuning)} - {"tuning.name"}
    assert {field for row in LEVERS for field in row.field.split(", ")} == wanted


@pytest.mark.parametrize("kind", ["v2", "hybrid"])
def test_every_lever_has_its_row(tmp_path: Path, kind: str) -> None:
    hierarchy = Hierarchy(
        kind="v2" if kind == "v2" else "hybrid", memory_root=tmp_path, unified_root=tmp_path
    )
    zone = hierarchy.group("zone")
    slots = (zone.child("bg"),)
    paths = Paths(proc=tmp_path, cgroup=tmp_path, sys=tmp_path)
    levers = LeverSet(paths, hierarchy, zone, zone.child("app"), slots, None, print)
    known = {name for row in LEVERS for name in row.name.split(", ")} | {"protected_swappiness"}
    known |= {"vm.dirty_bytes", "vm.dirty_background_bytes"}
    names = {re.sub(r":.*", "", lever.name) for lever in levers._every}
    assert names <= known
    assert len(names) >= 15
