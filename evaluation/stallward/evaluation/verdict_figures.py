"""What live comparisons of held-out scenarios say of a policy, beside the targets. Pure.

Every figure has the 95 % interval of its comparison. Over scenarios the mean is taken (of ratios
the geometric one), as if they were all there are: its interval holds for these, not for others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from stallward.evaluation.errors import EvaluationError
from stallward.evaluation.oracle import best_meeting_target
from stallward.evaluation.render import Kind, cell

Metric = Mapping[str, float | None]
Result = Mapping[str, Any]
Scale = Literal["ratio", "linear"]

POLICY: Final = "ppo"
RULE: Final = "rule"
PUBLISHED: Final = "latd"
AMPLE: Final = "ample"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the verdict.

    Args:
        name: Its key.
        title: For people.
        scale: Whether scenarios are averaged as ratios or as they are.
        target: What is aimed at, in words.
        low, high: Bounds of the value that meets the target; ``None`` for none.
    """

    name: str
    title: str
    scale: Scale
    target: str
    low: float | None = None
    high: float | None = None

    def met(self, value: float | None) -> bool | None:
        """Whether a value meets the target; ``None`` where that cannot be said."""
        if value is None or (self.low is None and self.high is None):
            return None
        above = self.low is None or value >= self.low
        return above and (self.high is None or value <= self.high)


FIGURES: Final = (
    Figure(name="impact_ample_mean", title="mean latency against ample", scale="linear",
           target="at most +5 %", high=0.05),
    Figure(name="impact_ample_p99", title="p99 against ample", scale="linear",
           target="at most +15 %", high=0.15),
    Figure(name="impact_mean", title="mean latency against alone", scale="linear", target=""),
    Figure(name="impact_p99", title="p99 against alone", scale="linear", target=""),
    Figure(name="slo_points", title="SLO met, points under ample", scale="linear",
           target="at most 0.5", high=0.005),
    Figure(name="slo_points_worst", title="the same of the worst block", scale="linear",
           target="at most 1", high=0.01),
    Figure(name="work_of_oracle", title="background work over the oracle's", scale="ratio",
           target="at least 0.85", low=0.85),
    Figure(name="work_of_latd", title="background work over latd's", scale="ratio",
           target="at least 1.3", low=1.3),
    Figure(name="p99_of_latd", title="p99 over latd's", scale="ratio",
           target="at most 1", high=1.0),
    Figure(name="work_of_rule", title="background work over the tuned rule's", scale="ratio",
           target="more, at no worse latency", low=1.0),
    Figure(name="p99_of_rule", title="p99 over the tuned rule's", scale="ratio",
           target="at most 1", high=1.0),
    Figure(name="impact_p99_sd", title="spread of the p99 impact over blocks", scale="linear",
           target="at most 7 %", high=0.07),
)  # fmt: skip


def judge(results: Mapping[str, Result]) -> dict[str, Any]:
    """The verdict on :data:`POLICY`, of the comparisons of some scenarios.

    Returns:
        ``scenarios`` (for each its oracle, rounds and figures) and ``figures`` (over all of them,
        with target and whether it is met), JSON values.

    Raises:
        EvaluationError: If the policy is not among the arms.
    """
    each = {name: _figures(name, result) for name, result in results.items()}
    return {
        "schema": 1,
        "scenarios": {
            name: {
                "oracle": _oracle(results[name]),
                "rounds": results[name]["method"]["rounds"],
                "figures": found,
            }
            for name, found in each.items()
        },
        "figures": {
            figure.name: _over_scenarios(figure, [found[figure.name] for found in each.values()])
            for figure in FIGURES
        },
    }


def _oracle(result: Result) -> str | None:
    try:
        return best_meeting_target(result)
    except EvaluationError:
        return None


