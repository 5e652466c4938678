"""The search for the border tries one loan after another, holds what pays, and remembers failures."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from stallward.agent.sample import (
    GroupSample,
    LatencySample,
    NodeSample,
    PsiTotals,
    Sample,
    SlotState,
)
from stallward.research.border.search import BorderSearch, BorderThresholds

LOANS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.45, 1.0)
SLO_MS = 10.0
TICK_S = 0.5
NUMBERS = BorderThresholds()

By = Callable[[float], float]
"""A figure, by what is lent."""


@dataclass
class Node:
    """An application and two groups whose figures depend on what is lent alone."""

    ratio: By
    """The p95 over the target."""
    progress: By
    """The share of its time in which the first group gets on; the second one always does."""
    search: BorderSearch = field(default_factory=lambda: BorderSearch(NUMBERS, len(LOANS), SLO_MS))
    fitting: tuple[int, ...] = (0, 0, 0, 0, 0, 0, 2)
    stalled: bool = False
    answers: bool = True
    idle: bool = False
    """Whether there is nothing to answer."""
    time_s: float = 0.0
    levels: list[int] = field(default_factory=list)
    missed_s: float = 0.0
    user_us: float = 0.0
    stalled_us: float = 0.0

    def sample(self) -> Sample:
        own = self.progress(LOANS[self.search.level])
        self.user_us += 1e6 * TICK_S * own
        self.stalled_us += 1e6 * TICK_S * (1.0 - own)
        p95_ms = SLO_MS * self.ratio(LOANS[self.search.level])
        return Sample(
            sequence=0,
            time_s=self.time_s,
            node=NodeSample(),
            zone=GroupSample(name="zone"),
            protected=GroupSample(name="app"),
            slots=(
                _group("a", self.user_us, self.stalled_us),
                _group("b", 1e6 * self.time_s, 0.0),
            ),
            slot_states=(SlotState(), SlotState()),
            latency=self.latency(p95_ms) if self.answers else None,
        )

    def latency(self, p95_ms: float) -> LatencySample:
        if self.idle:
            return LatencySample(last_completion_age_s=40.0)
        return LatencySample(p95_ms=p95_ms, last_completion_age_s=0.0)

    def run(self, seconds: float) -> list[int]:
        """The levels held in the next seconds, tick by tick."""
        held = []
        for _ in range(round(seconds / TICK_S)):
            self.time_s += TICK_S
            sample = self.sample()
            self.missed_s += TICK_S * (self.ratio(LOANS[self.search.level]) > 1.0)
            held.append(
                self.search.update(
                    sample, TICK_S, fitting=lambda: self.fitting, stalled=self.stalled
                )
            )
        self.levels += held
        return held


def _group(name: str, user_us: float, stalled_us: float) -> GroupSample:
    return GroupSample(
        name=name,
        psi=PsiTotals(memory_some_us=int(stalled_us)),
        cpu_usage_us=int(user_us),
        cpu_user_us=int(user_us),
    )


def slopes(loan: float) -> float:
    """The p95 over the target: 0.4 without a loan, a near miss from 21 % on."""
    return 0.4 + (0.3 if loan <= 0.2 else 1.0) * min(loan, 0.6)


def knee(at: float) -> By:
    """A program that gets on three times as well from a loan on."""
    return lambda loan: 0.9 if loan >= at else 0.3


def test_it_holds_the_smallest_loan_under_which_a_program_fits() -> None:
    node = Node(ratio=slopes, progress=knee(0.1))
    node.run(1000.0)
    held = node.levels[round(100 / TICK_S) :]
    assert held.count(LOANS.index(0.1)) > 0.8 * len(held), "larger ones are tried now and then"


def test_it_goes_up_one_level_after_the_other_and_holds_each() -> None:
    node = Node(ratio=lambda _: 0.1, progress=lambda loan: 0.1 + 0.8 * loan)
    node.run(200.0)
    holds = [(level, len(list(ticks))) for level, ticks in itertools.groupby(node.levels)]
    assert [level for level, _ in holds] == list(range(len(LOANS)))
    assert all(ticks * TICK_S >= NUMBERS.hold_s - TICK_S for _, ticks in holds)


def test_nothing_is_tried_while_the_target_is_hardly_met_or_nobody_lacks_memory() -> None:
    close = Node(ratio=lambda _: NUMBERS.try_below + 0.05, progress=knee(0.1))
    assert set(close.run(100.0)) == {0}
    enough = Node(ratio=lambda _: 0.1, progress=knee(0.1), fitting=(2,) * len(LOANS))
    assert set(enough.run(100.0)) == {0}


def test_a_loan_that_nearly_misses_the_target_costs_little_and_less_each_time() -> None:
    node = Node(ratio=lambda loan: 0.4 if loan < 0.1 else 1.2, progress=knee(0.1))
    node.run(1000.0)
    began = [
        i * TICK_S
        for i, (before, now) in enumerate(itertools.pairwise(node.levels))
        if now == LOANS.index(0.1) != before
    ]
    between_s = [later - sooner for sooner, later in itertools.pairwise(began)]
    assert len(began) >= 3
    assert between_s[0] >= NUMBERS.first_wait_s
    assert all(later > 1.7 * sooner for sooner, later in itertools.pairwise(between_s))
    assert node.missed_s / len(began) < NUMBERS.tolerated_s + 2 * TICK_S


def test_a_loan_without_a_gain_is_ended_and_tried_again_later() -> None:
    node = Node(ratio=lambda _: 0.2, progress=lambda _: 0.5)
    node.run(150.0)
    assert set(node.levels[-round(30 / TICK_S) :]) == {0}, "no level is better than none"
    assert max(node.levels) == len(LOANS) - 1, "it did not matter to the application, so all were"
    node.run(NUMBERS.first_wait_s)
    assert max(node.levels[-round(NUMBERS.first_wait_s / TICK_S) :]) > 0


def test_a_loan_ends_at_once_when_the_application_stands() -> None:
    node = Node(ratio=lambda _: 0.2, progress=knee(0.05))
    node.run(20.0)
    assert node.search.level > 0
    node.stalled = True
    assert node.run(TICK_S) == [0]


def test_a_silent_application_misses_its_target() -> None:
    node = Node(ratio=lambda _: 0.2, progress=knee(0.05))
    node.run(20.0)
    assert node.search.level > 0
    node.answers = False
    assert node.run(TICK_S) == [0], "it reports no latencies any more"


def test_an_application_that_had_nothing_to_answer_is_not_taken_for_one_that_limits_harm() -> None:
    node = Node(ratio=lambda _: 0.8, progress=knee(0.05))
    node.run(20.0)
    node.idle = True
    assert set(node.run(120.0)) == {0}
    node.idle = False
    assert set(node.run(60.0)) == {0}


def test_another_target_forgets_what_failed() -> None:
    node = Node(ratio=lambda loan: 0.5 if loan == 0.0 else 1.5, progress=knee(0.05))
    node.run(40.0)
    assert node.search.level == 0
    node.ratio = lambda _: 0.4
    assert set(node.run(60.0)) == {0}, "it failed less than two minutes ago"
    node.search.retarget(10 * SLO_MS)
    node.run(20.0)
    assert node.search.level > 0


@pytest.mark.parametrize("best", [0.05, 0.2, 1.0])
def test_a_larger_loan_must_pay(best: float) -> None:
    node = Node(ratio=lambda _: 0.2, progress=lambda loan: 0.5 if loan >= best else 0.4)
    node.run(1000.0)
    held = node.levels[round(100 / TICK_S) :]
    assert held.count(LOANS.index(best)) > 0.7 * len(held)


def test_a_loan_at_which_one_more_group_fits_is_tried_at_once() -> None:
    """Smaller ones would only make swap traffic."""
    node = Node(ratio=lambda _: 0.2, progress=knee(0.3), fitting=(0, 0, 0, 0, 1, 1, 2))
    node.run(28.0)
    assert [level for level, _ in itertools.groupby(node.levels)] == [0, LOANS.index(0.3)]


def test_no_limits_are_tried_last_although_everybody_would_fit() -> None:
    node = Node(ratio=lambda _: 0.2, progress=lambda loan: 0.1 + 0.8 * loan)
    assert node.run(20.0)[-1] == 1


def test_no_limits_may_be_fine_where_loans_are_not() -> None:
    """Limits make swap traffic, and that can hurt more than the memory helps."""
    node = Node(ratio=lambda loan: 0.2 if loan in {0.0, 1.0} else 1.5, progress=knee(1.0))
    node.run(100.0)
    assert set(node.levels[-round(50 / TICK_S) :]) == {len(LOANS) - 1}


def test_no_limits_need_more_slack_than_a_loan() -> None:
    node = Node(ratio=lambda loan: 0.4 if loan in {0.0, 1.0} else 1.5, progress=knee(1.0))
    assert len(LOANS) - 1 not in node.run(100.0)


def test_where_limits_make_it_miss_the_target_it_is_tried_without() -> None:
    """As on a slow disk, where a squeeze makes more swap traffic than the disk can bear."""
    node = Node(ratio=lambda loan: 0.95 if loan < 1.0 else 0.7, progress=knee(1.0))
    node.run(100.0)
    assert node.search.level == len(LOANS) - 1
    assert set(node.levels) == {0, len(LOANS) - 1}


def test_near_misses_of_another_target_excuse_none_of_this_one() -> None:
    node = Node(ratio=lambda _: 0.95, progress=knee(0.05), fitting=(2,) * len(LOANS))
    node.run(100.0)
    node.search.retarget(10 * SLO_MS)
    node.fitting = (0, 0, 0, 0, 0, 0, 2)
    node.ratio = lambda loan: 9.5 if 0.0 < loan < 1.0 else 4.0
    held_s = TICK_S * sum(level == 1 for level in node.run(30.0))
    assert 0.0 < held_s <= NUMBERS.tolerated_s + 2 * TICK_S
