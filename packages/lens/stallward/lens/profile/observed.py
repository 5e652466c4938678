"""One run of an application with one memory limit, as it was observed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stallward.agent.profile import DemandPoint, WorkUnit
from stallward.agent.sample import GroupSample
from stallward.lens.profile.touched_pages import Touched


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedRun:
    """What a run showed."""

    limit_bytes: int
    begin_s: float
    """CLOCK_MONOTONIC when it began to count."""
    end_s: float
    s_per_work: float | None
    """The time for its work; ``None`` if it did none, or tells none."""
    p95_ms: float | None
    """The p95 of its requests, if it has any."""
    p99_ms: float | None
    killed: bool
    samples: tuple[tuple[float, GroupSample], ...]
    """When, by CLOCK_MONOTONIC, and the counters of its group."""
    threads: int
    windows: tuple[Touched, ...] = ()
    """What it touched, if that was looked at."""

    @property
    def measured_s(self) -> float:
        """How long it counted."""
        return self.end_s - self.begin_s

    def grown(self, count: Callable[[GroupSample], int | None]) -> int | None:
        """By how much a counter grew; ``None`` if it is not known."""
        known = [value for _, one in self.samples if (value := count(one)) is not None]
        return max(known[-1] - known[0], 0) if len(known) > 1 else None

    @property
    def read_back(self) -> int:
        """Pages that had been taken and were needed again."""
        return self.grown(lambda one: one.refaulted_pages) or 0

    @property
    def memory(self) -> NDArray[np.float64]:
        """The memory of the group, in bytes."""
        return self._sizes(lambda one: one.memory_usage_bytes)

    @property
    def swap(self) -> NDArray[np.float64]:
        """What it had in swap, in bytes."""
        return self._sizes(lambda one: one.swap_bytes)

    def mean(self, value: Callable[[GroupSample], int | None]) -> int:
        """The mean of a size over the run; 0 where it is not known."""
        return round(float(self._sizes(value).mean()))

    def _sizes(self, value: Callable[[GroupSample], int | None]) -> NDArray[np.float64]:
        """A size in all samples; 0 where it is not known. There is always one."""
        return np.array([value(one) or 0 for _, one in self.samples] or [0], dtype=np.float64)

    def demand(self) -> tuple[DemandPoint, ...]:
        """Its memory over time."""
        return tuple(
            DemandPoint(
                time_s=round(max(time_s - self.begin_s, 0.0), 3),
                memory_bytes=one.memory_usage_bytes or 0,
                anonymous_bytes=one.anon_bytes or 0,
                file_bytes=one.file_bytes or 0,
                swap_bytes=one.swap_bytes or 0,
            )
            for time_s, one in self.samples
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is profiled."""

    application: str
    source: str
    work: WorkUnit
    target_ms: float | None = None
    """The latency target of its requests; ``None`` if it follows from the run with ample memory,
    or there is none."""
    ample_bytes: int
    """A limit with which it has memory enough."""
    floor_bytes: int
    """A limit below which nothing is tried."""
    run: Callable[[int, bool], ObservedRun]
    """Runs it under a limit in bytes; with ``True`` it is watched which memory it touches."""
