"""``partition`` works within set-points."""

from __future__ import annotations

import numpy as np
import pytest
from divided_zone import FLOOR, MARGIN_MIB, NUMBERS, ZONE_MIB, Zone, limits_mib, sum_mib
from numpy.typing import NDArray

from stallward.agent.controller import Decision
from stallward.agent.controllers.partition import PartitionController
from stallward.agent.desired import MIB, PROFILES, RELEASED
from stallward.agent.sample import Sample
from stallward.agent.set_points import AUTO, KEPT, SetPoints, SlotShare

BY_NAME = {kept.name: kept for kept in KEPT}
AUTO_SHARE, WAIT, WHOLE = SlotShare.AUTO, SlotShare.WAIT, SlotShare.WHOLE


class Follower(PartitionController):
    """Takes its set-points from a test."""

    set_points = AUTO

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        del observation
        return self.divide(sample, self.set_points)


def following(app_mib: float, *groups_mib: float, set_points: SetPoints) -> Zone:
    """A zone that is divided within set-points."""
    follower = Follower(NUMBERS)
    follower.set_points = set_points
    return Zone(app_mib, *groups_mib, controller=follower)


def room_mib(app_mib: float) -> float:
    return ZONE_MIB - MARGIN_MIB - app_mib


def test_a_group_waits_that_is_to_wait_and_the_other_has_its_share() -> None:
    points = SetPoints(shares=(WAIT, AUTO_SHARE))
    decision = following(200, 250, 500, set_points=points).run(3.0)
    assert [slot.paused for slot in decision.desired.slots] == [True, False]
    floor_mib = FLOOR / MIB
    assert limits_mib(decision) == [floor_mib, pytest.approx(room_mib(200) - floor_mib)]


def test_nobody_waits_while_everything_fits() -> None:
    points = SetPoints(shares=(WAIT, WAIT))
    assert following(200, 50, 50, set_points=points).run(2.0).desired == RELEASED


def test_a_group_that_thrashes_shares_where_it_is_to_have_a_part() -> None:
    for share, waiting in ((AUTO_SHARE, 1), (SlotShare.PART, 0)):
        zone = following(200, 300, 300, set_points=SetPoints(shares=(share, share)))
        zone.thrashing = {0, 1}
        decision = zone.run(8.0)
        assert sum(slot.paused for slot in decision.desired.slots) == waiting


def test_groups_take_turns_that_are_to_have_the_whole() -> None:
    zone = following(200, 300, 300, set_points=SetPoints(shares=(WHOLE, WHOLE)))
    paused = {tuple(s.paused for s in zone.run(1.0).desired.slots) for _ in range(40)}
    assert paused == {(True, False), (False, True)}


def test_weights_divide_unequally() -> None:
    points = SetPoints(shares=(SlotShare.LESS, SlotShare.MORE))
    first, second = limits_mib(following(200, 500, 500, set_points=points).run(2.0))
    assert first is not None
    assert second == pytest.approx(4.0 * first)


def test_only_idle_memory_is_lent_and_as_much_as_was_said() -> None:
    zone = following(400, 300, 300, set_points=SetPoints(kept=BY_NAME["lend 50 %"]))
    zone.app_anon_mib = 200.0
    assert sum_mib(zone.run(30.0)) == pytest.approx(room_mib(400) + 100.0, rel=0.01)


def test_a_loan_that_was_decided_does_not_ask_for_latencies() -> None:
    zone = following(400, 300, 300, set_points=SetPoints(kept=BY_NAME["lend 50 %"]))
    zone.p95_ms = 8.5  # near the target of 10: nothing would be lent
    assert sum_mib(zone.run(30.0)) == pytest.approx(room_mib(400) + 200.0, rel=0.01)


def test_more_is_kept_where_that_was_said() -> None:
    zone = following(200, 400, 400, set_points=SetPoints(kept=BY_NAME["reserve 15 %"]))
    assert sum_mib(zone.run(2.0)) == pytest.approx(room_mib(200) - 0.15 * ZONE_MIB)


def test_the_reflex_keeps_more_in_danger_whatever_was_said() -> None:
    zone = following(400, 300, 300, set_points=SetPoints(kept=BY_NAME["lend 75 %"]))
    lent = sum_mib(zone.run(30.0))
    zone.p95_ms, zone.other_file_mib = 30.0, 200.0
    assert sum_mib(zone.run(5.0)) < lent - 50.0


def test_the_tuning_is_the_one_that_was_said() -> None:
    points = SetPoints(tuning=PROFILES[2])
    decision = following(200, 300, 300, set_points=points).run(2.0)
    assert decision.desired.tuning == PROFILES[2]
