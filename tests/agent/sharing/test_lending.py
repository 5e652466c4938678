"""The loan of a part of the application's demand."""

from __future__ import annotations

import math

import pytest

from stallward.agent.desired import MIB
from stallward.agent.sharing.lending import LendingThresholds, Loan, follow_loan, idle_bytes

THRESHOLDS = LendingThresholds(
    most_lent_share=0.3,
    lend_below=0.5,
    return_above=0.75,
    lend_s=10.0,
    return_s=2.0,
    retry_s=100.0,
)


class Lending:
    """A loan, and whether it grows fast."""

    def __init__(self) -> None:
        self.loan = Loan(lent_ceiling=THRESHOLDS.most_lent_share)
        self.growing = False

    def look(
        self, ratio: float, *, needed: bool = True, followed: float = math.nan, used: float = -1.0
    ) -> None:
        """Look at the latencies once; with something in use all is recalled."""
        self.growing = follow_loan(
            self.loan, THRESHOLDS, 0.1, ratio, needed, followed, used >= 0.0, used
        )


def run(lending: Lending, seconds: float, ratio: float, *, needed: bool = True) -> float:
    for _ in range(round(seconds / 0.1)):
        lending.look(ratio, needed=needed)
    return lending.loan.lent_share


def test_it_grows_while_latencies_are_low_up_to_its_bound() -> None:
    lending = Lending()
    assert run(lending, 5.0, 0.2) == pytest.approx(0.15)
    assert lending.growing
    assert run(lending, 20.0, 0.2) == 0.3
    assert not lending.growing


def test_it_stays_between_the_two_thresholds() -> None:
    lending = Lending()
    run(lending, 5.0, 0.2)
    assert run(lending, 30.0, 0.6) == pytest.approx(0.15)
    assert not lending.growing


def test_it_is_cut_when_latencies_rise_and_again_until_they_are_low_enough() -> None:
    lending = Lending()
    run(lending, 20.0, 0.2)
    assert run(lending, 1.9, 0.8) == pytest.approx(0.7 * 0.3)
    assert run(lending, 2.0, 0.8) == pytest.approx(0.7**2 * 0.3)
    assert run(lending, 20.0, 0.8) < 0.01


def test_it_is_cut_deeper_when_the_target_is_missed() -> None:
    lending = Lending()
    run(lending, 20.0, 0.2)
    assert run(lending, 1.9, 1.5) == pytest.approx(0.3 * 0.3)


def test_one_bad_second_cuts_it_once() -> None:
    lending = Lending()
    run(lending, 20.0, 0.2)
    run(lending, 1.0, 0.8)
    assert run(lending, 3.0, 0.6) == pytest.approx(0.7 * 0.3, abs=0.01)


def test_after_a_cut_it_grows_slowly() -> None:
    lending = Lending()
    run(lending, 20.0, 0.2)
    run(lending, 1.0, 0.8)
    assert run(lending, 10.0, 0.2) == pytest.approx(0.7 * 0.3 + 0.03, abs=0.01)
    assert not lending.growing, "nobody should wait for it"
    assert run(lending, 10.0, 0.2) < 0.3
    assert run(lending, 40.0, 0.2) == pytest.approx(0.3)


def test_latencies_that_were_high_before_the_loan_make_no_later_one_smaller() -> None:
    lending = Lending()
    run(lending, 0.5, 0.2)
    run(lending, 5.0, 2.0)
    assert lending.loan.lent_share == 0.0
    assert run(lending, 12.0, 0.2) == pytest.approx(0.3)


def test_it_is_returned_when_latencies_are_not_known_any_more() -> None:
    lending = Lending()
    run(lending, 20.0, 0.2)
    assert run(lending, 5.0, math.nan) == 0.0


def test_it_is_returned_when_nobody_needs_it() -> None:
    lending = Lending()
    run(lending, 20.0, 0.2)
    assert run(lending, 5.0, 0.2, needed=False) == 0.0


def test_only_what_is_not_anonymous_may_be_idle() -> None:
    assert idle_bytes(300 * MIB, 100 * MIB, 20 * MIB) == 180 * MIB
    assert idle_bytes(90 * MIB, 100 * MIB, 20 * MIB) == 0.0
    assert idle_bytes(300 * MIB, math.nan, 0.0) == 0.0, "where they are not counted"


def test_it_is_returned_at_once_when_the_application_waits_for_memory() -> None:
    lending = Lending()
    run(lending, 20.0, 0.2)
    lending.look(0.2, used=0.2)
    assert lending.loan.lent_share == 0.0
    assert not lending.growing
    assert run(lending, 5.0, 0.2) == pytest.approx(0.3 * 0.2 + 0.015, abs=0.005), (
        "the next one is smaller than what was used"
    )


def test_a_loan_that_nobody_used_is_not_the_reason_for_a_stall() -> None:
    lending = Lending()
    run(lending, 20.0, 0.2)
    lending.look(0.2, used=0.01)
    assert run(lending, 11.0, 0.2) == pytest.approx(0.3)


def test_a_loan_that_somebody_else_decided_on_is_followed_as_fast_as_one_may_change() -> None:
    lending = Lending()
    for expected in (0.03, 0.06):
        for _ in range(10):
            lending.look(2.0, followed=0.2)
        assert lending.loan.lent_share == pytest.approx(expected)
        assert lending.growing
    for _ in range(50):
        lending.look(2.0, followed=0.2)
    assert lending.loan.lent_share == 0.2
    assert not lending.growing
