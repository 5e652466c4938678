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
_RUN_WINDOWS: Final = 5
"""Windows drawn together where one block must do: stalls last a few seconds."""

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
        return self.counts.shape[1] // _RUN_WINDOWS if self.single else len(self.blocks)

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
    alone, ample = found[ALONE].quantiles(), found[AMPLE].quantiles()
    target = slo_ms if slo_ms is not None else auto_target_ms(found[AMPLE].blocks)
    assert target is not None  # something was answered ample
    slo = _Target(ms=target, quantile=slo_quantile)
    own = found[BACKGROUND].rates("units")
    return {
        "slo_ms": target,
        "slo_quantile": slo_quantile,
        "slo_source": "scenario" if slo_ms is not None else "1.5 x p99 ample",
        "resampled": "windows" if found[ALONE].single else "blocks",
        ALONE: _reference(found[ALONE], alone, own[0]),
        AMPLE: _reference(found[AMPLE], ample, found[AMPLE].rates("units")[0]),
        "references": {
            name: _metrics(found[name], alone, ample, own, slo) for name in (ALONE, AMPLE)
        },
        "arms": {
            arm: {"blocks": len(found[arm].blocks)}
            | _metrics(found[arm], alone, ample, own, slo)
            | {"spread": _spread(found[arm], found[AMPLE], slo)}
            for arm in arms
        },
        "contrasts": contrasts(
            {arm: _estimates(found[arm], own, slo) for arm in arms},
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
            counts = moving_block_counts(own[0].windows, _RUN_WINDOWS, RESAMPLES, rng)
        found[name] = _Condition(blocks=own, counts=counts, rng=rng)
    return found


def _reference(
    condition: _Condition, latency: tuple[Array, Array], units_per_s: Array
) -> dict[str, Any]:
    known = np.isfinite(units_per_s)
    return {
        "protected": {
            **{
                name: _finite(value)
                for name, value in zip(
                    ("p50_ms", "p95_ms", "p99_ms", "mean_ms"), latency[0], strict=True
                )
            },
            "requests": sum(block.latency_ms.size for block in condition.blocks),
        },
        "background": {
            "units_per_s": float(units_per_s[known].sum()) if known.any() else None,
            "units_per_s_by_group": [_finite(value) for value in units_per_s],
        },
    }


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _metrics(
    arm: _Condition,
    alone: tuple[Array, Array],
    ample: tuple[Array, Array],
    own: tuple[Array, Array],
    slo: _Target,
) -> dict[str, dict[str, float | None]]:
    value, draws = arm.quantiles()
    found: dict[str, Interval] = {}
    for i, name in enumerate(("p50_ms", "p95_ms", "p99_ms", "mean_ms")):
        found[name] = interval(value[i], draws[:, i], blocks=arm.units, scale=Scale.LOG)
    for prefix, (reference, its_draws) in (("impact", alone), ("impact_ample", ample)):
        for i, name in ((3, "mean"), (1, "p95"), (2, "p99")):
            found[f"{prefix}_{name}"] = impact_interval(
                value[i] / reference[i], draws[:, i] / its_draws[:, i], blocks=arm.units
            )
    found["slo_attainment"] = _attainment(arm, slo)
    found["background_work"] = _work(arm, own)
    for name, quantity in (("psi_some_share", "psi_some_s"), ("paused_share", "paused_s")):
        rate, rate_draws = arm.rates(quantity)
        found[name] = interval(rate[0], rate_draws[:, 0], blocks=arm.units, scale=Scale.SHARE)
    return {name: found[name].as_json() for name in METRICS}


def _estimates(arm: _Condition, own: tuple[Array, Array], slo: _Target) -> Estimates:
    """What arms are compared with each other by."""
    value, draws = arm.quantiles()
    found = {
        name: Estimate(value=float(value[i]), draws=draws[:, i])
        for i, name in enumerate(("p50_ms", "p95_ms", "p99_ms", "mean_ms"))
    }
    return found | {
        "background_work": _work_done(arm, own),
        "slo_attainment": _attained(arm, _met(arm, slo)),
    }


def _spread(arm: _Condition, ample: _Condition, slo: _Target) -> dict[str, float | None]:
    p99 = [
        [float(pooled_quantiles([block.latency_ms], [0.99])[0]) for block in condition.blocks]
        for condition in (arm, ample)
    ]
    shares = [float(m.mean()) if m.size else np.nan for m in _met(arm, slo)]
    return spread(p99[0], p99[1], shares)


def _met(arm: _Condition, slo: _Target) -> list[Array]:
    """For each window of each block 1 if it met the target, else 0."""
    return [
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
    ]


def _attained(arm: _Condition, met: Sequence[Array]) -> Estimate:
    windows = sum(m.size for m in met)
    if windows == 0:
        return Estimate(value=np.nan, draws=np.full(arm.counts.shape[0], np.nan))
    if arm.single:
        counts = moving_block_counts(windows, _RUN_WINDOWS, RESAMPLES, arm.rng)
        draws = bootstrap_ratio(met[0], np.ones(windows), counts)
    else:
        sums, sizes = np.array([m.sum() for m in met]), np.array([float(m.size) for m in met])
        draws = bootstrap_ratio(sums, sizes, arm.counts)
    return Estimate(value=float(sum(m.sum() for m in met)) / windows, draws=draws)


def _attainment(arm: _Condition, slo: _Target) -> Interval:
    met = _met(arm, slo)
    windows = sum(m.size for m in met)
    units = windows // _RUN_WINDOWS if arm.single else arm.units
    return share_interval(
        int(sum(m.sum() for m in met)), windows, _attained(arm, met).draws, units=units
    )


def _work_done(arm: _Condition, own: tuple[Array, Array]) -> Estimate:
    """Mean over groups of units per second over units per second with the node to itself."""
    rate, draws = arm.rates("units")
    usable = known_groups(rate, own[0]) if rate.size == own[0].size else np.zeros(0, dtype=bool)
    if not usable.any():  # alone: no background ran
        return Estimate(value=np.nan, draws=np.full(draws.shape[0], np.nan))
    with np.errstate(divide="ignore", invalid="ignore"):
        resampled = (draws[:, usable] / own[1][:, usable]).mean(axis=1)
    return Estimate(value=float((rate[usable] / own[0][usable]).mean()), draws=resampled)


def _work(arm: _Condition, own: tuple[Array, Array]) -> Interval:
    done = _work_done(arm, own)
    return interval(done.value, done.draws, blocks=arm.units, scale=Scale.LOG)


def known_groups(rate_per_s: Array, own_per_s: Array) -> NDArray[np.bool_]:
    """The groups of which a share of their own rate can be said."""
    return np.isfinite(rate_per_s) & np.isfinite(own_per_s) & (own_per_s > 0)
