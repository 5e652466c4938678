"""From an analysis to its figures. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.lens.workingset.analysis import Analysis
from stallward.lens.workingset.lifetime import (
    Lifetime,
    LifetimePoint,
    inflection,
    least,
    lru_lifetime,
    mean_space_time,
    primary_knee,
    vmin_lifetime,
    working_set_lifetime,
)
from stallward.lens.workingset.phases import find_phases
from stallward.lens.workingset.reference_map import WHOLE
from stallward.lens.workingset.report.result import (
    CurvePoint,
    ModeFigures,
    PhaseFigures,
    PolicyFigures,
    TraceSettings,
    WindowFigures,
    WorkingsetResult,
)
from stallward.lens.workingset.size_distribution import size_distribution
from stallward.lens.workingset.sizes import SizeSeries

WORKING_SET: Final = "working-set"
LRU: Final = "lru"
VMIN: Final = "vmin"
_CURVE_POINTS: Final = 400

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What a fault costs, in the unit of the clock."""

    fault_time: float = 100_000.0
    """D; 100,000 instructions are about 0.1 ms, what a fast disk takes."""
    overhead: float = 0.0
    """gamma under LRU."""
    working_set_overhead: float = 0.0
    """gamma under the working-set policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyCurve:
    """All points of a policy."""

    function: Lifetime
    faults: Array
    standard_errors: Array
    space_time: Array

    def point(self, place: int) -> CurvePoint:
        """One of them."""
        return CurvePoint(
            parameter=int(self.function.parameter[place]),
            mean_pages=float(self.function.mean_pages[place]),
            faults=float(self.faults[place]),
            standard_error=float(self.standard_errors[place]),
            lifetime=float(self.function.lifetime[place]),
            space_time=float(self.space_time[place]),
        )

    def at(self, point: LifetimePoint) -> CurvePoint:
        """The point with the same parameter."""
        return self.point(int(np.searchsorted(self.function.parameter, point.parameter)))


def policy_curves(analysis: Analysis, costs: Costs) -> dict[str, PolicyCurve]:
    """Policy -> its curve."""
    found = {
        WORKING_SET: _curve(
            working_set_lifetime(analysis.working_set),
            analysis.working_set.faults.astype(np.float64),
            np.zeros(analysis.working_set.faults.size),
            costs.fault_time + costs.working_set_overhead,
        )
    }
    found[VMIN] = _curve(
        vmin_lifetime(analysis.working_set),
        found[WORKING_SET].faults,
        found[WORKING_SET].standard_errors,
        costs.fault_time + costs.overhead,
    )
    lru = analysis.lru
    if lru is not None:
        found[LRU] = _curve(
            lru_lifetime(lru), lru.faults, lru.standard_errors, costs.fault_time + costs.overhead
        )
    return found


def _curve(function: Lifetime, faults: Array, errors: Array, waiting: float) -> PolicyCurve:
    return PolicyCurve(
        function=function,
        faults=faults,
        standard_errors=errors,
        space_time=mean_space_time(function, waiting),
    )


def workingset_result(analysis: Analysis, costs: Costs, *, source: str) -> WorkingsetResult:
    """The figures of an analysis.

    Args:
        analysis: The analysis.
        costs: What a fault costs.
        source: Where the trace came from, in words.
    """
    curves = policy_curves(analysis, costs)
    settings = analysis.settings
    whole = settings.zoom == WHOLE
    return WorkingsetResult(
        source=source,
        settings=TraceSettings(
            page_bytes=settings.pages.page_bytes,
            classes=settings.pages.classes,
            clock=settings.pages.clock,
            lru_rate=None if analysis.lru is None else analysis.lru.rate,
            lru_pages=settings.lru_pages,
            fault_time=costs.fault_time,
            overhead=costs.overhead,
            working_set_overhead=costs.working_set_overhead,
            zoom=None if whole else (hex(settings.zoom.begin), hex(settings.zoom.end)),
        ),
        error=None if analysis.error is None else str(analysis.error),
        lines=analysis.lines,
        references=analysis.references,
        time=analysis.time,
        pages=analysis.pages,
        policies={name: _policy(curve, analysis.pages) for name, curve in curves.items()},
        break_even_overhead=_break_even(curves, costs),
        windows=tuple(_window(one, analysis, costs) for one in analysis.sizes),
    )


def _policy(curve: PolicyCurve, pages: int) -> PolicyFigures:
    knee, cheapest = primary_knee(curve.function), least(curve.function, curve.space_time)
    warm = _warm_knee(curve, pages)
    bend = inflection(curve.function)
    size = curve.function.parameter.size
    places = np.geomspace(1, size, _CURVE_POINTS).round().astype(np.int64) - 1
    return PolicyFigures(
        knee=curve.at(knee),
        knee_at_end=curve.at(knee).faults <= pages,
        warm_knee=None if warm is None else curve.at(warm),
        inflection=None if bend is None else curve.at(bend),
        cheapest=curve.at(cheapest),
        curve=tuple(curve.point(int(place)) for place in np.unique(places)),
    )


def _warm_knee(curve: PolicyCurve, pages: int) -> LifetimePoint | None:
    """The primary knee if first touches did not count as faults; ``None`` if there are no others."""
    again = curve.faults - pages
    some = again > 0.0
    if not some.any():
        return None
    whole = curve.function
    time = whole.lifetime * np.maximum(curve.faults, 1.0)
    lifetime = time[some] / np.maximum(again[some], 1.0)
    return primary_knee(Lifetime(whole.parameter[some], whole.mean_pages[some], lifetime))


def _break_even(curves: dict[str, PolicyCurve], costs: Costs) -> float | None:
    """The overhead at which the cheapest windows cost what the cheapest memory under LRU does."""
    if LRU not in curves:
        return None
    target = float(curves[LRU].space_time.min())
    function = curves[WORKING_SET].function
    waiting = (target / function.mean_pages - 1.0) * function.lifetime
    return float(np.max(waiting)) - costs.fault_time


def _window(series: SizeSeries, analysis: Analysis, costs: Costs) -> WindowFigures:
    faults, mean = analysis.working_set.at(series.theta)
    time = max(analysis.time, 1)
    waiting = costs.fault_time + costs.working_set_overhead
    last = int(series.pages[-1]) if series.pages.size else 0
    missing = faults - float(series.faults.sum())  # those after the last sample
    at_faults = float(np.sum(series.faults * series.pages)) + missing * last
    distribution, found = size_distribution(series.pages), find_phases(series)
    return WindowFigures(
        theta=series.theta,
        mean_pages=mean,
        peak_pages=int(series.pages.max(initial=0)),
        faults=faults,
        sample_time=int(series.times[0]) if series.times.size else time,
        space_time=mean + waiting * at_faults / time,
        space_time_in_mean=mean + waiting * mean * faults / time,
        modes=tuple(ModeFigures(pages=m.pages, share=m.share) for m in distribution.modes),
        phases=tuple(
            PhaseFigures(
                begin=one.begin,
                end=one.end,
                mean_pages=one.mean_pages,
                faults_per_million=one.faults_per_million,
            )
            for one in found.phases
        ),
        phase_share=found.share,
        transition_faults_per_million=found.transition_faults_per_million,
    )
