"""The loan of a part of the application's demand."""

from __future__ import annotations

import pytest

from stallward.agent.desired import MIB
from stallward.agent.sample import GroupSample
from stallward.agent.sharing.lending import Lending, LendingThresholds, idle_bytes

THRESHOLDS = LendingThresholds(
    most_lent_share=0.3,
    lend_below=0.5,
    return_above=0.75,
    lend_s=10.0,
    return_s=2.0,
    retry_s=100.0,
)


def run(
    lending: Lending, seconds: float, latency_ratio: float | None, *, needed: bool = True
) -> float:
    for _ in range(round(seconds / 0.1)):
        lending.update(latency_ratio, 0.1, needed=needed)
    return lending.share


def test_it_grows_while_latencies_are_low_up_to_its_bound() -> None:
    lending = Lending(THRESHOLDS)
    assert run(lending, 5.0, 0.2) == pytest.approx(0.15)
    assert lending.growing
    assert run(lending, 20.0, 0.2) == 0.3
    assert not lending.growing


def test_it_stays_between_the_two_thresholds() -> None:
    lending = Lending(THRESHOLDS)
    run(lending, 5.0, 0.2)
    assert run(lending, 30.0, 0.6) == pytest.approx(0.15)
    assert not lending.growing


def test_it_is_cut_when_latencies_rise_and_again_until_they_are_low_enough() -> None:
    lending = Lending(THRESHOLDS)
    run(lending, 20.0, 0.2)
    assert run(lending, 1.9, 0.8) == pytest.approx(0.7 * 0.3)
    assert run(lending, 2.0, 0.8) == pytest.approx(0.7**2 * 0.3)
    assert run(lending, 20.0, 0.8) < 0.01


def test_it_is_cut_deeper_when_the_target_is_missed() -> None:
    lending = Lending(THRESHOLDS)
    run(lending, 20.0, 0.2)
    assert run(lending, 1.9, 1.5) == pytest.approx(0.3 * 0.3)


def test_one_bad_second_cuts_it_once() -> None:
    lending = Lending(THRESHOLDS)
    run(lending, 20.0, 0.2)
    run(lending, 1.0, 0.8)
    assert run(lending, 3.0, 0.6) == pytest.approx(0.7 * 0.3, abs=0.01)


def test_after_a_cut_it_grows_slowly() -> None:
    lending = Lending(THRESHOLDS)
    run(lending, 20.0, 0.2)
    run(lending, 1.0, 0.8)
    assert run(lending, 10.0, 0.2) == pytest.approx(0.7 * 0.3 + 0.03, abs=0.01)
    assert not lending.growing, "nobody should wait for it"
    assert run(lending, 10.0, 0.2) < 0.3
    assert run(lending, 40.0, 0.2) == pytest.approx(0.3)


def test_latencies_that_were_high_before_the_loan_make_no_later_one_smaller() -> None:
    lending = Lending(THRESHOLDS)
    run(lending, 0.5, 0.2)
    run(lending, 5.0, 2.0)
    assert lending.share == 0.0
    assert run(lending, 12.0, 0.2) == pytest.approx(0.3)


def test_it_is_returned_when_latencies_are_not_known_any_more() -> None:
    lending = Lending(THRESHOLDS)
    run(lending, 20.0, 0.2)
    assert run(lending, 5.0, None) == 0.0


def test_it_is_returned_when_nobody_needs_it() -> None:
    lending = Lending(THRESHOLDS)
    run(lending, 20.0, 0.2)
    assert run(lending, 5.0, 0.2, needed=False) == 0.0


def test_only_what_is_not_anonymous_may_be_idle() -> None:
    application = GroupSample(name="app", anon_bytes=100 * MIB, swap_bytes=20 * MIB)
    assert idle_bytes(application, 300 * MIB) == 180 * MIB
    assert idle_bytes(application, 90 * MIB) == 0.0
    assert idle_bytes(GroupSample(name="app"), 300 * MIB) == 0.0


def test_it_is_returned_at_once_when_the_application_waits_for_memory() -> None:
    lending = Lending(THRESHOLDS)
    run(lending, 20.0, 0.2)
    lending.recall(0.2, 0.1)
    assert lending.share == 0.0
    assert not lending.growing
    assert run(lending, 5.0, 0.2) == pytest.approx(0.3 * 0.2 + 0.015, abs=0.005), (
        "the next one is smaller than what was used"
    )


def test_a_loan_that_nobody_used_is_not_the_reason_for_a_stall() -> None:
    lending = Lending(THRESHOLDS)
    run(lending, 20.0, 0.2)
    lending.recall(0.01, 0.1)
    assert run(lending, 11.0, 0.2) == pytest.approx(0.3)
