"""What a verdict takes from the live comparison of one scenario. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np

from stallward.env.objective import MAX_EXCESS, SLOW_RATIO, Slack, scored, suffered_array
from stallward.evaluation.arms import ALONE, AMPLE
from stallward.evaluation.measures.bootstrap import Array
from stallward.evaluation.measures.estimates import ComparisonEstimates, Condition, Estimate
from stallward.research.hindsight import Hindsight
from stallward.research.verdict.result import RunProvenance
from stallward.research.verdict.targets import ORACLE, Figure

# ---------- The score of live blocks, by which policies are also trained, chosen and tuned.
# The score is background work less the largest of three penalties (``stallward.env.objective``): ten
# times the share of missed windows, ten times that of slow requests, and twice the mean excess of
# latency, each beyond what is allowed. The latency baseline and the threshold of a slow request come
# from the blocks with ample memory, so each resample computes its own.

_ALLOWED: Final = Slack().as_array()


def score(comparison: ComparisonEstimates, label: str) -> Estimate:
    """The score of an arm, relative to the blocks with ample memory of the same comparison.

    Args:
        comparison: The estimates of the comparison.
        label: The label of the arm, or ``ample``.
    """
    ample = comparison.figures[AMPLE].estimates
    own = comparison.figures[label].estimates
    condition = comparison.conditions[label]
    excess = _mean_excess(condition, ample.mean_ms)
    slow = _share_over(condition, ample.p99_ms, SLOW_RATIO)
    attainment, baseline = own.slo_attainment, ample.slo_attainment
    value = scored(
        np.array([own.background_work.value]),
        suffered_array(
            window_violated=baseline.value - attainment.value,
            excess=excess.value,
            slow=slow.value,
        )[:, np.newaxis],
        _ALLOWED,
    )
    draws = scored(
        own.background_work.draws,
        suffered_array(
            window_violated=baseline.draws - attainment.draws,
            excess=excess.draws,
            slow=slow.draws,
        ),
        _ALLOWED,
    )
    return Estimate(value=float(value[0]), draws=draws)


def _mean_excess(condition: Condition, baseline: Estimate) -> Estimate:
    """The mean excess of requests over the latency baseline, in multiples of it.

    The excess of one request counts as at most ``MAX_EXCESS``.
    """
    baseline_ms = np.append(baseline.draws, baseline.value)

    def unit_sums(ms: Array) -> Array:
        sums = np.concatenate([[0.0], np.cumsum(ms)])
        below = np.searchsorted(ms, (1.0 + MAX_EXCESS) * baseline_ms, side="right")
        return np.asarray(sums[below] / baseline_ms - below + MAX_EXCESS * (ms.size - below))

    return _per_request(condition, [unit_sums(np.sort(ms)) for ms in condition.latencies()])


def _share_over(condition: Condition, tail: Estimate, factor: float) -> Estimate:
    """The share of requests that take more than ``factor`` times the latency ``tail``."""
    tail_ms = factor * np.append(tail.draws, tail.value)
    over = [
        ms.size - np.searchsorted(np.sort(ms), tail_ms, side="right").astype(np.float64)
        for ms in condition.latencies()
    ]
    return _per_request(condition, over)


def _per_request(condition: Condition, sums: list[Array]) -> Estimate:
    """The mean per request, from the sums of each unit by resample, with the estimate last."""
    sizes = np.array([float(ms.size) for ms in condition.latencies()])
    counts = np.concatenate([condition.counts, np.ones((1, sizes.size), dtype=np.int64)])
    with np.errstate(divide="ignore", invalid="ignore"):
        rows = np.einsum("bu,ub->b", counts, np.array(sums)) / (counts @ sizes)
    return Estimate(value=float(rows[-1]), draws=rows[:-1])


@dataclass(frozen=True, kw_only=True)
class ScenarioComparison:
    """The comparison of one scenario: its estimates, the roles of its arms, and how it ran."""

    estimates: ComparisonEstimates
    roles: Mapping[str, str]
    """Role of an arm in the verdict -> its label. All scenarios have the same roles, though the
    labels, which name settings and twins, differ."""
    slo_source: str = ""
    """The origin of the latency target, in words."""
    oracle: Hindsight | None = None
    """The static arm that was the oracle; ``None`` if there was none."""
    invalid_blocks: Mapping[str, int] = field(default_factory=dict)
    """Label -> number of blocks that were run again."""
    steal_shares: Mapping[str, float] = field(default_factory=dict)
    """Label -> share of steal time in the worst block."""
    terminated: Mapping[str, int] = field(default_factory=dict)
    """Label -> number of programs that the arm terminated."""
    nodes: int = 1
    """How many machines the blocks ran on."""
    provenance: RunProvenance = field(default_factory=RunProvenance)
    """Where the blocks ran, and with which files."""

    @cached_property
    def labels(self) -> dict[str, str]:
        """Role -> label, with the references, and the oracle if it keeps the target."""
        labels = {ALONE: ALONE, AMPLE: AMPLE, **self.roles}
        if self.oracle is not None and self.oracle.meets_target:
            labels[ORACLE] = self.oracle.arm
        return labels

    @cached_property
    def scores(self) -> dict[str, Estimate]:
        """The score of every arm and of ample, by label."""
        return {
            label: score(self.estimates, label) for label in self.labels.values() if label != ALONE
        }

    def estimate(self, role: str, figure: Figure) -> Estimate | None:
        """The estimate of an arm that a figure is made from; ``None`` if there is no such arm."""
        label = self.labels.get(role)
        if label is None:
            return None
        if figure.of is None:
            return self.scores[label]
        return figure.of(self.estimates.figures[label].estimates)

    def by_round(self, role: str) -> tuple[Array, Array]:
        """For each round, the p99 over ample's, and the share of windows met; both ``(R,)``."""
        label = self.labels[role]
        p99, ample = (self.estimates.conditions[name].p99s_ms() for name in (label, AMPLE))
        met = [m.mean() if m.size else np.nan for m in self.estimates.figures[label].met]
        return p99 / ample, np.array(met)


def common_roles(scenarios: Sequence[ScenarioComparison]) -> list[str]:
    """The roles that every scenario has, in order."""
    first, *rest = [scenario.labels for scenario in scenarios]
    return [role for role in first if all(role in labels for labels in rest)]
