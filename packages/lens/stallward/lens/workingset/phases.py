"""Phases of locality and the transitions between them, seen in the size of the working set. Pure.

The detector is the one that controllers use on groups, a two-sided CUSUM of the logarithm of the
size. Its times are counted in windows here: what lasts for less than a window cannot be seen in
the working set, because pages of the phase before stay in it for so long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.observation.phase_change import (
    LEAST_BYTES,
    MAX_ELAPSED_S,
    PhaseDetector,
    PhaseThresholds,
)
from stallward.lens.workingset.sizes import SizeSeries

_SAMPLES: Final = 32
_FEW_PAGES: Final = 16
"""Added to every size, so that a page more or less of a few makes no phase."""
_NUMBERS: Final = PhaseThresholds(threshold_s=0.2, settle_s=0.5, averaged_s=10.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A time in which the working set keeps its size."""

    begin: int
    end: int
    """The time of its last sample."""
    mean_pages: float
    faults_per_million: float
    """Faults in a million units of time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """The phases of a run; what lies between two is a transition."""

    phases: tuple[Phase, ...]
    share: float
    """The share of the time that is in phases."""
    transition_faults_per_million: float | None
    """Faults in a million units of time outside of phases; ``None`` if all is in phases."""


def find_phases(series: SizeSeries) -> Phases:
    """The phases in a series of sizes."""
    series = _thinned(series)
    if series.times.size < 2:
        return Phases(phases=(), share=0.0, transition_faults_per_million=None)
    step = int(series.times[1] - series.times[0])
    elapsed = min(step / series.theta, MAX_ELAPSED_S)
    detector = PhaseDetector(_NUMBERS)
    inside = np.zeros(series.times.size, dtype=np.int64)  # 0 outside, else the number of a phase
    number = 0
    was_inside = False
    for place, pages in enumerate(series.pages.tolist()):
        # The detector takes no group of less than LEAST_BYTES seriously.
        ended = detector.update((pages + _FEW_PAGES) * LEAST_BYTES, elapsed)
        is_inside = detector.phase_bytes is not None
        if is_inside and (ended or not was_inside):
            number += 1
        inside[place] = number if is_inside else 0
        was_inside = is_inside
    phases = tuple(_phase(series, step, inside == one) for one in range(1, number + 1))
    outside = inside == 0
    moving = None
    if outside.any():
        moving = 1e6 * float(series.faults[outside].sum()) / (step * int(outside.sum()))
    return Phases(
        phases=phases,
        share=float(np.mean(~outside)),
        transition_faults_per_million=moving,
    )


def _thinned(series: SizeSeries) -> SizeSeries:
    """A series with at most ``_SAMPLES`` samples in a window."""
    if series.times.size < 2:
        return series
    step = int(series.times[1] - series.times[0])
    each = max(series.theta // (_SAMPLES * step), 1)
    count = series.times.size // each
    return SizeSeries(
        theta=series.theta,
        times=series.times[each - 1 :: each][:count],
        pages=series.pages[each - 1 :: each][:count],
        faults=series.faults[: count * each].reshape(count, each).sum(axis=1),
    )


def _phase(series: SizeSeries, step: int, inside: NDArray[np.bool_]) -> Phase:
    places = np.flatnonzero(inside)
    return Phase(
        begin=int(series.times[places[0]]) - step + 1,
        end=int(series.times[places[-1]]),
        mean_pages=float(series.pages[places].mean()),
        faults_per_million=1e6 * float(series.faults[places].sum()) / (step * places.size),
    )
