"""From the measures of all blocks to the table of a comparison (design section 10). Pure.

With two rounds or more, rounds are resampled: a resample takes the same rounds for an arm, for
``alone``, for ``ample`` and for the background by itself, so that an impact carries the
variation of its references. With one round, windows inside each block are resampled instead;
the result then says ``"resampled": "windows"``, and its intervals miss what differs from block
to block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stallward.evaluation.contrasts import Estimate, Estimates, contrasts, spread
from stallward.evaluation.errors import MeasureError
from stallward.evaluation.intervals import (
    Interval,
    Scale,
    impact_interval,
    interval,
    share_interval,
)
from stallward.evaluation.measure import Array, BlockMeasures
from stallward.evaluation.plan import ALONE, AMPLE, BACKGROUND
from stallward.evaluation.slo import slo_windows_met
from stallward.evaluation.statistics import (
    RESAMPLES,
    RUN_WINDOWS,
    Counts,
    block_counts,
    bootstrap_quantiles,
    bootstrap_ratio,
    moving_block_counts,
    pooled_quantiles,
)

QUANTILES: Final = (0.5, 0.95, 0.99)
METRICS: Final = (
    "p50_ms",
    "p95_ms",
    "p99_ms",
    "mean_ms",
    "impact_mean",
    "impact_p95",
    "impact_p99",
    "impact_ample_mean",
    "impact_ample_p95",
    "impact_ample_p99",
    "slo_attainment",
    "background_work",
    "psi_some_share",
    "paused_share",
)
AUTO_SLO_FACTOR: Final = 1.5
_LATENCIES: Final = ("p50_ms", "p95_ms", "p99_ms", "mean_ms")
"""As conditions give their estimates."""

Blocks = Sequence[BlockMeasures]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """What a window is held against."""

    ms: float
    quantile: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Condition:
    """All blocks of one condition with the resamples of their units."""

    blocks: tuple[BlockMeasures, ...]
    counts: Counts
    """Draws of blocks, or of windows where there is one block."""
    rng: np.random.Generator

    @property
    def single(self) -> bool:
        return len(self.blocks) == 1

    @property
    def units(self) -> int:
        """Independent units: blocks, or runs of windows."""
        return self.counts.shape[1] // RUN_WINDOWS if self.single else len(self.blocks)

    def latencies(self) -> tuple[Array, ...]:
        """The requests of each unit."""
        if self.single:
            return self.blocks[0].latency_windows()
        return tuple(block.latency_ms for block in self.blocks)

    def additive(self, name: str) -> tuple[Array, Array]:
        """A per-window quantity summed per unit, and each unit's seconds."""
        per_block = [np.asarray(getattr(block, name)) for block in self.blocks]
        if self.single:
            return per_block[0], np.ones(per_block[0].shape[0])
        seconds = np.array([float(len(windows)) for windows in per_block])
        return np.stack([windows.sum(axis=0) for windows in per_block]), seconds

    def quantiles(self) -> tuple[Array, Array]:
        """Estimates and draws of p50, p95, p99 and the mean; shapes ``(4,)``, ``(B, 4)``."""
        pools = self.latencies()
        sums = np.array([pool.sum() for pool in pools])
        sizes = np.array([float(pool.size) for pool in pools])
        mean = sums.sum() / sizes.sum() if sizes.sum() else np.nan
        draws = bootstrap_quantiles(pools, QUANTILES, self.counts)
        means = bootstrap_ratio(sums, sizes, self.counts)
        return np.append(pooled_quantiles(pools, QUANTILES), mean), np.column_stack([draws, means])

    def rates(self, name: str) -> tuple[Array, Array]:
        """Estimate and draws of an additive quantity per second; ``(G,)`` and ``(B, G)``."""
        amounts, seconds = self.additive(name)
        amounts = amounts.reshape(seconds.size, -1)
        draws = [bootstrap_ratio(column, seconds, self.counts) for column in amounts.T]
        estimate = amounts.sum(axis=0) / seconds.sum()
        stacked = np.stack(draws, axis=1) if draws else np.zeros((self.counts.shape[0], 0))
        return estimate, stacked


