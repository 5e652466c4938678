"""From observed runs to a profile. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from stallward.agent.profile import (
    ApplicationProfile,
    Knee,
    ProfileRun,
    TouchedWindow,
)
from stallward.evaluation.blocks.calibration import AUTO_SLO_FACTOR
from stallward.lens.profile.observed import ObservedRun, Subject
from stallward.lens.profile.touched_pages import PERIOD_S, Touched

STALL_SHARE: Final = 0.02
"""An application that tells no work is disturbed if it waits for memory more of the time."""
_LEAST_EVENTS: Final = 100
"""A run with fewer faults, or pages read back, says nothing of what one costs."""
_DEMAND_POINTS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Undisturbed:
    """When an application counts as undisturbed."""

    tolerance: float
    """The largest slowdown, of an application without a latency target."""
    target_ms: float | None
    """The target that the p95 of its requests must keep."""

    def holds(self, run: ObservedRun, slowdown: float | None, stall_share: float | None) -> bool:
        """Whether it does in a run."""
        if run.killed:
            return False
        if self.target_ms is not None:
            return run.p95_ms is not None and run.p95_ms <= self.target_ms
        if slowdown is not None:
            return slowdown <= self.tolerance
        return (stall_share or 0.0) <= STALL_SHARE


def undisturbed(subject: Subject, alone: ObservedRun, tolerance: float) -> Undisturbed:
    """When an application counts as undisturbed, given its run with ample memory."""
    target_ms = subject.target_ms
    if target_ms is None and alone.p99_ms is not None:
        target_ms = AUTO_SLO_FACTOR * alone.p99_ms
    return Undisturbed(tolerance=tolerance, target_ms=target_ms)


def profile_run(run: ObservedRun, alone: ObservedRun, rule: Undisturbed) -> ProfileRun:
    """The figures of one run.

    Args:
        run: The run.
        alone: The run with ample memory.
        rule: When it counts as undisturbed.
    """
    stalled_us = run.grown(lambda one: one.psi.memory_some_us)
    cpu_us = run.grown(lambda one: one.cpu_usage_us)
    stall_share = None if stalled_us is None else min(stalled_us * 1e-6 / run.measured_s, 1.0)
    slowdown = None
    if run.s_per_work is not None and alone.s_per_work:
        slowdown = run.s_per_work / alone.s_per_work
    ample = run is alone
    worked = run.s_per_work is not None or alone.s_per_work is None
    return ProfileRun(
        limit_bytes=run.limit_bytes,
        ample=ample,
        measured_s=run.measured_s,
        mean_bytes=round(float(run.memory.mean())),
        peak_bytes=int(run.memory.max()),
        peak_swap_bytes=int(run.swap.max()),
        read_back_pages=run.read_back,
        major_faults=run.grown(lambda one: one.major_faults) or 0,
        cpu_s=None if cpu_us is None else cpu_us * 1e-6,
        stall_share=stall_share,
        s_per_work=run.s_per_work,
        p95_ms=run.p95_ms,
        slowdown=slowdown,
        killed=run.killed,
        fits=ample or (worked and rule.holds(run, slowdown, stall_share)),
    )


def working_set_bytes(runs: Sequence[ProfileRun]) -> int:
    """The smallest limit at which, and above which, all runs fit; at most what it used there.

    Args:
        runs: The runs, those with most memory first; the first has ample memory.
    """
    needed = runs[0].peak_bytes
    for run in runs[1:]:
        if not run.fits:
            break
        needed = min(run.limit_bytes, run.peak_bytes)
    return needed


def next_limit(runs: Sequence[ProfileRun], *, apart_bytes: int) -> int | None:
    """The limit to try next, between the smallest that fits and the largest that does not.

    Args:
        runs: The runs so far, those with most memory first.
        apart_bytes: The two may stay so far apart.

    Returns:
        ``None`` if they are that close, or nothing was too little yet.
    """
    high = runs[0].peak_bytes
    for run in runs[1:]:
        if not run.fits:
            return None if high - run.limit_bytes <= apart_bytes else (high + run.limit_bytes) // 2
        high = min(high, run.limit_bytes)
    return None


def fault_cost_us(runs: Sequence[ObservedRun]) -> float | None:
    """The time that some of the application waits for memory, for each major fault."""
    faults, stalled_us = 0, 0
    for run in runs:
        counted = run.grown(lambda one: one.major_faults)
        waited_us = run.grown(lambda one: one.psi.memory_some_us)
        if counted is not None and waited_us is not None and counted >= _LEAST_EVENTS:
            faults += counted
            stalled_us += waited_us
    return stalled_us / faults if faults else None


def primary_knee(runs: Sequence[ProfileRun]) -> Knee | None:
    """The maximum of lifetime by size over the runs with a limit that read pages back."""
    points = [
        (run.mean_bytes, run.cpu_s / run.read_back_pages)
        for run in runs
        if not run.ample and run.read_back_pages >= _LEAST_EVENTS and run.cpu_s and run.mean_bytes
    ]
    if not points:
        return None
    size, lifetime_s = max(points, key=lambda point: point[1] / point[0])
    return Knee(memory_bytes=size, lifetime_s=lifetime_s)


def touched_windows(windows: Sequence[Touched]) -> tuple[TouchedWindow, ...]:
    """What was touched, by the length of the window."""
    groups: dict[int, list[int]] = defaultdict(list)
    for one in windows:
        groups[one.looks].append(one.touched_bytes)
    return tuple(
        TouchedWindow(
            window_s=looks * PERIOD_S,
            mean_bytes=round(float(np.mean(sizes))),
            peak_bytes=max(sizes),
        )
        for looks, sizes in sorted(groups.items())
    )


def make_profile(
    subject: Subject,
    runs: Sequence[ObservedRun],
    watched: ObservedRun | None,
    *,
    tolerance: float,
    node: str,
    measured_at: str,
) -> ApplicationProfile:
    """The profile that follows from runs.

    Args:
        subject: What was profiled.
        runs: The runs; the first one had ample memory.
        watched: A run in which it was seen what it touches; ``None`` for none.
        tolerance: The largest slowdown at which the application counts as undisturbed.
        node: The machine, in words.
        measured_at: When, by ISO 8601.
    """
    alone = runs[0]
    ordered = sorted(runs, key=lambda run: -run.limit_bytes)
    rule = undisturbed(subject, alone, tolerance)
    figures = tuple(profile_run(run, alone, rule) for run in ordered)
    ran = [run for run in figures if run.ample or (not run.killed and _worked(run, alone))]
    demand = alone.demand()
    step = max(-(-len(demand) // _DEMAND_POINTS), 1)
    return ApplicationProfile(
        application=subject.application,
        source=subject.source,
        measured_at=measured_at,
        node=node,
        tolerance=tolerance,
        target_ms=rule.target_ms,
        work=subject.work,
        working_set_bytes=working_set_bytes(figures),
        least_bytes=min(run.limit_bytes for run in ran),
        alone_peak_bytes=int((alone.memory + alone.swap).max()),
        anonymous_bytes=alone.mean(lambda one: one.anon_bytes),
        file_bytes=alone.mean(lambda one: one.file_bytes),
        threads=max(run.threads for run in runs),
        alone_s=alone.s_per_work,
        fault_cost_us=fault_cost_us(ordered),
        knee=primary_knee(figures),
        demand=demand[::step],
        touched=touched_windows(() if watched is None else watched.windows),
        runs=figures,
    )


def _worked(run: ProfileRun, alone: ObservedRun) -> bool:
    """Whether it did some work, if it tells of work at all."""
    return run.s_per_work is not None or alone.s_per_work is None
