"""``excite`` draws set-points that ``partition`` works within, with their propensities."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from divided_zone import CONTEXT, OBSERVATION, Zone

from stallward.agent.action_table import SET_POINTS
from stallward.agent.controllers.excite import ExciteController
from stallward.agent.controllers.partition import PartitionController, PartitionThresholds
from stallward.agent.desired import SLOTS
from stallward.agent.errors import ControllerError
from stallward.agent.registry import make_controller
from stallward.agent.set_points import KEPT, SHARING_TUNINGS, SlotShare, decode_set_points
from stallward.agent.testing import check_controller

SPEC = "excite:table=set-points"


def test_it_conforms() -> None:
    check_controller(lambda: make_controller(SPEC))


@pytest.mark.slow
def test_the_propensity_is_that_of_the_action_that_was_drawn() -> None:
    """Over many ticks, the mean of 1/propensity is the number of possible outcomes."""
    controller = make_controller(f"{SPEC},dwell_s=0.2")
    controller.reset(replace(CONTEXT, slot_names=("a",)))
    sample = Zone(200, 100).sample()
    inverse = [
        1.0 / (controller.decide(sample, OBSERVATION).propensity or 0.0) for _ in range(20_000)
    ]
    outcomes = len(SlotShare) * len(KEPT) * len(SHARING_TUNINGS)
    assert np.mean(inverse) == pytest.approx(outcomes, rel=0.05)


def test_every_choice_is_drawn_for_slots_that_are_there_and_none_for_others() -> None:
    controller = make_controller(f"{SPEC},dwell_s=0.1")
    controller.reset(CONTEXT)
    sample = Zone(200, 100, 100).sample()
    actions = np.array([controller.decide(sample, OBSERVATION).action for _ in range(1500)])
    there = [0, 1, *range(SLOTS, len(SET_POINTS.sizes))]
    for entry in there:
        assert set(actions[:, entry]) == set(range(SET_POINTS.sizes[entry])), entry
    assert not np.delete(actions, there, axis=1).any()
    assert (actions == 0).all(axis=1).mean() == pytest.approx(0.2, abs=0.04), "the rest"


def test_what_it_wants_is_what_partition_makes_of_the_action() -> None:
    zone = Zone(200, 300, 400, controller=make_controller(f"{SPEC},dwell_s=1"))
    follower = PartitionController(PartitionThresholds())
    follower.reset(CONTEXT)
    paused = 0
    for _ in range(300):
        sample = replace(zone.sample(), time_s=zone.time_s + 0.1)
        decision = zone.tick()
        assert decision.action is not None
        expected = follower.divide(sample, decode_set_points(decision.action))
        assert decision.desired == expected.desired
        paused += any(slot.paused for slot in decision.desired.slots)
    assert paused > 30, "nothing was to wait"


def test_the_seed_decides_what_is_drawn() -> None:
    def actions(spec: str, seed: int) -> list[object]:
        controller = make_controller(spec)
        controller.reset(replace(CONTEXT, seed=seed))
        sample = Zone(200, 300, 400).sample()
        return [controller.decide(sample, OBSERVATION).action for _ in range(200)]

    assert actions(SPEC, 1) == actions(SPEC, 1)
    assert actions(SPEC, 1) != actions(SPEC, 2)
    assert actions(SPEC, 1) != actions(f"{SPEC},seed=1", 1)


def test_an_unknown_table_is_refused() -> None:
    with pytest.raises(ControllerError, match="no action table 'moons'") as caught:
        ExciteController({"table": "moons"})
    assert "levels, set-points" in caught.value.next_step