def _figures(name: str, result: Result) -> dict[str, Metric]:
    if POLICY not in result["arms"]:
        raise EvaluationError(f"The comparison of {name} has no arm {POLICY!r}.")
    arm, ample = result["arms"][POLICY], result["references"][AMPLE]
    ample_met = ample["slo_attainment"]["value"]
    oracle = _oracle(result)
    work, p99 = "background_work_ratio", "p99_ratio"
    return {
        **{
            key: arm[key]
            for key in ("impact_ample_mean", "impact_ample_p99", "impact_mean", "impact_p99")
        },
        "slo_points": _less(ample_met, arm["slo_attainment"]),
        "slo_points_worst": _plain(_minus(ample_met, arm["spread"]["slo_attainment_worst"])),
        "work_of_oracle": _contrast(result, oracle, work),
        "work_of_latd": _contrast(result, PUBLISHED, work),
        "p99_of_latd": _contrast(result, PUBLISHED, p99),
        "work_of_rule": _contrast(result, RULE, work),
        "p99_of_rule": _contrast(result, RULE, p99),
        "impact_p99_sd": _plain(arm["spread"]["impact_ample_p99_sd"]),
    }


def _contrast(result: Result, other: str | None, name: str) -> Metric:
    """The policy's ratio to another arm."""
    for pair in result["contrasts"]:
        found: Metric = pair[name]
        if (pair["arm"], pair["against"]) == (POLICY, other):
            return found
        if (pair["arm"], pair["against"]) == (other, POLICY):
            value, low, high = found["value"], found["low"], found["high"]
            return {"value": _inverse(value), "low": _inverse(high), "high": _inverse(low)}
    return _plain(None)


def _inverse(value: float | None) -> float | None:
    return None if value is None or value <= 0.0 else 1.0 / value


def _minus(one: float | None, two: float | None) -> float | None:
    return None if one is None or two is None else one - two


def _less(reference: float | None, metric: Metric) -> Metric:
    """``reference`` less a figure, whose interval turns round."""
    return {
        "value": _minus(reference, metric["value"]),
        "low": _minus(reference, metric["high"]),
        "high": _minus(reference, metric["low"]),
    }


def _plain(value: float | None) -> Metric:
    return {"value": value, "low": None, "high": None}


def _over_scenarios(figure: Figure, each: Sequence[Metric]) -> dict[str, Any]:
    """The mean over scenarios; their intervals, being independent, add up in squares."""
    values = [metric["value"] for metric in each]
    known = [value for value in values if value is not None]
    log = figure.scale == "ratio"
    mean: float | None = None
    low = high = None
    if known and len(known) == len(values) and not (log and min(known) <= 0.0):
        at = np.log(known) if log else np.array(known)
        mean = float(at.mean())
        ends = [(metric["low"], metric["high"]) for metric in each]
        if all(a is not None and b is not None and (not log or a > 0.0) for a, b in ends):
            limits = np.array(ends, dtype=np.float64)
            limits = np.log(limits) if log else limits
            below, above = at - limits[:, 0], limits[:, 1] - at
            low, high = (
                mean - float(np.sqrt(np.square(below).sum())) / len(known),
                mean + float(np.sqrt(np.square(above).sum())) / len(known),
            )
        if log:
            mean = float(np.exp(mean))
            low, high = (None if v is None else float(np.exp(v)) for v in (low, high))
    worst = None
    if known and len(known) == len(values) and (figure.low, figure.high) != (None, None):
        worst = max(known) if figure.high is not None else min(known)
    return {
        "value": mean,
        "low": low,
        "high": high,
        "worst": worst,
        "target": figure.target,
        "met": figure.met(mean),
    }


def verdict_rows(verdict: Mapping[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headers and rows of the table: figures by scenarios."""
    scenarios = list(verdict["scenarios"])
    rows = []
    for figure in FIGURES:
        found = verdict["figures"][figure.name]
        met = {True: "met", False: "missed", None: ""}[found["met"]]
        kind: Kind = "number" if figure.scale == "ratio" else "share"
        each = [verdict["scenarios"][name]["figures"][figure.name] for name in scenarios]
        cells = [cell(metric, kind) for metric in each]
        rows.append((figure.title, figure.target, cell(found, kind), met, *cells))
    return ("figure", "target", "mean", "", *scenarios), rows
