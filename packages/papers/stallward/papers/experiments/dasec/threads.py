"""Watches the application's threads under every controller alike, and counts what delays them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.sensors.processes.members import GroupMembers
from stallward.actuator.sensors.processes.threads import ThreadReader
from stallward.agent.threads import ThreadSample
from stallward.env.sandbox.watch import PeriodicWatch
from stallward.papers.experiments.dasec.result import ThreadFigures
from stallward.papers.scheduling import (
    ThreadPeriod,
    conflicts,
    critical_path,
    delayed,
    lacks_share,
    loads,
    thread_periods,
)

PERIOD_S: Final = 0.1
"""The period of the controllers, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadReading:
    """The application's threads at one time."""

    time_s: float
    """CLOCK_MONOTONIC."""
    threads: tuple[ThreadSample, ...]


class ThreadWatch(PeriodicWatch):
    """Reads every thread of a group ten times a second; a context manager.

    Args:
        group: The group of the application.
        proc: The /proc directory.
    """

    def __init__(self, group: Cgroup, proc: Path) -> None:
        super().__init__("thread-watch", PERIOD_S)
        self._reader = ThreadReader((GroupMembers(group),), proc)
        self._readings: list[ThreadReading] = []

    @property
    def readings(self) -> tuple[ThreadReading, ...]:
        """What was read so far, by time."""
        return tuple(self._readings)

    def _look(self) -> None:
        threads = self._reader.read()
        if threads:
            self._readings.append(ThreadReading(time_s=time.monotonic(), threads=threads))

    def __exit__(self, *raised: object) -> None:
        super().__exit__(None, None, None)
        self._reader.close()


def thread_figures(
    readings: Sequence[ThreadReading], from_s: float, to_s: float
) -> ThreadFigures | None:
    """How often the threads on the critical path are delayed, interrupted, or lack share. Pure.

    It is judged as the controller ``dasec`` judges it, also where that does not run, and where it
    gives no answer.

    Args:
        readings: The readings of a run, by time.
        from_s: When the measured part begins.
        to_s: When it ends.

    Returns:
        The figures; ``None`` with fewer than two readings in the measured part.
    """
    inside = [reading for reading in readings if from_s <= reading.time_s <= to_s]
    if len(inside) < 2:
        return None
    counts = dict.fromkeys(("late", "interrupted", "lacking", "critical"), 0)
    run_us = wait_us = 0
    for before, now in pairwise(inside):
        period_us = int((now.time_s - before.time_s) * 1e6)
        periods = thread_periods(before.threads, now.threads, period_us)
        run_us += sum(period.run_us for period in periods)
        wait_us += sum(period.wait_us for period in periods)
        for kind, found in _judge(periods, period_us).items():
            counts[kind] += found
    length_us = (inside[-1].time_s - inside[0].time_s) * 1e6
    passed = len(inside) - 1
    return ThreadFigures(
        threads=max(len(reading.threads) for reading in inside),
        running=run_us / length_us,
        waiting=wait_us / length_us,
        critical=counts["critical"] / passed,
        delayed_share=counts["late"] / passed,
        interrupted_share=counts["interrupted"] / passed,
        lacking_share=counts["lacking"] / passed,
    )


def _judge(periods: Sequence[ThreadPeriod], period_us: int) -> dict[str, int]:
    """What one period shows: 1 where any thread on the critical path is affected."""
    path = critical_path(periods)
    critical = [period for period in periods if period.thread in path]
    late = [period for period in critical if delayed(period)]
    return {
        "critical": len(critical),
        "late": int(bool(late)),
        "interrupted": int(bool(conflicts(late, loads(periods), period_us))),
        "lacking": int(any(lacks_share(period) for period in critical)),
    }
