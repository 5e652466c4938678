"""The reference page of the levers is complete."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from lever_page import lever_rows

from stallward.actuator.kernel.cgroups import Hierarchy
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.levers.lever_set import LeverSet
from stallward.agent.desired import DesiredState, SlotDesire, Tuning

pytestmark = pytest.mark.reaches("docs/reference/levers.md")


def test_every_field_of_a_desired_state_has_its_lever() -> None:
    wanted = {f.name for f in fields(DesiredState)} - {"slots", "tuning", "applications"}
    wanted |= {f"slots.{f.name}" for f in fields(SlotDesire)}
    wanted |= {f"tuning.{f.name}" for f in fields(Tuning)} - {"tuning.name"}
    assert {field for row in lever_rows() for field in row.fields} == wanted


@pytest.mark.parametrize("kind", ["v2", "hybrid"])
def test_every_lever_has_its_row(tmp_path: Path, kind: str) -> None:
    hierarchy = Hierarchy(
        kind="v2" if kind == "v2" else "hybrid", memory_root=tmp_path, unified_root=tmp_path
    )
    zone = hierarchy.group("zone")
    slots = (zone.child("bg"),)
    paths = Paths(proc=tmp_path, cgroup=tmp_path, sys=tmp_path)
    levers = LeverSet(paths, hierarchy, zone, (zone.child("app"),), slots, None, print)
    known = {name for row in lever_rows() for name in row.names} | {"protected_swappiness"}
    known |= {"vm.dirty_bytes", "vm.dirty_background_bytes"}
    names = {re.sub(r":.*", "", lever.name) for lever in levers._every}
    assert names <= known
    assert len(names) >= 15
