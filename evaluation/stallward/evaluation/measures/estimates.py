"""Estimates with bootstrap draws, from the blocks of a comparison. Pure.

With two rounds or more, rounds are resampled: a resample takes the same rounds for an arm, for
``alone``, for ``ample`` and for the background by itself, so that an impact includes the
variation of its references. With one round, windows inside each block are resampled instead,
which misses the variation between blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.evaluation.arms import ALONE, AMPLE, BACKGROUND
from stallward.evaluation.errors import MeasureError
from stallward.evaluation.measures.block_measures import Array, BlockMeasures
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
from stallward.evaluation.measures.contrasts import Estimate, Estimates
from stallward.evaluation.measures.slo import slo_seconds_met, slo_windows_met

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
class Latency:
    """The latency of all requests of one condition."""

    p50_ms: Estimate
    p95_ms: Estimate
    p99_ms: Estimate
    mean_ms: Estimate


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

    def latency(self) -> Latency:
        """The quantiles and the mean of the latency of all requests."""
        pools = self.latencies()
        values = pooled_quantiles(pools, QUANTILES)
        draws = bootstrap_quantiles(pools, QUANTILES, self.counts)
        p50, p95, p99 = (
            Estimate(value=float(value), draws=column)
            for value, column in zip(values, draws.T, strict=True)
        )
        sums = np.array([pool.sum() for pool in pools])
        sizes = np.array([float(pool.size) for pool in pools])
        mean = Estimate(
            value=float(sums.sum() / sizes.sum()) if sizes.sum() else np.nan,
            draws=bootstrap_ratio(sums, sizes, self.counts),
        )
        return Latency(p50_ms=p50, p95_ms=p95, p99_ms=p99, mean_ms=mean)

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
        if sizes.sum() == 0.0:
            return Estimate(value=np.nan, draws=np.full(self.counts.shape[0], np.nan))
        if self.single:
            counts = moving_block_counts(values[0].size, RUN_WINDOWS, RESAMPLES, self.rng)
            draws = bootstrap_ratio(values[0], np.ones(values[0].size), counts)
        else:
            draws = bootstrap_ratio(sums, sizes, self.counts)
        return Estimate(value=float(sums.sum() / sizes.sum()), draws=draws)


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
    latency = condition.latency()
    met = _all_met(condition, targets) if targets else _met(condition, slo)
    estimates = Estimates(
        p50_ms=latency.p50_ms,
        p95_ms=latency.p95_ms,
        p99_ms=latency.p99_ms,
        mean_ms=latency.mean_ms,
        background_work=_work(condition, own),
        slo_attainment=condition.mean(met),
    )
    return ConditionFigures(estimates=estimates, met=met, applications=applications)


def _application(condition: Condition, target: Target) -> ApplicationFigures:
    latency, met = condition.latency(), _met(condition, target)
    return ApplicationFigures(
        target=target,
        p95_ms=latency.p95_ms,
        p99_ms=latency.p99_ms,
        attainment=condition.mean(met),
        met=met,
    )


def _all_met(condition: Condition, targets: Sequence[Target]) -> tuple[Array, ...]:
    """For each block: for each second, 1 if all applications met their targets, else 0."""
    together = []
    for block in condition.blocks:
        each = [
            slo_seconds_met(
                one.scheduled_s,
                one.latency_ms,
                one.ok,
                start_s=0.0,
                end_s=one.duration_s,
                slo_ms=target.ms,
                quantile=target.quantile,
            )
            for one, target in zip(
                (block, *(block.others[target.application] for target in targets[1:])),
                targets,
                strict=True,
            )
        ]
        together.append(np.logical_and.reduce(each).astype(np.float64))
    return tuple(together)


def _met(arm: Condition, slo: Target) -> tuple[Array, ...]:
    return tuple(
        slo_windows_met(
            block.scheduled_s,
            block.latency_ms,
            block.ok,
            start_s=0.0,
            end_s=block.duration_s,
            slo_ms=slo.ms,
            quantile=slo.quantile,
        ).astype(np.float64)
        for block in arm.blocks
    )


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
