"""From the measures of all blocks to the table of a comparison. Pure.

What is resampled, and how, is in ``stallward.evaluation.measures.estimates``; with one round the
result says ``"resampled": "windows"``, and its intervals miss what differs from block to block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from stallward.evaluation.arms import ALONE, AMPLE, BACKGROUND
from stallward.evaluation.measures.block_measures import Array
from stallward.evaluation.measures.bootstrap import RUN_WINDOWS
from stallward.evaluation.measures.contrasts import Estimate, Estimates, contrasts, spread
from stallward.evaluation.measures.estimates import Condition, Estimated, Known
from stallward.evaluation.measures.intervals import (
    Scale,
    impact_interval,
    interval,
    share_interval,
)
from stallward.evaluation.results.comparison import (
    ArmFacts,
    ArmResult,
    BackgroundTotals,
    Metrics,
    ProtectedTotals,
    Reference,
    References,
    Spread,
    Table,
)
from stallward.evaluation.results.interval import Interval


def tabulate(found: Estimated, facts: Mapping[str, ArmFacts], *, told: bool) -> Table:
    """The figures of a comparison.

    Args:
        found: The estimates.
        facts: What else is to be said of each arm, by its label.
        told: Whether the scenario says what the target is.
    """
    conditions, known = found.conditions, found.known
    own, ample = conditions[BACKGROUND].rates("units"), conditions[AMPLE].rates("units")
    metrics = {name: _metrics(conditions[name], known, known[name]) for name in known}
    return Table(
        slo_ms=found.target.ms,
        slo_quantile=found.target.quantile,
        slo_source="scenario" if told else "1.5 x p99 ample",
        resampled="windows" if found.rounds == 1 else "blocks",
        alone=_reference(conditions[ALONE], known[ALONE].estimates, own[0]),
        ample=_reference(conditions[AMPLE], known[AMPLE].estimates, ample[0]),
        references=References(alone=metrics[ALONE], ample=metrics[AMPLE]),
        arms={
            arm: ArmResult(
                blocks=len(conditions[arm].blocks),
                metrics=metrics[arm],
                spread=_spread(conditions[arm], conditions[AMPLE], known[arm].met),
                facts=facts[arm],
            )
            for arm in found.arms
        },
        contrasts=contrasts(
            {arm: known[arm].estimates for arm in found.arms},
            found.units,
            min((_attainment_units(conditions[arm], known[arm]) for arm in found.arms), default=0),
            jointly=found.rounds > 1,
        ),
    )


def _reference(condition: Condition, estimates: Estimates, units_per_s: Array) -> Reference:
    known = np.isfinite(units_per_s)
    return Reference(
        protected=ProtectedTotals(
            p50_ms=_finite(estimates.p50_ms.value),
            p95_ms=_finite(estimates.p95_ms.value),
            p99_ms=_finite(estimates.p99_ms.value),
            mean_ms=_finite(estimates.mean_ms.value),
            requests=sum(block.latency_ms.size for block in condition.blocks),
        ),
        background=BackgroundTotals(
            units_per_s=float(units_per_s[known].sum()) if known.any() else None,
            units_per_s_by_group=tuple(_finite(value) for value in units_per_s),
        ),
    )


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _metrics(arm: Condition, all_known: Mapping[str, Known], known: Known) -> Metrics:
    mine = known.estimates
    alone, ample = all_known[ALONE].estimates, all_known[AMPLE].estimates

    def level(one: Estimate) -> Interval:
        return interval(one.value, one.draws, blocks=arm.units, scale=Scale.LOG)

    def impact(one: Estimate, two: Estimate) -> Interval:
        return impact_interval(one.value / two.value, one.draws / two.draws, blocks=arm.units)

    def share(quantity: str) -> Interval:
        rate, draws = arm.rates(quantity)
        return interval(rate[0], draws[:, 0], blocks=arm.units, scale=Scale.SHARE)

    return Metrics(
        p50_ms=level(mine.p50_ms),
        p95_ms=level(mine.p95_ms),
        p99_ms=level(mine.p99_ms),
        mean_ms=level(mine.mean_ms),
        impact_mean=impact(mine.mean_ms, alone.mean_ms),
        impact_p95=impact(mine.p95_ms, alone.p95_ms),
        impact_p99=impact(mine.p99_ms, alone.p99_ms),
        impact_ample_mean=impact(mine.mean_ms, ample.mean_ms),
        impact_ample_p95=impact(mine.p95_ms, ample.p95_ms),
        impact_ample_p99=impact(mine.p99_ms, ample.p99_ms),
        slo_attainment=_attainment(arm, known),
        background_work=level(mine.background_work),
        psi_some_share=share("psi_some_s"),
        paused_share=share("paused_s"),
    )


def _spread(arm: Condition, ample: Condition, met: Sequence[Array]) -> Spread:
    shares = [float(m.mean()) if m.size else np.nan for m in met]
    return spread(arm.p99s_ms(), ample.p99s_ms(), shares)


def _attainment(arm: Condition, known: Known) -> Interval:
    windows = sum(m.size for m in known.met)
    return share_interval(
        int(sum(m.sum() for m in known.met)),
        windows,
        known.estimates.slo_attainment.draws,
        units=_attainment_units(arm, known),
    )


def _attainment_units(arm: Condition, known: Known) -> int:
    """Independent units of attainment: blocks, or runs of the windows in the only one."""
    return sum(m.size for m in known.met) // RUN_WINDOWS if arm.single else arm.units
