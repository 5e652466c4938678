"""The table of a comparison, from the estimates of all conditions. Pure.

Resampling is described in ``stallward.evaluation.measures.estimates``. With one round the result
says ``"resampled": "windows"``, and its intervals miss the variation between blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from stallward.evaluation.arms import ALONE, AMPLE, BACKGROUND
from stallward.evaluation.measures.block_measures import Array
from stallward.evaluation.measures.bootstrap import RUN_WINDOWS
from stallward.evaluation.measures.estimates import (
    ApplicationFigures,
    ComparisonEstimates,
    Condition,
    ConditionFigures,
    Estimate,
    Estimates,
    contrasts,
    spread,
)
from stallward.evaluation.measures.intervals import (
    Scale,
    impact_interval,
    interval,
    share_interval,
)
from stallward.evaluation.results.comparison import (
    ApplicationMetrics,
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

_LATENCIES: Final = ("p50_ms", "p95_ms", "p99_ms", "mean_ms")


def tabulate(
    estimates: ComparisonEstimates, facts: Mapping[str, ArmFacts], *, target_stated: bool
) -> Table:
    """Make the table of a comparison.

    Args:
        estimates: The estimates of all conditions.
        facts: Label of an arm -> further facts about it.
        target_stated: Whether the scenario states the target.
    """
    conditions, figures = estimates.conditions, estimates.figures
    own, ample = conditions[BACKGROUND].rates("units"), conditions[AMPLE].rates("units")
    metrics = {name: _metrics(conditions[name], figures, figures[name]) for name in figures}
    return Table(
        slo_ms=estimates.target.ms,
        slo_quantile=estimates.target.quantile,
        slo_source="stated" if target_stated else "tight: 1.5 x p99 ample",
        resampled="windows" if estimates.rounds == 1 else "blocks",
        alone=_reference(conditions[ALONE], figures[ALONE].estimates, own[0]),
        ample=_reference(conditions[AMPLE], figures[AMPLE].estimates, ample[0]),
        references=References(alone=metrics[ALONE], ample=metrics[AMPLE]),
        arms={
            arm: ArmResult(
                blocks=len(conditions[arm].blocks),
                metrics=metrics[arm],
                spread=_spread(conditions[arm], conditions[AMPLE], figures[arm].met),
                facts=facts[arm],
            )
            for arm in estimates.arms
        },
        contrasts=contrasts(
            {arm: figures[arm].estimates for arm in estimates.arms},
            estimates.units,
            min(
                (_attainment_units(conditions[arm], figures[arm].met) for arm in estimates.arms),
                default=0,
            ),
            jointly=estimates.rounds > 1,
        ),
        applications={
            name: tuple(_application(conditions[name], one) for one in figures[name].applications)
            for name in figures
            if figures[name].applications
        }
        or None,
    )


def _reference(condition: Condition, estimates: Estimates, units_per_s: Array) -> Reference:
    known = np.isfinite(units_per_s)
    return Reference(
        protected=ProtectedTotals(
            **{name: _finite(getattr(estimates, name).value) for name in _LATENCIES},
            requests=sum(block.latency_ms.size for block in condition.blocks),
        ),
        background=BackgroundTotals(
            units_per_s=float(units_per_s[known].sum()) if known.any() else None,
            units_per_s_by_group=tuple(_finite(value) for value in units_per_s),
        ),
    )


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _metrics(
    arm: Condition, all_figures: Mapping[str, ConditionFigures], figures: ConditionFigures
) -> Metrics:
    own = figures.estimates
    alone, ample = all_figures[ALONE].estimates, all_figures[AMPLE].estimates

    def level(one: Estimate) -> Interval:
        return interval(one.value, one.draws, blocks=arm.units, scale=Scale.LOG)

    def impact(one: Estimate, two: Estimate) -> Interval:
        return impact_interval(one.value / two.value, one.draws / two.draws, blocks=arm.units)

    def share(quantity: str) -> Interval:
        rate, draws = arm.rates(quantity)
        return interval(rate[0], draws[:, 0], blocks=arm.units, scale=Scale.SHARE)

    return Metrics(
        **{name: level(getattr(own, name)) for name in _LATENCIES},
        **{
            f"{impact_of}_{name}": impact(getattr(own, f"{name}_ms"), getattr(two, f"{name}_ms"))
            for impact_of, two in (("impact", alone), ("impact_ample", ample))
            for name in ("mean", "p95", "p99")
        },
        slo_attainment=_attainment(arm, figures.met, own.slo_attainment),
        background_work=level(own.background_work),
        psi_some_share=share("psi_some_s"),
        paused_share=share("paused_s"),
    )


def _spread(arm: Condition, ample: Condition, met: Sequence[Array]) -> Spread:
    shares = [float(m.mean()) if m.size else np.nan for m in met]
    return spread(arm.p99s_ms(), ample.p99s_ms(), shares)


def _application(condition: Condition, figures: ApplicationFigures) -> ApplicationMetrics:
    def level(one: Estimate) -> Interval:
        return interval(one.value, one.draws, blocks=condition.units, scale=Scale.LOG)

    return ApplicationMetrics(
        application=figures.target.application,
        slo_ms=figures.target.ms,
        slo_quantile=figures.target.quantile,
        slo_attainment=_attainment(condition, figures.met, figures.attainment),
        p95_ms=level(figures.p95_ms),
        p99_ms=level(figures.p99_ms),
    )


def _attainment(arm: Condition, met: Sequence[Array], share: Estimate) -> Interval:
    return share_interval(
        int(sum(m.sum() for m in met)),
        sum(m.size for m in met),
        share.draws,
        units=_attainment_units(arm, met),
    )


def _attainment_units(arm: Condition, met: Sequence[Array]) -> int:
    """The independent units of attainment: blocks, or runs of windows of a single block."""
    return sum(m.size for m in met) // RUN_WINDOWS if arm.single else arm.units
