"""The guard and the application's threads: consent, total share, nobody starves, own CPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.guard.changes import GuardChange, GuardRule, Unit, Wish
from stallward.actuator.guard.guard import Guard, GuardMemory, Verdict
from stallward.actuator.guard.threads import RELEASED_S
from stallward.actuator.record.problem_text import problem_text
from stallward.actuator.record.reasons_text import change_text
from stallward.agent.desired import MIB, DesiredState
from stallward.agent.sample import Sample
from stallward.agent.testing import make_sample
from stallward.agent.threads import ThreadDesire, ThreadRef, ThreadSample

TIDS = (99, 98, 97)
PERIOD_S = 0.1


def thread(tid: int, **values: object) -> ThreadSample:
    defaults = {
        "pid": 99,
        "start_time_ticks": 6,
        "state": "R",
        "cpu": 0,
        "run_us": 0,
        "wait_us": 0,
        "voluntary_switches": 0,
        "involuntary_switches": 0,
        "nice": 0,
        "slice_us": 1_400,
        "cpus": (0, 1),
    }
    return ThreadSample(tid=tid, **{**defaults, **values})  # type: ignore[arg-type]


def sample(number: int = 0, threads: tuple[ThreadSample, ...] | None = ()) -> Sample:
    """One tick in which every thread ran, unless other threads are given."""
    ran = tuple(thread(tid, run_us=number * 1_000) for tid in TIDS)
    return replace(make_sample(number), protected_threads=ran if threads == () else threads)


def want(tid: int = 99, *, start: int = 6, **values: object) -> ThreadDesire:
    ref = ThreadRef(tid=tid, start_time_ticks=start)
    return ThreadDesire(thread=ref, **values)  # type: ignore[arg-type]


def state(*desires: ThreadDesire) -> DesiredState:
    return DesiredState(protected_threads=desires)


def guard(*, allowed: bool = True) -> Guard:
    budgets = Budgets(allow_protected_threads=allowed)
    return Guard(budgets=budgets, floors_bytes=(16 * MIB, 16 * MIB))


def review(*desires: ThreadDesire, allowed: bool = True) -> Verdict:
    return guard(allowed=allowed).review(state(*desires), sample(), GuardMemory())


def only(verdict: Verdict) -> GuardChange:
    (change,) = verdict.changes
    assert change.wish is Wish.THREADS
    return change


def test_without_consent_no_thread_is_touched() -> None:
    verdict = review(want(slice_us=100), want(98, nice=1), allowed=False)
    assert verdict.granted.protected_threads == ()
    change = only(verdict)
    assert change.rule is GuardRule.NOT_ALLOWED
    assert change_text(change) == (
        "threads of the protected group: the configuration does not allow it"
    )


def test_with_consent_settings_within_the_rules_are_granted() -> None:
    wanted = (want(slice_us=100, nice=-1), want(98, nice=1), want(97, nice=1, cpus=(1,)))
    verdict = review(*wanted)
    assert verdict.granted.protected_threads == wanted
    assert verdict.changes == ()


def test_a_thread_that_is_not_the_applications_is_left_alone() -> None:
    for stranger in (want(4, slice_us=100), want(99, start=7, slice_us=100)):
        verdict = review(stranger, want(98, slice_us=100))
        assert [one.thread.tid for one in verdict.granted.protected_threads] == [98]
        assert only(verdict).rule is GuardRule.NOT_A_THREAD
        assert only(verdict).tid == stranger.thread.tid


def test_threads_that_were_not_read_are_left_alone() -> None:
    verdict = guard().review(state(want(slice_us=100)), sample(threads=None), GuardMemory())
    assert verdict.granted.protected_threads == ()
    assert only(verdict).rule is GuardRule.NOT_IN_SAMPLE


@pytest.mark.parametrize(
    "nices",
    [
        {99: -1},  # more for one and nothing from the others
        {99: -2, 98: 1},  # not enough from the others
        {99: 1, 98: 1},  # less for the whole application
        {99: 5},
    ],
)
def test_nice_values_that_change_the_total_share_are_refused(nices: dict[int, int]) -> None:
    wanted = [want(tid, nice=nice, slice_us=100) for tid, nice in nices.items()]
    verdict = review(*wanted)
    assert verdict.granted.protected_threads == tuple(replace(one, nice=None) for one in wanted)
    change = only(verdict)
    assert (change.rule, change.bound, change.unit) == (
        GuardRule.TOTAL_SHARE, 3 * 1024.0, Unit.WEIGHT,
    )  # fmt: skip
    assert "their weights add up to" in change_text(change)


def test_the_total_is_that_of_the_threads_own_nice_values() -> None:
    """What was granted before is not the thread's own, though the sample shows it."""
    wanted = state(want(nice=-1), want(98, nice=1), want(97, nice=1))
    first = guard().review(wanted, sample(), GuardMemory())
    changed = tuple(
        thread(tid, run_us=1_000, nice=nice) for tid, nice in zip(TIDS, (-1, 1, 1), strict=True)
    )
    again = guard().review(wanted, sample(1, changed), first.memory)
    assert again.granted.protected_threads == wanted.protected_threads
    more = state(want(nice=-2), want(98, nice=1), want(97, nice=1))
    beyond = guard().review(more, sample(1, changed), first.memory)
    assert only(beyond).rule is GuardRule.TOTAL_SHARE


