"""How well groups get on is the share of their time that is their own work."""

from __future__ import annotations

import math

import pytest

from stallward.agent.sample import GroupSample, NodeSample, PsiTotals, Sample, SlotState
from stallward.research.border.search import LEAST_PROGRESS, Progress, gain


def sample(*groups: GroupSample, paused: bool = False) -> Sample:
    return Sample(
        sequence=0,
        time_s=0.0,
        node=NodeSample(),
        zone=GroupSample(name="zone"),
        protected=GroupSample(name="app"),
        slots=groups,
        slot_states=tuple(SlotState(paused=paused) for _ in groups),
    )


def group(
    *, user_s: float | None = 0.0, kernel_s: float = 0.0, memory_s: float = 0.0, io_s: float = 0.0
) -> GroupSample:
    return GroupSample(
        name="g",
        psi=PsiTotals(memory_some_us=int(1e6 * memory_s), io_some_us=int(1e6 * io_s)),
        cpu_usage_us=int(1e6 * ((user_s or 0.0) + kernel_s)),
        cpu_user_us=None if user_s is None else int(1e6 * user_s),
    )


def share_of(later: GroupSample, *, paused: bool = False) -> float:
    """The share after a second in which a group's counters went from nothing to these."""
    progress = Progress()
    progress.update(sample(group()), 0.0)
    progress.restart()
    progress.update(sample(later, paused=paused), 1.0)
    return progress.shares()[0]


def test_time_in_the_kernel_and_stalls_are_no_work() -> None:
    assert share_of(group(user_s=0.5)) == 1.0
    assert share_of(group(user_s=0.2, kernel_s=0.2)) == pytest.approx(0.5)
    assert share_of(group(user_s=0.2, memory_s=0.1, io_s=0.1)) == pytest.approx(0.5)


def test_a_pause_is_lost_time_and_a_stall_in_it_does_not_count_twice() -> None:
    assert share_of(group(user_s=0.25, memory_s=0.9), paused=True) == pytest.approx(0.2)


def test_where_only_all_of_its_time_is_known_that_counts() -> None:
    assert share_of(group(user_s=None, kernel_s=0.3, memory_s=0.3)) == pytest.approx(0.5)


def test_an_idle_group_and_an_unknown_one_say_nothing() -> None:
    assert math.isnan(share_of(group()))
    assert math.isnan(share_of(GroupSample(name="g")))


def test_what_was_seen_before_it_began_again_is_forgotten_but_not_where_it_was() -> None:
    progress = Progress()
    progress.update(sample(group()), 0.1)
    progress.update(sample(group(memory_s=5.0)), 5.0)
    progress.restart()
    progress.update(sample(group(user_s=1.0, memory_s=5.0)), 1.0)
    assert progress.shares() == (1.0,)


def test_what_was_counted_while_nobody_looked_says_nothing() -> None:
    progress = Progress()
    progress.update(sample(group()), 0.1)
    progress.update(sample(group(user_s=600.0)), 0.0)
    progress.update(sample(group(user_s=600.5, kernel_s=0.5)), 1.0)
    assert progress.shares() == pytest.approx((0.5,))


def test_a_counter_that_began_anew_takes_nothing_away() -> None:
    progress = Progress()
    progress.update(sample(group(user_s=9.0)), 0.1)
    progress.update(sample(group(user_s=1.0)), 1.0)
    progress.update(sample(group(user_s=1.5)), 1.0)
    assert progress.shares() == (1.0,)


def test_a_gain_is_a_geometric_mean_over_the_groups_that_are_known_both_times() -> None:
    assert gain((0.8, 0.2), (0.2, 0.2)) == pytest.approx(2.0)
    assert gain((0.8, math.nan), (0.2, 0.1)) == pytest.approx(4.0)
    assert gain((math.nan,), (0.5,)) == 1.0
    assert gain((), ()) == 1.0
    assert gain((0.1,), (0.0,)) == pytest.approx(0.1 / LEAST_PROGRESS)
