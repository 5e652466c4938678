"""From finished runs to figures with intervals. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.evaluation.measures.bootstrap import (
    RESAMPLES,
    Counts,
    block_counts,
    bootstrap_quantiles,
    bootstrap_ratio,
    pooled_quantiles,
)
from stallward.evaluation.measures.intervals import Scale, interval
from stallward.evaluation.results.interval import UNKNOWN, Interval
from stallward.papers.experiments.latd.result import (
    LatdRun,
    Lookups,
    MemorySeries,
    ScenarioFigures,
    SettingFigures,
    SweepPoint,
)
from stallward.papers.experiments.latd.workload import MIB, ZONE_MIB

Array = NDArray[np.float64]
QUANTILES: Final = (0.5, 0.95, 0.98, 0.99)
"""The percentiles that the thesis plots, and the p99."""
_P95: Final = QUANTILES.index(0.95)


def setting_figures(
    runs: Sequence[LatdRun], isolated: Sequence[LatdRun], seed: int
) -> SettingFigures:
    """The figures of one setting.

    Args:
        runs: Its runs.
        isolated: The runs of the detector alone.
        seed: Seeds the resampling.
    """
    rng = np.random.default_rng(seed)
    pools, counts = _pools(runs), block_counts(len(runs), RESAMPLES, rng)
    values = pooled_quantiles(pools, QUANTILES)
    draws = bootstrap_quantiles(pools, QUANTILES, counts)
    p50, p95, p98, p99 = (
        interval(float(values[i]), draws[:, i], blocks=len(runs), scale=Scale.LOG)
        for i in range(len(QUANTILES))
    )
    memory = [run.memory for run in runs]
    works = [run.work_mib_per_s for run in runs if run.work_mib_per_s is not None]
    return SettingFigures(
        runs=len(runs),
        images=sum(len(run.latency_ms) for run in runs),
        p50_ms=p50,
        p95_ms=p95,
        p98_ms=p98,
        p99_ms=p99,
        times_isolated=(
            Interval(value=1.0, low=None, high=None)
            if runs == isolated
            else _times(float(values[_P95]), draws[:, _P95], len(runs), isolated, rng)
        ),
        miss_share=_miss_share([run.detector_lookups for run in runs], counts),
        zone_miss_share=_miss_share([run.zone_lookups for run in runs], counts),
        detector_bytes=_before_and_least(memory, [one.detector_bytes for one in memory]),
        cache_bytes=_before_and_least(memory, [one.cache_bytes for one in memory]),
        hog_bytes=(
            _mean([max(one.hog_bytes, default=0) for one in memory]),
            _mean([one.hog_bytes[-1] if one.hog_bytes else 0 for one in memory]),
        ),
        used_share_most=max(max(one.used_bytes, default=0) for one in memory) / (ZONE_MIB * MIB),
        work_mib_per_s=float(np.mean(works)) if works else None,
        stopped_share=float(np.mean([run.stopped_share for run in runs])),
        terminated=sum(run.terminated > 0 for run in runs),
    )


def _pools(runs: Sequence[LatdRun]) -> list[Array]:
    return [np.array(run.latency_ms, dtype=np.float64) for run in runs]


def _times(
    p95_ms: float,
    draws: Array,
    blocks: int,
    isolated: Sequence[LatdRun],
    rng: np.random.Generator,
) -> Interval:
    """A p95 as a multiple of that of the detector alone, whose runs are resampled as well."""
    if not isolated:
        return UNKNOWN
    pools = _pools(isolated)
    counts = block_counts(len(isolated), RESAMPLES, rng)
    alone_ms = float(pooled_quantiles(pools, QUANTILES)[_P95])
    alone_draws = bootstrap_quantiles(pools, QUANTILES, counts)[:, _P95]
    return interval(
        p95_ms / alone_ms, draws / alone_draws, blocks=min(blocks, len(isolated)), scale=Scale.LOG
    )


def _miss_share(lookups: Sequence[Lookups | None], counts: Counts) -> Interval:
    """The misses of all runs over their lookups; unknown where a run did not count."""
    known = [one for one in lookups if one is not None]
    if len(known) < len(lookups) or not sum(one.total for one in known):
        return UNKNOWN
    misses = np.array([one.misses for one in known], dtype=np.float64)
    total = np.array([one.total for one in known], dtype=np.float64)
    return interval(
        float(misses.sum() / total.sum()),
        bootstrap_ratio(misses, total, counts),
        blocks=len(known),
        scale=Scale.SHARE,
    )


def _before_and_least(
    memory: Sequence[MemorySeries], series: Sequence[Sequence[int]]
) -> tuple[int, int]:
    """A size just before the hog starts, and at its least after that: means over the runs.

    Without a hog it is the size in the middle of the run, and at its least after that.
    """
    before, least = [], []
    for one, values in zip(memory, series, strict=True):
        if not values:
            continue
        hog = np.asarray(one.hog_bytes)
        at = int(np.argmax(hog > 0)) if (hog > 0).any() else len(values) // 2
        before.append(values[max(at - 1, 0)])
        least.append(min(values[at:]))
    return (_mean(before), _mean(least))


def _mean(values: Sequence[int]) -> int:
    return round(float(np.mean(values))) if values else 0


def scenario_figures(
    runs: Sequence[LatdRun], isolated: Sequence[LatdRun], seed: int
) -> ScenarioFigures:
    """The figures of a scenario, with what its pictures are drawn from."""
    return ScenarioFigures(
        figures=setting_figures(runs, isolated, seed),
        latency_ms=tuple(value for run in runs for value in run.latency_ms),
        request_s=runs[0].request_s,
        memory=runs[0].memory,
    )


def sweep_points(
    by_value: Mapping[float, Sequence[LatdRun]], isolated: Sequence[LatdRun], seed: int
) -> tuple[SweepPoint, ...]:
    """The points of a sweep, by value; values without a finished run are left out."""
    return tuple(
        SweepPoint(value=value, figures=setting_figures(runs, isolated, seed))
        for value, runs in sorted(by_value.items())
        if runs
    )
