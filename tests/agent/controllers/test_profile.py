"""Profiles as controllers and configurations read them."""

from __future__ import annotations

from pathlib import Path

import pytest
from profile_files import profile_file

from stallward.agent.controller import NodeContext
from stallward.agent.controllers.partition import PartitionController
from stallward.agent.desired import MIB
from stallward.agent.errors import ControllerError, ProfileError
from stallward.agent.profile import read_profile
from stallward.agent.registry import make_controller
from stallward.agent.sample import GroupSample, NodeSample, Sample, SlotState


def sample(*held_mib: float, app_mib: float) -> Sample:
    """A zone of 600 MiB."""
    return Sample(
        sequence=0,
        time_s=1.0,
        node=NodeSample(),
        zone=GroupSample(name="zone", memory_limit_bytes=600 * MIB),
        protected=GroupSample(name="app", memory_usage_bytes=int(app_mib * MIB), swap_bytes=0),
        slots=tuple(
            GroupSample(name=f"slot{i}", memory_usage_bytes=int(size * MIB), swap_bytes=0)
            for i, size in enumerate(held_mib)
        ),
        slot_states=tuple(SlotState(reference_bytes=int(size * MIB)) for size in held_mib),
    )


def sum_of_limits_mib(spec: str, demand_mib: float = 0.0) -> float:
    controller = make_controller(spec)
    names = ("slot0", "slot1")
    context = NodeContext(
        zone_limit_bytes=600 * MIB, slot_names=names, demand_bytes=int(demand_mib * MIB)
    )
    controller.reset(context)
    decision = controller.decide(sample(300, 300, app_mib=50), None)  # type: ignore[arg-type]
    return sum(slot.limit_bytes or 0 for slot in decision.desired.slots) / MIB


def test_partition_begins_with_the_working_set_of_a_profile(tmp_path: Path) -> None:
    path = profile_file(tmp_path / "app.json", working_set_mib=250)
    learned = sum_of_limits_mib("partition")
    known = sum_of_limits_mib(f"partition:profile={path}")
    assert learned - known == pytest.approx(200.0, abs=8.0)  # it holds only 50 MiB yet
    assert known == pytest.approx(sum_of_limits_mib("partition", demand_mib=250), abs=0.1)
    assert isinstance(make_controller(f"partition:profile={path}"), PartitionController)


def test_swap_is_assigned_by_what_profiles_say_that_slots_need(tmp_path: Path) -> None:
    paths = [
        profile_file(tmp_path / f"{name}.json", application=name, working_set_mib=size)
        for name, size in (("slot1", 500), ("slot0", 400))
    ]
    spec = f"swap-assign:margin_share=0,profiles={paths[0]}+{paths[1]}"
    controller = make_controller(spec)
    controller.reset(NodeContext(zone_limit_bytes=600 * MIB, slot_names=("slot0", "slot1")))
    decision = controller.decide(sample(200, 200, app_mib=0), None)  # type: ignore[arg-type]
    # 300 MiB too much: they come off slot0, which needs 400 and has the lowest priority.
    limits = [slot.limit_bytes for slot in decision.desired.slots]
    assert limits[0] == pytest.approx(100 * MIB, rel=0.05)
    assert limits[1] is None
    with pytest.raises(ControllerError, match="profiles of slot1, slot0 only"):
        controller.reset(NodeContext(zone_limit_bytes=0, slot_names=("slot0", "other")))


def test_what_slots_need_comes_from_one_place(tmp_path: Path) -> None:
    path = profile_file(tmp_path / "a.json")
    with pytest.raises(ControllerError, match="from one place only"):
        make_controller(f"swap-assign:profiles={path},needs_mib=1")


@pytest.mark.parametrize("spec", ["partition:profile=", "swap-assign:profiles="])
def test_an_arm_refuses_another_file(tmp_path: Path, spec: str) -> None:
    path = tmp_path / "thresholds.toml"
    path.write_text("margin_share = 0.1\n")
    with pytest.raises(ProfileError, match=r"thresholds.toml cannot be read"):
        make_controller(f"{spec}{path}")
    with pytest.raises(ProfileError, match=r"absent cannot be read: No such file"):
        make_controller(f"{spec}{tmp_path / 'absent'}")


def test_keys_of_a_later_version_of_the_same_schema_are_ignored(tmp_path: Path) -> None:
    path = profile_file(tmp_path / "a.json", more={"colour": "blue"})
    assert read_profile(path).application == "application"


def test_a_wrong_value_is_named(tmp_path: Path) -> None:
    path = profile_file(tmp_path / "a.json", more={"working_set_bytes": -5})
    with pytest.raises(ProfileError, match="working_set_bytes"):
        read_profile(path)
