"""Estimates with bootstrap draws, from the blocks of a comparison. Pure.

With two rounds or more, rounds are resampled: a resample takes the same rounds for an arm, for
``alone``, for ``ample`` and for the background by itself, so that an impact includes the
variation of its references. With one round, windows inside each block are resampled instead,
which misses the variation between blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.evaluation.arms import ALONE, AMPLE, BACKGROUND
from stallward.evaluation.errors import MeasureError
from stallward.evaluation.measures.block_measures import (
    Array,
    BlockMeasures,
    slo_windows_met,
)
from stallward.evaluation.measures.bootstrap import (
    RESAMPLES,
    RUN_WINDOWS,
    Counts,
    block_counts,
    bootstrap_quantiles,
    bootstrap_ratio,
    moving_block_counts,
    pooled_quantiles,
)
from stallward.evaluation.measures.intervals import Scale, interval, share_difference_interval
from stallward.evaluation.results.comparison import Contrast, Spread
from stallward.evaluation.results.interval import Interval

# ---------- Contrasts between arms, and the variation of each arm from round to round. Pure.
# Overlapping intervals do not mean that two arms are alike, because both include the luck of the
# same rounds. A contrast is therefore resampled jointly: each resample takes the same rounds of both
# arms.


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A figure and its bootstrap draws, ``(resamples,)``."""

    value: float
    draws: Array
    trials: int = 0
    """Of a share, how many trials it is of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    """The estimates of one arm that arms are compared by."""

    p50_ms: Estimate
    p95_ms: Estimate
    p99_ms: Estimate
    mean_ms: Estimate
    background_work: Estimate
    slo_attainment: Estimate


def contrasts(
    arms: Mapping[str, Estimates], units: int, attainment_units: int, *, jointly: bool
) -> tuple[Contrast, ...]:
    """The contrast of every pair of arms, the first against the second.

    Args:
        arms: Label -> estimates; the same rows of draws are the same resamples.
        units: How many rounds (or runs of seconds) were resampled.
        attainment_units: The same number for attainment, whose windows may be longer than a
            second.
        jointly: Whether a row of draws holds the same rounds of every arm.
    """

    def ratio(one: Estimate, two: Estimate) -> Interval:
        with np.errstate(divide="ignore", invalid="ignore"):
            value = float(np.divide(one.value, two.value))
            draws = _paired(one.draws, two.draws, jointly=jointly, ratio=True)
        return interval(value, draws, blocks=units, scale=Scale.LOG)

    def difference(one: Estimate, two: Estimate) -> Interval:
        draws = _paired(one.draws, two.draws, jointly=jointly, ratio=False)
        shares = (one.value, one.trials), (two.value, two.trials)
        return share_difference_interval(*shares, draws, units=attainment_units)

    return tuple(
        Contrast(
            arm=arm,
            against=against,
            mean_ratio=ratio(one.mean_ms, two.mean_ms),
            p50_ratio=ratio(one.p50_ms, two.p50_ms),
            p95_ratio=ratio(one.p95_ms, two.p95_ms),
            p99_ratio=ratio(one.p99_ms, two.p99_ms),
            background_work_ratio=ratio(one.background_work, two.background_work),
            slo_attainment_difference=difference(one.slo_attainment, two.slo_attainment),
        )
        for (arm, one), (against, two) in combinations(arms.items(), 2)
    )


def _paired(one: Array, two: Array, *, jointly: bool, ratio: bool) -> Array:
    """The draws of a contrast; for independent resamples, the rows of one arm are shifted."""
    other = two if jointly else np.roll(two, two.size // 2)
    return np.asarray(one / other if ratio else one - other)


def spread(p99_ms: Array, ample_p99_ms: Array, met: Sequence[float]) -> Spread:
    """How much an arm varies over its rounds.

    Args:
        p99_ms: The p99 of each round.
        ample_p99_ms: The p99 with ample memory of each round.
        met: The share of windows that met the target, of each round.
    """
    impacts = p99_ms / ample_p99_ms - 1.0
    known = impacts[np.isfinite(impacts)]
    shares = np.asarray(met)[np.isfinite(met)]
    return Spread(
        impact_ample_p99_sd=float(known.std(ddof=1)) if known.size > 1 else None,
        impact_ample_p99_worst=float(known.max()) if known.size else None,
        slo_attainment_worst=float(shares.min()) if shares.size else None,
    )


QUANTILES: Final = (0.5, 0.95, 0.99)

Blocks = Sequence[BlockMeasures]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The target of each window."""

    ms: float
    quantile: float
    application: str = ""
    """Whose target it is, where there are several applications."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """All blocks of one condition, with the resamples of their units."""

    blocks: tuple[BlockMeasures, ...]
    counts: Counts
    """How often each resample draws each block, or each window of a single block."""
    rng: np.random.Generator

    def of(self, application: str) -> Condition:
        """The same with the requests of a further application."""
        return replace(self, blocks=tuple(one.others[application] for one in self.blocks))

    @property
    def single(self) -> bool:
        """Whether there is one block, so that windows are resampled."""
        return len(self.blocks) == 1

    @property
    def units(self) -> int:
        """The number of independent units: blocks, or runs of windows."""
        return self.counts.shape[1] // RUN_WINDOWS if self.single else len(self.blocks)

    def latencies(self) -> tuple[Array, ...]:
        """The latencies of the requests of each unit."""
        if self.single:
            return self.blocks[0].latency_windows()
        return tuple(block.latency_ms for block in self.blocks)

    def p99s_ms(self) -> Array:
        """The p99 of each block; shape ``(blocks,)``."""
        return np.array([pooled_quantiles([b.latency_ms], [0.99])[0] for b in self.blocks])

    def additive(self, name: str) -> tuple[Array, Array]:
        """The sum of a per-window quantity in each unit, and the seconds of each unit."""
        per_block = [np.asarray(getattr(block, name)) for block in self.blocks]
        if self.single:
            return per_block[0], np.ones(per_block[0].shape[0])
        seconds = np.array([float(len(windows)) for windows in per_block])
        return np.stack([windows.sum(axis=0) for windows in per_block]), seconds

    def latency(self) -> dict[str, Estimate]:
        """The quantiles and the mean of the latency of all requests, as :class:`Estimates` has them."""
        pools = self.latencies()
        values = pooled_quantiles(pools, QUANTILES)
        draws = bootstrap_quantiles(pools, QUANTILES, self.counts)
        sums = np.array([pool.sum() for pool in pools])
        sizes = np.array([float(pool.size) for pool in pools])
        mean = Estimate(
            value=float(sums.sum() / sizes.sum()) if sizes.sum() else np.nan,
            draws=bootstrap_ratio(sums, sizes, self.counts),
        )
        quantiles = {
            f"p{100 * quantile:g}_ms": Estimate(value=float(value), draws=column)
            for quantile, value, column in zip(QUANTILES, values, draws.T, strict=True)
        }
        return {**quantiles, "mean_ms": mean}

    def rates(self, name: str) -> tuple[Array, Array]:
        """The estimate ``(G,)`` and draws ``(B, G)`` of an additive quantity per second."""
        amounts, seconds = self.additive(name)
        amounts = amounts.reshape(seconds.size, -1)
        draws = [bootstrap_ratio(column, seconds, self.counts) for column in amounts.T]
        estimate = amounts.sum(axis=0) / seconds.sum()
        stacked = np.stack(draws, axis=1) if draws else np.zeros((self.counts.shape[0], 0))
        return estimate, stacked

    def mean(self, values: Sequence[Array]) -> Estimate:
        """The mean of a quantity that has one value per request or window.

        Args:
            values: The values of each block, in the order of time.
        """
        sums, sizes = (
            np.array([v.sum() for v in values]),
            np.array([float(v.size) for v in values]),
        )
        trials = int(sizes.sum())
        if trials == 0:
            return Estimate(value=np.nan, draws=np.full(self.counts.shape[0], np.nan))
        if self.single:
            counts = moving_block_counts(values[0].size, RUN_WINDOWS, RESAMPLES, self.rng)
            draws = bootstrap_ratio(values[0], np.ones(values[0].size), counts)
        else:
            draws = bootstrap_ratio(sums, sizes, self.counts)
        return Estimate(value=float(sums.sum() / trials), draws=draws, trials=trials)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationFigures:
    """The figures of one of several applications under one condition."""

    target: Target
    p95_ms: Estimate
    p99_ms: Estimate
    attainment: Estimate
    met: tuple[Array, ...]
    """For each block: for each window, 1 if it met the target, else 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionFigures:
    """The figures of one condition, computed once."""

    estimates: Estimates
    """The estimates that arms are compared by. Latencies are those of the first application."""
    met: tuple[Array, ...]
    """For each block: for each window, 1 if it met the target, else 0. With several applications,
    for each second, whether all of them met theirs."""
    applications: tuple[ApplicationFigures, ...] = ()
    """The figures of each of several applications; empty for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonEstimates:
    """The estimates of all conditions of a comparison."""

    target: Target
    """The target of each window, that of the first application."""
    arms: tuple[str, ...]
    """Labels of the arms."""
    conditions: Mapping[str, Condition]
    """``alone``, ``ample``, ``background`` and the arms."""
    figures: Mapping[str, ConditionFigures]
    """The figures of all conditions but ``background``."""

    @property
    def units(self) -> int:
        """The number of independent units of every condition: rounds, or runs of windows."""
        return self.conditions[ALONE].units

    @property
    def rounds(self) -> int:
        """The number of blocks of every condition."""
        return len(self.conditions[ALONE].blocks)


def estimate(
    blocks: Mapping[str, Blocks],
    arms: Sequence[str],
    *,
    slo_ms: float,
    seed: int,
    slo_quantile: float = 0.95,
    targets: Sequence[Target] = (),
) -> ComparisonEstimates:
    """Estimate everything a comparison measures.

    Args:
        blocks: The blocks of every condition, in the order of rounds.
        arms: Labels of the arms.
        slo_ms: The target.
        seed: Seeds the resampling. Comparisons with the same seed and the same number of rounds
            have the same resamples in the same rows.
        slo_quantile: The quantile that has to meet the target in each window.
        targets: Those of all applications, where there are several, in their order.

    Raises:
        MeasureError: If a condition has no block, or no request was answered alone or ample.
    """
    conditions = _conditions(blocks, arms, seed)
    for name in (ALONE, AMPLE):
        if not any(block.ok.any() for block in conditions[name].blocks):
            raise MeasureError(
                f"No request was answered in the blocks of {name!r}.",
                next_step="Check that the application and its load generator run.",
            )
    slo = Target(ms=slo_ms, quantile=slo_quantile)
    own = conditions[BACKGROUND].rates("units")
    figures = {
        name: _figures(conditions[name], own, slo, targets) for name in (ALONE, AMPLE, *arms)
    }
    return ComparisonEstimates(
        target=slo, arms=tuple(arms), conditions=conditions, figures=figures
    )


def _conditions(
    blocks: Mapping[str, Blocks], arms: Sequence[str], seed: int
) -> dict[str, Condition]:
    names = (ALONE, AMPLE, BACKGROUND, *arms)
    for name in names:
        if not blocks.get(name):
            raise MeasureError(f"There is no finished block of {name!r}.")
    rng = np.random.default_rng(seed)
    rounds = min(len(blocks[name]) for name in names)
    joint = block_counts(rounds, RESAMPLES, rng)
    conditions = {}
    for name in names:
        own = tuple(blocks[name][:rounds])
        counts = joint
        if rounds == 1:
            counts = moving_block_counts(own[0].windows, RUN_WINDOWS, RESAMPLES, rng)
        conditions[name] = Condition(blocks=own, counts=counts, rng=rng)
    return conditions


def _figures(
    condition: Condition, own: tuple[Array, Array], slo: Target, targets: Sequence[Target]
) -> ConditionFigures:
    applications = tuple(
        _application(condition if index == 0 else condition.of(target.application), target)
        for index, target in enumerate(targets)
    )
    met = _all_met(condition, targets) if targets else _windows_met(condition, slo)
    estimates = Estimates(
        **condition.latency(),
        background_work=_work(condition, own),
        slo_attainment=condition.mean(met),
    )
    return ConditionFigures(estimates=estimates, met=met, applications=applications)


def _application(condition: Condition, target: Target) -> ApplicationFigures:
    latency, met = condition.latency(), _windows_met(condition, target)
    return ApplicationFigures(
        target=target,
        p95_ms=latency["p95_ms"],
        p99_ms=latency["p99_ms"],
        attainment=condition.mean(met),
        met=met,
    )


def _all_met(condition: Condition, targets: Sequence[Target]) -> tuple[Array, ...]:
    """For each block: for each second, 1 if all applications met their targets, else 0."""
    together = []
    for block in condition.blocks:
        every = (block, *(block.others[target.application] for target in targets[1:]))
        each = [_met(*pair, by_second=True) for pair in zip(every, targets, strict=True)]
        together.append(np.logical_and.reduce(each).astype(np.float64))
    return tuple(together)


def _met(block: BlockMeasures, slo: Target, *, by_second: bool = False) -> NDArray[np.bool_]:
    return slo_windows_met(
        block.scheduled_s,
        block.latency_ms,
        block.ok,
        start_s=0.0,
        end_s=block.duration_s,
        slo_ms=slo.ms,
        quantile=slo.quantile,
        by_second=by_second,
    )


def _windows_met(condition: Condition, slo: Target) -> tuple[Array, ...]:
    return tuple(_met(block, slo).astype(np.float64) for block in condition.blocks)


def _work(arm: Condition, own: tuple[Array, Array]) -> Estimate:
    """The mean over groups of their rate, relative to their rate with the node to themselves."""
    rate, draws = arm.rates("units")
    usable = known_groups(rate, own[0]) if rate.size == own[0].size else np.zeros(0, dtype=bool)
    if not usable.any():  # alone: no background ran
        return Estimate(value=np.nan, draws=np.full(draws.shape[0], np.nan))
    with np.errstate(divide="ignore", invalid="ignore"):
        resampled = (draws[:, usable] / own[1][:, usable]).mean(axis=1)
    return Estimate(value=float((rate[usable] / own[0][usable]).mean()), draws=resampled)


def known_groups(rate_per_s: Array, own_per_s: Array) -> NDArray[np.bool_]:
    """The groups whose rate and own rate are known, so that their ratio is."""
    return np.isfinite(rate_per_s) & np.isfinite(own_per_s) & (own_per_s > 0)
