"""From the measures of all blocks to the table of a comparison. Pure.

What is resampled, and how, is in ``stallward.evaluation.measures.estimates``; with one round the
result says ``"resampled": "windows"``, and its intervals miss what differs from block to block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from stallward.evaluation.arms import ALONE, AMPLE, BACKGROUND
from stallward.evaluation.measures.block_measures import Array
from stallward.evaluation.measures.bootstrap import RUN_WINDOWS
from stallward.evaluation.measures.contrasts import Estimates, contrasts, spread
from stallward.evaluation.measures.estimates import LATENCIES, Condition, Estimated, Known
from stallward.evaluation.measures.intervals import (
    Interval,
    Scale,
    impact_interval,
    interval,
    share_interval,
)

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


def tabulate(found: Estimated, *, told: bool) -> dict[str, Any]:
    """The numbers of ``result.json``: ``slo_ms``, ``alone``, ``ample`` and ``arms``.

    ``references`` holds the measures of alone and ample with their intervals, ``contrasts`` every
    pair of arms.

    Args:
        found: The estimates.
        told: Whether the scenario says what the target is.
    """
    conditions, known = found.conditions, found.known
    own = conditions[BACKGROUND].rates("units")
    metrics = {name: _metrics(conditions[name], known, known[name]) for name in known}
    return {
        "slo_ms": found.target.ms,
        "slo_quantile": found.target.quantile,
        "slo_source": "scenario" if told else "1.5 x p99 ample",
        "resampled": "windows" if found.rounds == 1 else "blocks",
        ALONE: _reference(conditions[ALONE], known[ALONE].estimates, own[0]),
        AMPLE: _reference(
            conditions[AMPLE], known[AMPLE].estimates, conditions[AMPLE].rates("units")[0]
        ),
        "references": {name: metrics[name] for name in (ALONE, AMPLE)},
        "arms": {
            arm: {"blocks": len(conditions[arm].blocks)}
            | metrics[arm]
            | {"spread": _spread(conditions[arm], conditions[AMPLE], known[arm].met)}
            for arm in found.arms
        },
        "contrasts": contrasts(
            {arm: known[arm].estimates for arm in found.arms},
            found.units,
            min((_attainment_units(conditions[arm], known[arm]) for arm in found.arms), default=0),
            jointly=found.rounds > 1,
        ),
    }


def _reference(condition: Condition, estimates: Estimates, units_per_s: Array) -> dict[str, Any]:
    known = np.isfinite(units_per_s)
    return {
        "protected": {
            **{name: _finite(estimates[name].value) for name in LATENCIES},
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
    arm: Condition, all_known: Mapping[str, Known], known: Known
) -> dict[str, dict[str, float | None]]:
    mine = known.estimates
    found: dict[str, Interval] = {}
    for name in (*LATENCIES, "background_work"):
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


def _spread(arm: Condition, ample: Condition, met: Sequence[Array]) -> dict[str, float | None]:
    shares = [float(m.mean()) if m.size else np.nan for m in met]
    return spread(arm.p99s_ms(), ample.p99s_ms(), shares)


def _attainment(arm: Condition, known: Known) -> Interval:
    windows = sum(m.size for m in known.met)
    return share_interval(
        int(sum(m.sum() for m in known.met)),
        windows,
        known.estimates["slo_attainment"].draws,
        units=_attainment_units(arm, known),
    )


def _attainment_units(arm: Condition, known: Known) -> int:
    """Independent units of attainment: blocks, or runs of the windows in the only one."""
    return sum(m.size for m in known.met) // RUN_WINDOWS if arm.single else arm.units
