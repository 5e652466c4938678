"""What delays the application's threads is counted alike under every controller."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from thread_examples import thread

from stallward.agent.threads import ThreadSample
from stallward.papers.experiments.dasec.result import ThreadFigures
from stallward.papers.experiments.dasec.threads import ThreadReading, thread_figures


def figures(
    *looks: Sequence[ThreadSample], from_s: float = 0.0, to_s: float = 9.0
) -> ThreadFigures:
    readings = [
        ThreadReading(time_s=0.1 * number, threads=tuple(threads))
        for number, threads in enumerate(looks)
    ]
    found = thread_figures(readings, from_s, to_s)
    assert found is not None
    return found


def test_times_are_those_of_all_threads_at_a_time() -> None:
    found = figures(
        [thread(1), thread(2)],
        [thread(1, run_us=20_000, wait_us=30_000), thread(2, run_us=10_000)],
        [thread(1, run_us=40_000, wait_us=60_000), thread(2, run_us=10_000)],
    )
    assert found.threads == 2
    assert found.running == pytest.approx(0.25)
    assert found.waiting == pytest.approx(0.3)


def test_a_period_counts_as_delayed_if_a_critical_thread_is_ready_at_its_end() -> None:
    found = figures(
        [thread(1), thread(2)],
        [thread(1, state="R", wait_us=50_000), thread(2)],
        [thread(1, wait_us=50_000, run_us=1_000), thread(2)],
        [thread(1, wait_us=50_000, run_us=2_000), thread(2)],
        [thread(1, wait_us=60_000, run_us=2_000, state="R"), thread(2)],
    )
    assert found.delayed_share == 0.5
    assert found.lacking_share == found.interrupted_share == 0.0
    assert found.critical == 1.0


def test_delayed_threads_on_one_cpu_are_interrupted() -> None:
    ready = [thread(tid, state="R", wait_us=50_000, cpu=1) for tid in (1, 2)]
    apart = [thread(1, state="R", wait_us=99_000), thread(2, state="R", wait_us=99_000, cpu=1)]
    found = figures([thread(1), thread(2)], ready, apart)
    assert found.delayed_share == 1.0
    assert found.interrupted_share == 0.5


def test_the_burn_in_does_not_count() -> None:
    found = figures(
        [thread(1)],
        [thread(1, state="R", wait_us=90_000)],
        [thread(1, wait_us=90_000, run_us=2_000, involuntary_switches=1)],
        from_s=0.05,
    )
    assert (found.delayed_share, found.lacking_share) == (0.0, 0.0)
    assert found.running == pytest.approx(0.02)


def test_what_the_threads_do_after_the_run_does_not_count() -> None:
    found = figures(
        [thread(1)],
        [thread(1, run_us=2_000)],
        [thread(1, run_us=99_000, state="R", wait_us=90_000)],
        to_s=0.15,
    )
    assert found.delayed_share == 0.0
    assert found.running == pytest.approx(0.02)


def test_without_two_readings_nothing_is_known() -> None:
    assert thread_figures([], 0.0, 9.0) is None
    assert thread_figures([ThreadReading(time_s=1.0, threads=(thread(1),))], 0.0, 9.0) is None
