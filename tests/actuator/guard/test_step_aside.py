"""A foreign change of one group is left alone there, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stallward.actuator.guard.step_aside import foreign_pauses, step_aside, update_aside
from stallward.agent.desired import MIB, DesiredState, SlotDesire
from stallward.agent.sample import GroupSample, LeverState
from stallward.agent.testing import make_sample

WANTED = DesiredState(slots=(SlotDesire(paused=True, limit_bytes=80 * MIB),) * 2)


@pytest.mark.parametrize(("subject", "left"), [("a/db", {0}), ("b/db", {1}), ("db", {0, 1})])
def test_of_two_slots_that_end_alike_only_the_one_that_was_changed_is_left_alone(
    subject: str, left: set[int]
) -> None:
    slots = (GroupSample(name="edge/a/db"), GroupSample(name="edge/b/db"))
    levers = tuple(
        LeverState(lever=f"{kind}:{subject}", value="1", foreign=True)
        for kind in ("pause", "limit")
    )
    sample = replace(make_sample(), slots=slots, levers=levers)
    aside = update_aside((), sample, 60.0)
    granted, changes = step_aside(WANTED, aside, sample)
    assert {i for i, slot in enumerate(granted.slots) if slot == SlotDesire()} == left
    assert {i for i, slot in enumerate(granted.slots) if slot == WANTED.slots[i]} == {0, 1} - left
    assert foreign_pauses(aside, sample) == left
    assert [change.lever for change in changes] == [f"limit:{subject}", f"pause:{subject}"]
