"""Cuts a recording of the arm ``border`` into its levels, with the figures of each. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.env.recording.recording import Recording
from stallward.env.recording.run_info import RunInfo
from stallward.evaluation.arms import parse_arms
from stallward.evaluation.errors import MeasureError
from stallward.evaluation.measures.block_measures import (
    BlockMeasures,
    BlockSeries,
    reduce,
    series_of,
    slo_windows_met,
)
from stallward.research.border.controller import Schedule

Array = NDArray[np.float64]
SETTLE_S: Final = 15.0
"""Memory takes this long to follow the limits, so the start of each hold is left out."""
_NAME: Final = "border"


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelFigures:
    """What one level of the border did, over all times at which it was held."""

    label: str
    held_s: float
    """How long it was measured, without the time to settle."""
    requests: int
    p95_ms: float
    p99_ms: float
    met_ratio: float
    """The share of the windows in which the recording's target was met, as in comparisons."""
    work_per_s: tuple[float, ...]
    """The work of each background group, in its own units."""
    paused_ratio: float
    swap_in_pages_per_s: float
    swap_out_pages_per_s: float
    stall_ratio: float
    """The share of the time in which requests of the application waited for memory."""
    held_bytes: float
    """What the application held in memory, on average."""
    swapped_bytes: float
    """What it had in swap, on average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hold:
    """One time at which a level was held."""

    level: int
    start_s: float
    end_s: float


def figures_of(recording: Recording, *, settle_s: float = SETTLE_S) -> tuple[LevelFigures, ...]:
    """The figures of each level that was held, in the order in which the arm names them.

    Args:
        recording: A recording of the arm ``border``.
        settle_s: How much of the start of each hold is left out.

    Raises:
        ControllerError: If the arm has an argument that is out of range.
        MeasureError: If it is a recording of another arm, or no level was held long enough.
    """
    arm = parse_arms(recording.run.arm)[0]
    if arm.controller != _NAME:
        raise MeasureError(
            f"{recording.path} is a recording of {recording.run.arm}, not of {_NAME}.",
            next_step="Measure with `stallward border SCENARIO`.",
        )
    schedule = Schedule(arm.arguments, recording.run.seed)
    holds = [
        hold for hold in _holds(recording, schedule, settle_s) if hold.end_s > hold.start_s + 1
    ]
    if not holds:
        raise MeasureError(
            f"No level was held for longer than the {settle_s:g} s in which memory settles.",
            next_step="Hold the levels longer.",
        )
    series = series_of(recording)
    return tuple(
        _figures(recording, series, label, [hold for hold in holds if hold.level == level])
        for level, label in enumerate(level.label for level in schedule.levels)
        if any(hold.level == level for hold in holds)
    )


def _holds(recording: Recording, schedule: Schedule, settle_s: float) -> list[_Hold]:
    """When each level was held: the schedule of the run, followed once more."""
    run = recording.run
    time_s = np.asarray(recording.actions["time_s"], dtype=np.float64)
    levels = [schedule.at(float(at))[0] for at in time_s]
    changes = [i for i in range(len(levels)) if i == 0 or levels[i] != levels[i - 1]]
    holds = []
    for first, following in zip(changes, [*changes[1:], None], strict=True):
        end_s = run.end_s if following is None else float(time_s[following])
        start_s = max(float(time_s[first]) + settle_s, run.measured_from_s)
        holds.append(_Hold(level=levels[first], start_s=start_s, end_s=min(end_s, run.end_s)))
    return holds


def _figures(
    recording: Recording, series: BlockSeries, label: str, holds: Sequence[_Hold]
) -> LevelFigures:
    parts = [reduce(replace(series, start_s=hold.start_s, end_s=hold.end_s)) for hold in holds]
    latency_ms = np.concatenate([part.latency_ms for part in parts])
    held_s = sum(part.windows for part in parts)
    units = np.concatenate([part.units for part in parts])
    tick_s = series.tick_s
    inside = np.zeros(tick_s.size, dtype=bool)
    for hold in holds:
        inside |= (tick_s >= hold.start_s) & (tick_s < hold.end_s)
    return LevelFigures(
        label=label,
        held_s=float(held_s),
        requests=int(latency_ms.size),
        p95_ms=_quantile(latency_ms, 0.95),
        p99_ms=_quantile(latency_ms, 0.99),
        met_ratio=_met_ratio(parts, recording.run),
        work_per_s=tuple(float(value) for value in units.sum(axis=0) / held_s),
        paused_ratio=float(sum(part.paused_s.sum() for part in parts) / held_s),
        swap_in_pages_per_s=_growth_per_s(recording, "node_swap_in_pages", tick_s, holds),
        swap_out_pages_per_s=_growth_per_s(recording, "node_swap_out_pages", tick_s, holds),
        stall_ratio=float(sum(np.nansum(part.psi_some_s) for part in parts) / held_s),
        held_bytes=_mean(recording.tick("protected_memory_usage_bytes")[inside]),
        swapped_bytes=_mean(recording.tick("protected_swap_bytes")[inside]),
    )


def _quantile(values: Array, q: float) -> float:
    return float(np.quantile(values, q)) if values.size else float("nan")


def _met_ratio(parts: Sequence[BlockMeasures], run: RunInfo) -> float:
    """The share of the windows in which the target was met."""
    met = np.concatenate(
        [
            slo_windows_met(
                part.scheduled_s,
                part.latency_ms,
                part.ok,
                start_s=0.0,
                end_s=part.duration_s,
                slo_ms=run.slo_ms,
                quantile=run.slo_quantile,
            )
            for part in parts
        ]
    )
    return float(met.mean()) if met.size else float("nan")


def _mean(values: Array) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else float("nan")


def _growth_per_s(
    recording: Recording, column: str, tick_s: Array, holds: Sequence[_Hold]
) -> float:
    """How fast a counter grew while the level was held."""
    values = recording.tick(column)
    known = np.isfinite(values)
    if known.sum() < 2:
        return float("nan")
    grown = seconds = 0.0
    for hold in holds:
        first, last = np.interp([hold.start_s, hold.end_s], tick_s[known], values[known])
        grown += last - first
        seconds += hold.end_s - hold.start_s
    return grown / seconds


def work_ratios(figures: Sequence[LevelFigures], base: LevelFigures) -> tuple[float, ...]:
    """The work at each level over that at ``base``: the geometric mean over the groups.

    A mean hides that one group starves. Groups that did no work at ``base`` are left out; a level
    at which one of the others did none has 0.
    """
    ratios = []
    for level in figures:
        each = [
            work / of_base
            for work, of_base in zip(level.work_per_s, base.work_per_s, strict=True)
            if of_base > 0.0
        ]
        ratios.append(geometric_mean(each) if each and min(each) > 0.0 else 0.0)
    return tuple(ratios)