def auto_target_ms(ample: Blocks) -> float | None:
    """The target that blocks with ample memory give: 1.5 x the p99 of their answered requests.

    Failed requests are left out: they must not make the target easier.

    Returns:
        ``None`` if no request was answered.
    """
    answered = pooled_quantiles([block.latency_ms[block.ok] for block in ample], [0.99])[0]
    return AUTO_SLO_FACTOR * float(answered) if np.isfinite(answered) else None


def summarise(
    blocks: Mapping[str, Blocks],
    arms: Sequence[str],
    *,
    slo_ms: float | None,
    seed: int,
    slo_quantile: float = 0.95,
) -> dict[str, Any]:
    """The numbers of ``result.json``: ``slo_ms``, ``alone``, ``ample`` and ``arms``.

    ``references`` holds the measures of alone and ample with their intervals, ``contrasts`` every
    pair of arms.

    Args:
        blocks: Blocks of every condition, in the order of rounds.
        arms: Labels of the arms.
        slo_ms: The target; ``None`` means :func:`auto_target_ms`.
        seed: Seeds the resampling.
        slo_quantile: The quantile that is held against the target in each window.

    Raises:
        MeasureError: If a condition has no block, or nothing was answered alone or ample.
    """
    found = _conditions(blocks, arms, seed)
    for name in (ALONE, AMPLE):
        if not any(block.ok.any() for block in found[name].blocks):
            raise MeasureError(
                f"No request was answered in the blocks of {name!r}.",
                next_step="Check that the application and its load generator run.",
            )
    target = slo_ms if slo_ms is not None else auto_target_ms(found[AMPLE].blocks)
    assert target is not None  # something was answered ample
    slo = _Target(ms=target, quantile=slo_quantile)
    own = found[BACKGROUND].rates("units")
    known = {name: _known(found[name], own, slo) for name in (ALONE, AMPLE, *arms)}
    metrics = {name: _metrics(found[name], known, known[name]) for name in known}
    return {
        "slo_ms": target,
        "slo_quantile": slo_quantile,
        "slo_source": "scenario" if slo_ms is not None else "1.5 x p99 ample",
        "resampled": "windows" if found[ALONE].single else "blocks",
        ALONE: _reference(found[ALONE], known[ALONE].estimates, own[0]),
        AMPLE: _reference(found[AMPLE], known[AMPLE].estimates, found[AMPLE].rates("units")[0]),
        "references": {name: metrics[name] for name in (ALONE, AMPLE)},
        "arms": {
            arm: {"blocks": len(found[arm].blocks)}
            | metrics[arm]
            | {"spread": _spread(found[arm], found[AMPLE], known[arm].met)}
            for arm in arms
        },
        "contrasts": contrasts(
            {arm: known[arm].estimates for arm in arms},
            found[ALONE].units,
            jointly=not found[ALONE].single,
        ),
    }


def _conditions(
    blocks: Mapping[str, Blocks], arms: Sequence[str], seed: int
) -> dict[str, _Condition]:
    names = (ALONE, AMPLE, BACKGROUND, *arms)
    for name in names:
        if not blocks.get(name):
            raise MeasureError(f"There is no finished block of {name!r}.")
    rng = np.random.default_rng(seed)
    rounds = min(len(blocks[name]) for name in names)
    joint = block_counts(rounds, RESAMPLES, rng)
    found = {}
    for name in names:
        own = tuple(blocks[name][:rounds])
        counts = joint
        if rounds == 1:
            counts = moving_block_counts(own[0].windows, RUN_WINDOWS, RESAMPLES, rng)
        found[name] = _Condition(blocks=own, counts=counts, rng=rng)
    return found


