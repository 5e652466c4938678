"""From finished runs to figures with intervals. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields

import numpy as np

from stallward.evaluation.replication.dasec.reduce import P50, P99
from stallward.evaluation.replication.dasec.result import (
    ArmSummary,
    CellFigures,
    DasecRun,
    RatioFigures,
    ThreadFigures,
)
from stallward.evaluation.replication.dasec.steps import UNMANAGED
from stallward.evaluation.replication.figures import one_minus, over_cases
from stallward.evaluation.results.interval import Interval

Runs = Mapping[int, DasecRun]
"""Number of a repeat -> its run. Runs of the same repeat have the same arrivals."""


def cell_figures(runs: Runs, alone: Runs, unmanaged: Runs, seed: int) -> CellFigures:
    """The figures of one application at one consolidation ratio under one controller.

    Latencies and ratios are geometric means over the repeats, because latencies vary by factors.

    Args:
        runs: Its runs, one at least.
        alone: Those of the application alone.
        unmanaged: Those at the same ratio without control.
        seed: Seeds the resampling.
    """

    def over(of: Callable[[DasecRun], float | None], base: Runs | None = None) -> Interval:
        if base is runs:
            return Interval(value=1.0, low=None, high=None)
        pairs = [(of(run), 1.0 if base is None else of(base[i])) for i, run in _shared(runs, base)]
        return over_cases([a / b if a and b else None for a, b in pairs], seed)

    served = [run.answered_per_s for run in alone.values()]
    return CellFigures(
        runs=len(runs),
        mean_ms=over(_mean_ms),
        p50_ms=over(lambda run: run.quantiles_ms[P50]),
        p99_ms=over(_p99_ms),
        mean_times_alone=over(_mean_ms, alone),
        p99_times_alone=over(_p99_ms, alone),
        mean_ratio=over(_mean_ms, unmanaged),
        p99_ratio=over(_p99_ms, unmanaged),
        answered_share=(
            float(np.mean([run.answered_per_s for run in runs.values()]) / np.mean(served))
            if served
            else 0.0
        ),
        batch_ratio=over(lambda run: run.batch_per_s, unmanaged),
        threads=_mean_threads([run.threads for run in runs.values() if run.threads is not None]),
    )


def _shared(runs: Runs, base: Runs | None) -> list[tuple[int, DasecRun]]:
    return [(i, run) for i, run in sorted(runs.items()) if base is None or i in base]


def _mean_ms(run: DasecRun) -> float:
    return run.mean_ms


def _p99_ms(run: DasecRun) -> float:
    return run.quantiles_ms[P99]


def _mean_threads(found: Sequence[ThreadFigures]) -> ThreadFigures | None:
    if not found:
        return None
    means = {
        field.name: float(np.mean([getattr(one, field.name) for one in found]))
        for field in fields(ThreadFigures)
    }
    return ThreadFigures(**means)


def summarise(beside: Mapping[str, Sequence[RatioFigures]], seed: int) -> dict[str, ArmSummary]:
    """Each controller over all applications and ratios that it ran in.

    Args:
        beside: Name of an application -> its figures at each ratio.
        seed: Seeds the resampling.
    """
    cells: dict[str, list[CellFigures]] = {}
    for by_ratio in beside.values():
        for at in by_ratio:
            for arm, figures in at.arms.items():
                if arm != UNMANAGED and figures.mean_ratio.value is not None:
                    cells.setdefault(arm, []).append(figures)

    def lower(found: Sequence[CellFigures], of: Callable[[CellFigures], Interval]) -> Interval:
        return one_minus(over_cases([of(one).value for one in found], seed))

    return {
        arm: ArmSummary(
            cases=len(found),
            mean_lower=lower(found, lambda one: one.mean_ratio),
            p99_lower=lower(found, lambda one: one.p99_ratio),
            batch_lower=lower(found, lambda one: one.batch_ratio),
        )
        for arm, found in cells.items()
    }
