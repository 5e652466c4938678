"""``border`` holds every loan of the application's memory once, and nothing takes it back."""

from __future__ import annotations

import pytest
from divided_zone import MARGIN_MIB, NUMBERS, ZONE_MIB, Zone, sum_mib

from stallward.agent.controllers.partition import PartitionController
from stallward.agent.desired import FLUSH, KEEP_ANON, MIB, RELEASED
from stallward.agent.errors import ControllerError
from stallward.agent.registry import make_controller
from stallward.agent.set_points import Kept, SetPoints
from stallward.research.border.controller import Schedule, read_levels


class Held(PartitionController):
    """``partition`` with a loan that somebody else decided."""

    def __init__(self, share: float) -> None:
        super().__init__(NUMBERS)
        self.share = share

    def decide(self, sample, observation):  # type: ignore[no-untyped-def]
        return self.divide(sample, SetPoints(kept=Kept(name="held", held_share=self.share)))


def anonymous(share: float) -> Zone:
    """An application that lives on anonymous memory alone, of which a share is lent."""
    zone = Zone(200, 400, 400, controller=Held(share))
    zone.app_anon_mib = 200
    return zone


@pytest.mark.parametrize("share", [0.0, 0.1, 0.45])
def test_a_share_of_all_its_memory_is_lent_at_once(share: float) -> None:
    decision = anonymous(share).run(0.2)
    room = ZONE_MIB - MARGIN_MIB - 200
    assert sum_mib(decision) == pytest.approx(room + share * 200, abs=1)
    assert decision.desired.protected_low_bytes == pytest.approx((1 - share) * 200 * MIB)


def test_the_kernel_chooses_among_all_pages_only_under_a_loan() -> None:
    assert anonymous(0.0).run(1.0).desired.tuning == KEEP_ANON
    assert anonymous(0.05).run(1.0).desired.tuning == FLUSH


def test_it_stays_when_the_application_stands_and_misses_its_target() -> None:
    zone = anonymous(0.2)
    calm = sum_mib(zone.run(5.0))
    zone.p95_ms, zone.app_stalls, zone.other_file_mib = 500.0, 0.9, 200.0
    assert sum_mib(zone.run(20.0)) == pytest.approx(calm)
    auto = Zone(200, 400, 400)
    calm = sum_mib(auto.run(5.0))
    auto.p95_ms, auto.app_stalls, auto.other_file_mib = 500.0, 0.9, 200.0
    assert sum_mib(auto.run(20.0)) < calm - 20, "by itself the rule keeps more then"


def test_every_level_is_held_once_in_an_order_of_the_seed() -> None:
    def order(seed: int) -> list[tuple[int, float]]:
        schedule = Schedule({"dwell_s": "2", "levels": "0+20+none+partition"}, seed)
        held = [schedule.at(tick / 10) for tick in range(160)]
        for first in range(0, 160, 20):
            assert {level for level, _ in held[first : first + 20]} == {held[first][0]}
            assert {propensity for _, propensity in held[first + 1 : first + 20]} == {1.0}
        return held[::20]

    first = order(1)
    assert sorted(level for level, _ in first[:4]) == [0, 1, 2, 3]
    assert sorted(level for level, _ in first[4:]) == [0, 1, 2, 3]
    assert [p for _, p in first] == [1 / 4, 1 / 3, 1 / 2, 1.0] * 2
    assert len({tuple(level for level, _ in order(seed)) for seed in range(8)}) > 4


def test_no_limits_are_no_limits_and_the_rule_goes_on_watching() -> None:
    controller = make_controller("border:dwell_s=5,levels=none")
    decision = Zone(200, 400, 400, controller=controller).run(3.0)
    assert decision.desired == RELEASED


def test_the_application_can_be_kept_without_limits() -> None:
    zone = Zone(200, 400, 400, controller=make_controller("border:dwell_s=5,levels=keep"))
    zone.app_anon_mib = 200
    decision = zone.run(3.0)
    assert decision.desired.slots == ()
    assert decision.desired.tuning == KEEP_ANON
    assert decision.desired.protected_low_bytes == 200 * MIB


@pytest.mark.parametrize("levels", ["0+x", "0+0", "-1", "95", "0+nan", ""])
def test_what_is_no_level_is_refused(levels: str) -> None:
    with pytest.raises(ControllerError, match="level"):
        read_levels({"levels": levels})
