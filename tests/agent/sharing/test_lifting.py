"""When limits are lifted because they themselves do harm."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from limited_node import SILENT, SLO_MS, TICK_S, LimitedNode, answered

from stallward.agent.sample import LatencySample, Sample
from stallward.agent.sharing.lifting import FIRST_WAIT_S, LEAST_TRIAL_S, Lifting
from stallward.agent.sharing.trial import PROVED_S


@dataclass
class Node(LimitedNode):
    lifting: Lifting = field(default_factory=Lifting)
    waits: bool = True

    @property
    def is_free(self) -> bool:
        return self.lifting.lifted

    def decide(self, sample: Sample) -> bool:
        return self.lifting.update(
            sample, TICK_S, slo_ms=SLO_MS, limits=self.limits, waits=self.waits
        )


def test_limits_that_make_the_application_miss_are_lifted_and_stay_so() -> None:
    node = Node(limited=3.0, free=0.5)
    assert node.run(15.0) == 0.0, "at first memory follows the limits"
    assert node.run(300.0) > 280.0
    assert len(node.trials_s) == 1


def test_limits_of_an_application_that_does_not_wait_for_the_disk_are_not_why_it_misses() -> None:
    node = Node(limited=3.0, free=0.5, waits=False)
    assert node.run(600.0) == 0.0


def test_limits_that_were_lifted_in_a_bad_moment_come_back() -> None:
    node = Node(limited=9.0, free=5.0)
    node.run(60.0)
    assert node.lifting.lifted
    node.limited = 0.5
    node.run(PROVED_S)
    assert not node.lifting.lifted, "without them the target is missed"
    assert node.run(600.0) == 0.0, "and with them it is met"


def test_another_target_makes_the_next_look_at_the_limits_early() -> None:
    node = Node(limited=9.0, free=5.0)
    node.run(2000.0)  # the looks at the limits become rare
    node.lifting.retarget()
    node.run(60.0)
    assert node.lifting.lifted
    assert 0.0 < node.run(PROVED_S) < PROVED_S, "two minutes are enough again"


def test_limits_under_which_the_target_is_met_are_left() -> None:
    node = Node(limited=0.9, free=0.1)
    assert node.run(600.0) == 0.0


def test_a_trial_that_does_worse_ends_soon_and_the_next_ones_come_later_and_later() -> None:
    node = Node(limited=1.5, free=20.0)
    lifted_s = node.run(3600.0)
    waits_s = [late - early for early, late in pairwise(node.trials_s)]
    assert FIRST_WAIT_S <= waits_s[0] <= FIRST_WAIT_S + 1.1 * LEAST_TRIAL_S
    assert all(late > 1.7 * early for early, late in pairwise(waits_s))
    assert len(node.trials_s) == 5
    assert lifted_s < 0.04 * 3600.0


def test_what_is_as_bad_without_limits_has_none_as_the_background_gets_on() -> None:
    node = Node(limited=3.0, free=3.0)
    assert node.run(3600.0) > 0.9 * 3600.0
    again_s = [late - early for early, late in pairwise(node.trials_s)]
    assert all(late > 1.7 * early for early, late in pairwise(again_s)), "seldom looked at again"


def test_a_tail_that_grows_far_beyond_the_target_is_worse_though_as_many_seconds_miss_it() -> None:
    node = Node(limited=1.2, free=300.0)
    assert node.run(120.0) < 40.0


def test_limits_come_back_when_the_application_misses_more_without_them_later() -> None:
    node = Node(limited=1.5, free=0.5)
    node.run(100.0)
    assert node.lifting.lifted
    node.limited, node.free = 0.5, 10.0
    node.run(40.0)
    assert not node.lifting.lifted
    assert node.run(300.0) == 0.0, "they are judged anew, and do no harm now"


def test_an_application_that_has_nothing_to_answer_begins_no_trial() -> None:
    assert Node(limited=SILENT, free=0.5).run(600.0) == 0.0
    assert Node(limited=None, free=0.5).run(600.0) == 0.0


def test_an_application_that_falls_silent_during_a_trial_ends_it() -> None:
    node = Node(limited=1.05, free=SILENT)
    assert node.run(120.0) < LEAST_TRIAL_S + 1.0
    assert len(node.trials_s) == 1


def test_one_of_two_applications_that_falls_silent_ends_a_trial() -> None:
    def lifted_s(other: LatencySample | None) -> float:
        node = Node(limited=1.05, free=0.5, other_limited=answered(0.05), other_free=other)
        return node.run(120.0)

    assert lifted_s(answered(0.5)) > 60.0
    assert lifted_s(SILENT) < LEAST_TRIAL_S + 1.0
    assert lifted_s(None) < LEAST_TRIAL_S + 1.0, "nor is a trial judged without its latencies"


def test_a_trial_of_which_nothing_is_known_ends() -> None:
    node = Node(limited=3.0, free=None)
    assert node.run(120.0) < LEAST_TRIAL_S + 1.0
    assert len(node.trials_s) == 1


def test_where_nothing_would_be_limited_nothing_is_lifted() -> None:
    node = Node(limited=3.0, free=0.5)
    node.run(60.0)
    assert node.lifting.lifted
    node.limits = False
    node.run(TICK_S)
    assert not node.lifting.lifted
    assert node.run(60.0) == 0.0


def test_another_target_begins_anew() -> None:
    node = Node(limited=1.5, free=20.0)
    node.run(40.0)
    assert len(node.trials_s) == 1
    node.lifting.retarget()
    node.run(40.0)
    assert len(node.trials_s) == 2, "the wait after the failure is over"
