"""What a verdict takes from the live comparison of one scenario. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from stallward.evaluation.arms import ALONE, AMPLE
from stallward.evaluation.measures.bootstrap import Array
from stallward.evaluation.measures.contrasts import Estimate
from stallward.evaluation.measures.estimates import ComparisonEstimates
from stallward.evaluation.results.oracle import Hindsight
from stallward.evaluation.verdict.result import RunProvenance
from stallward.evaluation.verdict.score import score
from stallward.evaluation.verdict.targets import ORACLE, Figure


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

    def windows(self, role: str) -> int:
        """How many windows all blocks of an arm have together."""
        return sum(m.size for m in self.estimates.figures[self.labels[role]].met)


def common_roles(scenarios: Sequence[ScenarioComparison]) -> list[str]:
    """The roles that every scenario has, in order."""
    first, *rest = [scenario.labels for scenario in scenarios]
    return [role for role in first if all(role in labels for labels in rest)]
