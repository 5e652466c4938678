"""Limits are left out while the application is far from its target, and for no longer."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from limited_node import GROUP, SILENT, SLO_MS, TICK_S, LimitedNode, answered

from stallward.agent.sample import UNBOUND, GroupSample, LatencySample, Sample
from stallward.agent.sharing.slack import AVERAGE_S, FIRST_WAIT_S, Slack, SlackThresholds
from stallward.agent.sharing.trial import LONGEST_WAIT_S, PROVED_S


@dataclass
class Node(LimitedNode):
    slack: Slack = field(default_factory=lambda: Slack(SlackThresholds()))

    @property
    def is_free(self) -> bool:
        return self.slack.unlimited

    def decide(self, sample: Sample) -> bool:
        return self.slack.update(sample, TICK_S, slo_ms=SLO_MS, limits=self.limits)


def unlimited_s(
    limited: LatencySample, free: LatencySample | None, other_group: GroupSample = GROUP
) -> float:
    """For how much of a minute limits are left out with this as a second application."""
    node = Node(
        limited=0.1, free=0.1, other_limited=limited, other_free=free, other_group=other_group
    )
    return node.run(60.0)


def test_limits_are_left_out_where_they_are_not_needed() -> None:
    node = Node(limited=0.1, free=0.7)
    assert node.run(AVERAGE_S - 1.0) == 0.0, "the latency is not known for long enough"
    assert node.run(600.0) > 598.0
    assert len(node.trials_s) == 1


def test_near_the_target_nothing_is_tried() -> None:
    assert Node(limited=0.3, free=0.1).run(600.0) == 0.0


def test_short_peaks_under_limits_do_not_hide_how_far_the_target_is() -> None:
    node = Node(limited=0.1, free=0.1)
    node.run(AVERAGE_S - 1.0)
    node.limited = 3.0
    node.run(0.3)
    node.limited = 0.1
    assert node.run(10.0) > 8.0


def test_one_good_second_is_not_far_from_the_target() -> None:
    node = Node(limited=0.6, free=0.1)
    node.run(AVERAGE_S + 5.0)
    node.limited = 0.1
    assert node.run(1.0) == 0.0


@pytest.mark.slow
def test_limits_come_before_the_target_is_missed_and_the_next_trials_come_later_and_later() -> (
    None
):
    node = Node(limited=0.1, free=0.9)
    assert node.run(60.0) < 6.0
    unlimited_s = node.run(6.0 * LONGEST_WAIT_S)
    waits_s = [late - early for early, late in pairwise(node.trials_s)]
    known_s = [FIRST_WAIT_S, 2.0 * FIRST_WAIT_S, 4.0 * FIRST_WAIT_S, *[LONGEST_WAIT_S] * 4]
    assert waits_s == [pytest.approx(wait_s, abs=7.0) for wait_s in known_s]
    assert unlimited_s < 6.0 * len(node.trials_s)


def test_limits_come_sooner_where_the_target_is_missed_but_one_stall_does_not_bring_them() -> None:
    near_s, missed_s, far_s = (Node(limited=0.1, free=r).run(60.0) for r in (0.8, 1.1, 50.0))
    assert near_s == pytest.approx(5.3, abs=0.3)
    assert missed_s == pytest.approx(far_s) == pytest.approx(2.0, abs=0.3)


@pytest.mark.parametrize(
    ("ratio", "for_s", "pause_s", "stays"),
    [
        (0.8, 1.0, 20.0, True),
        (0.8, 6.0, 20.0, False),
        (3.0, 0.5, 60.0, True),
        (3.0, 1.5, 60.0, False),
    ],
)
def test_now_and_then_the_latency_may_come_near_the_target_and_the_target_be_missed_a_little(
    ratio: float, for_s: float, pause_s: float, stays: bool
) -> None:
    node = Node(limited=0.1, free=0.1)
    for _ in range(10):
        node.free = ratio
        node.run(for_s)
        node.free = 0.1
        node.run(pause_s)
    assert len(node.trials_s) == 1
    assert node.slack.unlimited is stays


def test_a_long_trial_that_ends_makes_the_next_wait_short_again() -> None:
    node = Node(limited=0.1, free=2.0)
    node.run(2.0 * FIRST_WAIT_S)
    node.free = 0.1
    node.run(3.0 * FIRST_WAIT_S)
    assert node.slack.unlimited
    node.run(PROVED_S)
    node.free = 2.0
    node.run(3.0)
    assert not node.slack.unlimited
    before = len(node.trials_s)
    node.run(FIRST_WAIT_S + 2.0)
    assert len(node.trials_s) == before + 1


def test_an_application_that_falls_silent_gets_its_limits_at_once() -> None:
    node = Node(limited=0.1, free=SILENT)
    assert node.run(60.0) < 4.0


def test_one_of_two_applications_that_falls_silent_brings_the_limits_back() -> None:
    assert unlimited_s(answered(0.05), answered(0.2)) > 40.0
    assert unlimited_s(answered(0.05), SILENT) < 4.0


def test_one_of_two_whose_latencies_are_lost_brings_the_limits_back_at_once() -> None:
    assert unlimited_s(answered(0.05), None) < 1.0
    gone = GroupSample(name=f"{UNBOUND}other")
    assert unlimited_s(answered(0.05), None, other_group=gone) > 40.0, "none is missing"
    ended = GroupSample(name="other")
    assert unlimited_s(answered(0.05), None, other_group=ended) > 40.0, "nor here"


def test_a_silence_from_before_a_trial_does_not_end_it() -> None:
    idle = LatencySample(completed_total=10, last_completion_age_s=3600.0)
    assert unlimited_s(idle, idle) > 40.0


def test_a_source_that_is_read_seldom_does_not_look_silent_between_two_readings() -> None:
    seldom = replace(answered(0.05), window_s=5.0, last_completion_age_s=4.0)
    assert Node(limited=seldom, free=seldom).run(60.0) > 40.0


def test_without_latencies_there_are_limits() -> None:
    assert Node(limited=None, free=None).run(60.0) == 0.0
    node = Node(limited=0.1, free=None)
    assert node.run(60.0) < 10.0, "it is no longer known how far the target is"


def test_what_would_not_be_limited_is_no_trial() -> None:
    node = Node(limited=0.1, free=0.1, limits=False)
    assert node.run(60.0) == 0.0


def test_another_target_is_judged_by_itself() -> None:
    node = Node(limited=0.1, free=2.0)
    node.run(60.0)
    assert not node.slack.unlimited
    node.slack.retarget()
    node.free = 0.1
    assert node.run(30.0) > 19.0


def test_it_can_be_switched_off() -> None:
    node = Node(limited=0.1, free=0.1, slack=Slack(SlackThresholds(far_ratio=0.0)))
    assert node.run(600.0) == 0.0