def _reference(condition: _Condition, estimates: Estimates, units_per_s: Array) -> dict[str, Any]:
    known = np.isfinite(units_per_s)
    return {
        "protected": {
            **{name: _finite(estimates[name].value) for name in _LATENCIES},
            "requests": sum(block.latency_ms.size for block in condition.blocks),
        },
        "background": {
            "units_per_s": float(units_per_s[known].sum()) if known.any() else None,
            "units_per_s_by_group": [_finite(value) for value in units_per_s],
        },
    }


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What the figures of a condition are made of, computed once."""

    estimates: Estimates
    """What arms are compared with each other by."""
    met: tuple[Array, ...]
    """For each window of each block 1 if it met the target, else 0."""


def _known(condition: _Condition, own: tuple[Array, Array], slo: _Target) -> _Known:
    value, draws = condition.quantiles()
    met = _met(condition, slo)
    estimates = {
        name: Estimate(value=float(value[i]), draws=draws[:, i])
        for i, name in enumerate(_LATENCIES)
    }
    estimates["background_work"] = _work(condition, own)
    estimates["slo_attainment"] = _attained(condition, met)
    return _Known(estimates=estimates, met=met)


def _metrics(
    arm: _Condition, all_known: Mapping[str, _Known], known: _Known
) -> dict[str, dict[str, float | None]]:
    mine = known.estimates
    found: dict[str, Interval] = {}
    for name in (*_LATENCIES, "background_work"):
        found[name] = interval(
            mine[name].value, mine[name].draws, blocks=arm.units, scale=Scale.LOG
        )
    for prefix, reference in (("impact", ALONE), ("impact_ample", AMPLE)):
        its = all_known[reference].estimates
        for what in ("mean", "p95", "p99"):
            one, two = mine[f"{what}_ms"], its[f"{what}_ms"]
            found[f"{prefix}_{what}"] = impact_interval(
                one.value / two.value, one.draws / two.draws, blocks=arm.units
            )
    found["slo_attainment"] = _attainment(arm, known)
    for name, quantity in (("psi_some_share", "psi_some_s"), ("paused_share", "paused_s")):
        rate, rate_draws = arm.rates(quantity)
        found[name] = interval(rate[0], rate_draws[:, 0], blocks=arm.units, scale=Scale.SHARE)
    return {name: found[name].as_json() for name in METRICS}


def _spread(arm: _Condition, ample: _Condition, met: Sequence[Array]) -> dict[str, float | None]:
    p99 = [
        [float(pooled_quantiles([block.latency_ms], [0.99])[0]) for block in condition.blocks]
        for condition in (arm, ample)
    ]
    shares = [float(m.mean()) if m.size else np.nan for m in met]
    return spread(p99[0], p99[1], shares)


def _met(arm: _Condition, slo: _Target) -> tuple[Array, ...]:
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


def _attained(arm: _Condition, met: Sequence[Array]) -> Estimate:
    windows = sum(m.size for m in met)
    if windows == 0:
        return Estimate(value=np.nan, draws=np.full(arm.counts.shape[0], np.nan))
    if arm.single:
        counts = moving_block_counts(windows, RUN_WINDOWS, RESAMPLES, arm.rng)
        draws = bootstrap_ratio(met[0], np.ones(windows), counts)
    else:
        sums, sizes = np.array([m.sum() for m in met]), np.array([float(m.size) for m in met])
        draws = bootstrap_ratio(sums, sizes, arm.counts)
    return Estimate(value=float(sum(m.sum() for m in met)) / windows, draws=draws)


def _attainment(arm: _Condition, known: _Known) -> Interval:
    windows = sum(m.size for m in known.met)
    return share_interval(
        int(sum(m.sum() for m in known.met)),
        windows,
        known.estimates["slo_attainment"].draws,
        units=windows // RUN_WINDOWS if arm.single else arm.units,
    )


def _work(arm: _Condition, own: tuple[Array, Array]) -> Estimate:
    """Mean over groups of units per second over units per second with the node to itself."""
    rate, draws = arm.rates("units")
    usable = known_groups(rate, own[0]) if rate.size == own[0].size else np.zeros(0, dtype=bool)
    if not usable.any():  # alone: no background ran
        return Estimate(value=np.nan, draws=np.full(draws.shape[0], np.nan))
    with np.errstate(divide="ignore", invalid="ignore"):
        resampled = (draws[:, usable] / own[1][:, usable]).mean(axis=1)
    return Estimate(value=float((rate[usable] / own[0][usable]).mean()), draws=resampled)


def known_groups(rate_per_s: Array, own_per_s: Array) -> NDArray[np.bool_]:
    """The groups of which a share of their own rate can be said."""
    return np.isfinite(rate_per_s) & np.isfinite(own_per_s) & (own_per_s > 0)