def test_a_nice_value_stays_near_the_threads_own() -> None:
    verdict = review(want(nice=-9), want(98, nice=9), want(97, nice=9))
    assert [change.rule for change in verdict.changes].count(GuardRule.THREAD_STEPS) == 3
    assert "nice value kept near its own, at -5" in change_text(verdict.changes[0])


def test_a_thread_stays_on_its_own_cpus() -> None:
    verdict = review(want(cpus=(1, 7)), want(98, cpus=(7,)))
    assert verdict.granted.protected_threads == (want(cpus=(1,)),)
    assert only(verdict).rule is GuardRule.NO_CPU_ONLINE
    assert change_text(only(verdict)).startswith("thread 98 of the protected group: kept on")


def test_all_threads_get_their_own_back_when_one_starves() -> None:
    wanted, memory, verdict = state(want(cpus=(0,))), GuardMemory(), None
    ticks_to_starve = round(1.0 / PERIOD_S) + 2
    for number in range(ticks_to_starve):
        starving = thread(98, run_us=5, wait_us=number * 100_000)
        running = thread(99, run_us=number * 1_000)
        verdict = guard().review(wanted, sample(number, (running, starving)), memory)
        memory = verdict.memory
        if verdict.changes:
            break
        assert verdict.granted.protected_threads == wanted.protected_threads
    assert verdict is not None
    assert verdict.granted.protected_threads == ()
    change = only(verdict)
    assert (change.rule, change.tid, change.bound) == (GuardRule.THREAD_STARVED, 98, 1.0)
    assert "all put back, it was ready and has not run for" in change_text(change)
    later = number + round(RELEASED_S / PERIOD_S)
    for tick, granted in ((later - 2, ()), (later + 2, wanted.protected_threads)):
        verdict = guard().review(wanted, sample(tick), memory)
        assert verdict.granted.protected_threads == granted


def test_a_thread_that_starves_by_itself_releases_nothing() -> None:
    """Nothing was granted, so it is not the daemon that starves it."""
    memory = GuardMemory()
    for number in range(30):
        memory = guard().review(state(), sample(number, (thread(99),)), memory).memory
    verdict = guard().review(state(want(slice_us=100)), sample(30, (thread(99),)), memory)
    assert verdict.granted.protected_threads == (want(slice_us=100),)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("slice_us", 99, "slice_us is 99, outside 100..100000"),
        ("slice_us", 100_001, "slice_us is 100001, outside 100..100000"),
        ("nice", 20, "nice is 20, outside -20..19"),
        ("nice", True, "nice is True, not an integer"),
        ("cpus", [1], "cpus is no tuple of at most 8192 CPUs"),
        ("cpus", (-1,), "cpus is -1, outside 0..8191"),
        ("thread", None, "is no setting of a thread"),
        ("thread", ThreadRef(tid=0, start_time_ticks=1), "tid is 0, outside 1..4194304"),
    ],
)
def test_a_setting_that_no_kernel_takes_refuses_the_whole_state(
    field: str, value: object, says: str
) -> None:
    changes: dict[str, Any] = {field: value}
    broken = replace(want(), **changes)
    problem = guard().invalid(state(broken))
    assert problem is not None
    assert says in problem_text(problem)
    assert guard().invalid(state(want(slice_us=100, nice=19, cpus=(0,)))) is None
