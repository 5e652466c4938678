"""The critical path and the three kinds of interference, as the DASEC document states them."""

from __future__ import annotations

import pytest
from thread_examples import PERIOD_US, period, ref, thread

from stallward.agent.threads import nice_weight
from stallward.papers.scheduling import (
    conflicts,
    critical_path,
    delayed,
    lacks_share,
    loads,
    thread_periods,
)

# --- "All the other tasks of the workload depend on the task to make progress."


def test_the_thread_that_all_others_wait_for_is_critical() -> None:
    """Workers wait at a barrier, or for a lock: they worked more, but only one can go on now."""
    holder = period(1, ready=True, run_us=4_000, wait_us=6_000)
    waiting = [period(tid, run_us=30_000) for tid in (2, 3, 4)]
    assert critical_path([holder, *waiting]) == {ref(1)}


def test_of_independent_threads_the_longest_path_is_critical() -> None:
    """ "Critical path is the longest execution path." None of them holds up all the others."""
    threads = [
        period(1, ready=True, run_us=20_000, wait_us=70_000),
        period(2, ready=True, run_us=20_000, wait_us=10_000),
        period(3, run_us=1_000),
    ]
    assert critical_path(threads) == {ref(1)}


def test_threads_on_nearly_equal_paths_are_all_critical() -> None:
    threads = [
        period(1, ready=True, run_us=50_000, wait_us=50_000),
        period(2, ready=True, run_us=46_000, wait_us=50_000),
        period(3, ready=True, run_us=40_000, wait_us=40_000),
    ]
    assert critical_path(threads) == {ref(1), ref(2)}


def test_with_all_asleep_the_longest_path_of_the_period_is_critical() -> None:
    assert critical_path([period(1, run_us=9_000), period(2, run_us=50)]) == {ref(1)}


def test_threads_with_nothing_to_do_are_on_no_path() -> None:
    assert critical_path([period(1), period(2)]) == frozenset()
    assert critical_path([]) == frozenset()


# --- #1 "... in 'ready' or 'running' status and its timeslice was not used up."


def test_an_app_that_is_ready_and_has_not_run_is_delayed() -> None:
    """ "App is ready to run at T0", and other work has the CPU."""
    late = period(1, ready=True, wait_us=20_000)
    assert delayed(late)
    assert not lacks_share(late)


def test_a_thread_that_was_preempted_before_its_timeslice_was_used_up_is_delayed() -> None:
    """Half of the period is its timeslice, and it ran for 5 ms in five turns."""
    late = period(1, ready=True, run_us=5_000, wait_us=20_000, preemptions=5)
    assert delayed(late)
    assert not lacks_share(late)


def test_a_wait_that_is_over_at_the_end_of_the_period_is_a_delay() -> None:
    """ "States and events": a thread of a store sleeps most of the time."""
    assert delayed(period(1, run_us=1_000, wait_us=20_000))
    assert not delayed(period(1, run_us=1_000, wait_us=900)), "no longer than to be chosen"


def test_a_thread_that_had_the_cpu_all_the_time_is_not_delayed() -> None:
    assert not delayed(period(1, ready=True, run_us=99_000, timeslice_us=99_000.0))


# --- #3 "... preempted due to depletion of timeslice in previous time period."


def test_a_thread_that_used_up_its_timeslice_lacks_share() -> None:
    short = period(1, ready=True, run_us=50_000, wait_us=50_000, preemptions=5)
    assert lacks_share(short)
    assert not delayed(short)


def test_a_thread_that_gave_up_the_cpu_by_itself_or_never_waited_lacks_nothing() -> None:
    assert not lacks_share(period(1, run_us=90_000, preemptions=0))
    assert not lacks_share(period(1, run_us=90_000, wait_us=100, preemptions=4))


# --- #2 "... with low rescheduling latencies are scheduled on the same core or their total
# timeslices exceed core's capacity."


def test_two_low_latency_threads_on_one_core_are_in_conflict() -> None:
    threads = [period(1, cpu=0, run_us=10), period(2, cpu=0, run_us=10), period(3, cpu=1)]
    assert conflicts(threads, loads(threads), PERIOD_US) == {0: tuple(threads[:2])}


def test_timeslices_beyond_the_capacity_of_a_core_are_a_conflict() -> None:
    """Also those of threads with no low rescheduling latency, since they run there, too."""
    low = period(1, cpu=3, run_us=10_000, wait_us=20_000)
    others = [period(2, cpu=3, run_us=80_000), period(3, cpu=1, run_us=99_000)]
    assert conflicts([low], loads([low, *others]), PERIOD_US) == {3: (low,)}
    assert conflicts([low], loads([low]), PERIOD_US) == {}


# --- What a period is.


def test_a_period_is_the_growth_of_a_threads_counters() -> None:
    before = thread(1, run_us=1_000, wait_us=5_000, involuntary_switches=2)
    now = thread(1, run_us=1_700, wait_us=9_000, involuntary_switches=3, state="R", cpu=1)
    (seen,) = thread_periods([before], [now], PERIOD_US)
    assert (seen.run_us, seen.wait_us, seen.preemptions) == (700, 4_000, 1)
    assert (seen.ready, seen.cpu, seen.period_us) == (True, 1, PERIOD_US)


def test_a_thread_that_started_or_ended_meanwhile_has_no_period() -> None:
    same_number = thread(1, start_time_ticks=8)
    assert thread_periods([thread(1), thread(2)], [same_number, thread(3)], PERIOD_US) == ()


@pytest.mark.parametrize(
    ("run_us", "wait_us", "timeslice_us"),
    [
        (9_000, 90_000, 50_000),  # the same weight as whatever else runs there
        (9_000, 11_000, 20_000),  # no more than it wanted
        (80_000, 20_000, 80_000),  # others had no more than 20 ms to run
    ],
)
def test_the_timeslice_is_a_share_of_the_period(
    run_us: int, wait_us: int, timeslice_us: int
) -> None:
    """ "Assign timeslice to each task for the upcoming time period." """
    now = thread(1, run_us=run_us, wait_us=wait_us)
    (seen,) = thread_periods([thread(1)], [now], PERIOD_US)
    assert seen.timeslice_us == pytest.approx(timeslice_us, abs=1)


def test_weights_divide_a_cpu_among_those_on_it() -> None:
    wanting = {"run_us": 20_000, "wait_us": 80_000}
    before = [thread(1, nice=-5), thread(2), thread(3, cpu=1)]
    now = [thread(1, nice=-5, **wanting), thread(2, **wanting), thread(3, cpu=1, **wanting)]
    first, second, alone = thread_periods(before, now, PERIOD_US)
    total = nice_weight(-5) + 2 * nice_weight(0)
    assert first.timeslice_us == pytest.approx(PERIOD_US * nice_weight(-5) / total, rel=0.01)
    assert second.timeslice_us == pytest.approx(PERIOD_US * nice_weight(0) / total, rel=0.01)
    assert alone.timeslice_us == pytest.approx(PERIOD_US / 2, rel=0.01)


@pytest.mark.parametrize("field", ["run_us", "wait_us", "involuntary_switches"])
def test_a_counter_that_fell_is_no_growth(field: str) -> None:
    (seen,) = thread_periods([thread(1, **{field: 9})], [thread(1)], PERIOD_US)
    assert seen.demand_us == 0
    assert seen.preemptions == 0
