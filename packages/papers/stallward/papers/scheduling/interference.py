"""The three ways in which other work gets in the way of a thread in one period. Pure.

Source: as for :mod:`stallward.papers.scheduling.critical_path`, whose words are quoted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from stallward.papers.scheduling.thread_period import ThreadPeriod


def delayed(period: ThreadPeriod) -> bool:
    """Whether the thread starts late.

    "At the end of previous time period, a thread/process was in 'ready' or 'running' status and
    its timeslice was not used up." The source monitors "states and events": a wait within the
    period that has ended counts as well.
    """
    return (period.ready or period.waited) and not period.used_up_timeslice


def lacks_share(period: ThreadPeriod) -> bool:
    """Whether the thread has too little of the CPU.

    "Threads/processes were preempted due to depletion of timeslice in previous time period."
    """
    return period.preemptions > 0 and period.waited and period.used_up_timeslice


def loads(periods: Iterable[ThreadPeriod]) -> dict[int, int]:
    """How long the application's threads wanted to run on each CPU, microseconds."""
    load_us: dict[int, int] = defaultdict(int)
    for period in periods:
        load_us[period.cpu] += period.demand_us
    return dict(load_us)


def conflicts(
    low_latency: Iterable[ThreadPeriod], load_us: Mapping[int, int], period_us: int
) -> dict[int, tuple[ThreadPeriod, ...]]:
    """The CPUs on which threads with a low rescheduling latency interrupt one another.

    "Threads/processes with low rescheduling latencies are scheduled on the same core or their
    total timeslices exceed core's capacity." The timeslice that a thread needs in a period is the
    time for which it wanted to run in the last one.

    Args:
        low_latency: The threads with a low rescheduling latency.
        load_us: How long all of the application's threads wanted to run on each CPU.
        period_us: The length of the period, which is the capacity of a core.

    Returns:
        The CPUs with a conflict, ascending, and the threads on each.
    """
    on_cpu: dict[int, list[ThreadPeriod]] = defaultdict(list)
    for period in low_latency:
        on_cpu[period.cpu].append(period)
    return {
        cpu: tuple(threads)
        for cpu, threads in sorted(on_cpu.items())
        if len(threads) > 1 or load_us.get(cpu, 0) > period_us
    }
