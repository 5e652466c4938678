"""Which CPU each low-latency thread runs on, changed as little as possible. Pure.

Source: as for :mod:`stallward.papers.scheduling.critical_path`: "adjust the layout of
threads/processes on cores in a conservative way". Here that means: only threads in a conflict are
moved, one from each CPU in a period, the one that wants to run for the shortest time, and only to
a CPU where there is then less to share than where it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stallward.agent.threads import ThreadRef
from stallward.papers.scheduling.interference import conflicts, loads
from stallward.papers.scheduling.thread_period import ThreadPeriod


def moves(
    low_latency: Iterable[ThreadPeriod],
    periods: Iterable[ThreadPeriod],
    period_us: int,
    cpus_of: Mapping[ThreadRef, tuple[int, ...]],
) -> dict[ThreadRef, int]:
    """The threads to move, and the CPU for each.

    Args:
        low_latency: The threads with a low rescheduling latency.
        periods: All threads of the application, these included.
        period_us: The length of a period.
        cpus_of: The CPUs that each thread may run on by itself.
    """
    load_us = loads(periods)
    moved: dict[ThreadRef, int] = {}
    for cpu, there in conflicts(low_latency, dict(load_us), period_us).items():
        thread = min(there, key=lambda one: (one.demand_us, one.thread))
        others = [other for other in cpus_of.get(thread.thread, ()) if other != cpu]
        target = min(others, key=lambda other: (load_us.get(other, 0), other), default=None)
        if target is None or load_us.get(target, 0) + thread.demand_us >= load_us[cpu]:
            continue
        moved[thread.thread] = target
        load_us[cpu] -= thread.demand_us
        load_us[target] = load_us.get(target, 0) + thread.demand_us
    return moved
