"""``lend`` moves the border of ``partition`` by the latencies, and falls back to it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from divided_zone import Zone, sum_mib

from stallward.agent.desired import RELEASED
from stallward.agent.errors import ThresholdError
from stallward.agent.registry import make_controller
from stallward.agent.sample import Sample
from stallward.research.border.lend import LEVELS, SHARES, LendController, LendThresholds

NUMBERS = LendThresholds(margin_share=0.06, hold_s=6.0)


class Working(Zone):
    """Groups that get on only with all that they want."""

    user_us = 0

    def sample(self) -> Sample:
        self.user_us += 20_000
        return super().sample()

    def group(self, index: int):  # type: ignore[no-untyped-def]
        group = super().group(index)
        fits = (group.swap_bytes or 0) == 0
        self.own_us[index] += 100_000 if fits else 5_000
        return replace(
            group,
            cpu_usage_us=round(100_000 * self.time_s * 10),
            cpu_user_us=self.own_us[index],
        )

    def __init__(self, *args, **kwargs) -> None:  # type: ignore[no-untyped-def]
        self.own_us = [0, 0, 0]
        super().__init__(*args, **kwargs)


def anonymous(*groups_mib: float, ratio: float = 0.3) -> Working:
    """An application that lives on 200 MiB of anonymous memory alone, and meets its target."""
    zone = Working(200, *groups_mib, controller=LendController(NUMBERS))
    zone.app_anon_mib = 200.0
    zone.p95_ms = 10.0 * ratio
    return zone


def test_anonymous_memory_is_lent_while_the_target_is_met_well() -> None:
    """Two groups of 200 MiB: with 20 % of the application's 200 MiB there is room for both."""
    zone = anonymous(190, 200)
    before = sum_mib(zone.run(2.0))
    assert before < 370
    decision = zone.run(10.0)
    assert sum_mib(decision) >= 380
    assert "lent" in decision.reason


def test_the_loan_ends_when_the_target_is_nearly_missed_and_is_not_tried_again_soon() -> None:
    zone = anonymous(190, 200)
    zone.run(12.0)
    zone.p95_ms = 9.5
    zone.run(3.0)
    assert sum_mib(zone.tick()) < 370
    zone.p95_ms = 3.0
    sums = [sum_mib(zone.tick()) for _ in range(600)]
    assert max(sums) < 390, "smaller loans are tried, this one and larger ones are not"


@pytest.mark.parametrize("ratio", [0.7, 0.85])
def test_without_slack_it_is_partition(ratio: float) -> None:
    zone, other = anonymous(190, 200, ratio=ratio), anonymous(190, 200, ratio=ratio)
    other.controller = make_controller("partition:margin_share=0.06")
    other.controller.reset(zone.controller._partition._context)  # type: ignore[attr-defined]
    for _ in range(300):
        assert zone.tick().desired == other.tick().desired


def test_an_application_that_reports_no_latencies_keeps_its_memory() -> None:
    zone = anonymous(190, 200)
    sample = Working.sample

    def silent(self: Working) -> Sample:
        return replace(sample(self), latency=None)

    zone.sample = silent.__get__(zone)  # type: ignore[method-assign]
    assert sum_mib(zone.run(60.0)) < 370


def test_at_the_last_level_nothing_is_limited() -> None:
    zone = anonymous(400, 400, ratio=0.1)
    released = [zone.tick().desired == RELEASED for _ in range(600)]
    assert any(released)


def test_there_is_a_share_for_every_level() -> None:
    assert len(LEVELS) == len(SHARES) + 1, "and one without limits"
    assert list(SHARES) == sorted(SHARES)


def test_its_numbers_are_arguments_and_are_checked() -> None:
    make_controller("lend:hold_s=20,margin_share=0.05")
    with pytest.raises(ThresholdError, match="hold_s"):
        make_controller("lend:hold_s=1")
