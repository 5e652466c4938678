"""What an experiment on a node showed. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from stallward.actuator.experiments.block_tally import BlockResult, Loss
from stallward.actuator.experiments.plan import Arm, ExperimentPlan, PrimaryMeasure
from stallward.actuator.experiments.state import all_have_ratios, paired
from stallward.actuator.experiments.wire import Experiment
from stallward.agent.latency_histogram import LatencyHistogram, merged
from stallward.evaluation.errors import MeasureError
from stallward.evaluation.experiments.analysis import (
    PairedRatio,
    holm,
    lost_blocks_p,
    paired_ratio,
)

LOSSES_DIFFER_P: Final = 0.01
"""Below this chance the arms do not lose blocks alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """The latencies of a number of requests."""

    requests: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None

    @classmethod
    def of(cls, histogram: LatencyHistogram) -> Self:
        """Those of a histogram; the percentiles are ``None`` if it is empty."""
        return cls(
            requests=histogram.requests,
            p50_ms=histogram.percentile_ms(50.0),
            p95_ms=histogram.percentile_ms(95.0),
            p99_ms=histogram.percentile_ms(99.0),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockLatencies:
    """The latencies of one block that counts."""

    pair: int
    arm: Arm
    latencies: Latencies


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmBlocks:
    """The blocks of one arm."""

    arm: Arm
    blocks: int
    """How many count."""
    lost: dict[Loss, int]
    """How many do not, by their reasons."""
    attainment: float | None
    """The share of all its seconds in which the target was kept; ``None`` without any."""
    fallback_share: float | None
    """The share of ticks at which the default controller decided."""
    latencies: Latencies | None
    """Those of the requests of all blocks together; ``None`` without any that are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """What an experiment on a node showed."""

    plan: ExperimentPlan
    arms: tuple[ArmBlocks, ArmBlocks]
    """The baseline, and the treatment."""
    ratios: dict[PrimaryMeasure, PairedRatio]
    """Treatment over baseline, for each measure of which a pair is known."""
    significant: dict[PrimaryMeasure, bool]
    """Whether a measure differs at 5 %: each by itself, but with Holm's correction for all except
    the primary one where p-values decide."""
    work_unit: str
    """The unit in which the background's work was counted; empty if it was processor time."""
    losses_p: float
    """The chance that arms that lose blocks alike lose them as unevenly as here."""
    blocks: tuple[BlockLatencies, ...]
    """The blocks that count and whose latencies are known, in their order."""

    @property
    def losses_differ(self) -> bool:
        """Whether which blocks are left depends on the arm, so that they are not comparable."""
        return self.losses_p < LOSSES_DIFFER_P

    @property
    def unknown_latencies(self) -> int:
        """How many blocks count, but not for their percentiles: an earlier version ran them."""
        return sum(arm.blocks for arm in self.arms) - len(self.blocks)

    @property
    def primary(self) -> PairedRatio | None:
        """The primary measure; ``None`` if no pair is known."""
        return self.ratios.get(self.plan.primary)


def report_on(experiment: Experiment) -> NodeReport:
    """Analyse an experiment, also while it runs.

    Whether a measure is significant is judged by the interval that holds at every look, except
    where the number of pairs was fixed before and all of them were run.
    """
    plan, blocks = experiment.plan, experiment.blocks
    ratios: dict[PrimaryMeasure, PairedRatio] = {}
    for measure in PrimaryMeasure:
        baseline, treatment = np.array(paired(blocks, measure)).reshape(-1, len(Arm)).T
        try:
            ratios[measure] = paired_ratio(baseline, treatment, seed=plan.seed % (1 << 32))
        except MeasureError:  # no pair is known
            continue
    arms = (_arm(blocks, Arm.BASELINE), _arm(blocks, Arm.TREATMENT))
    planned = max(sum(1 for one in blocks if one.arm is arm) for arm in Arm) if blocks else 0
    return NodeReport(
        plan=plan,
        arms=arms,
        ratios=ratios,
        significant=_significant(experiment, ratios),
        work_unit=next((one.work_unit for one in reversed(blocks) if one.work_unit), ""),
        losses_p=lost_blocks_p((arms[0].blocks, arms[1].blocks), planned),
        blocks=tuple(
            BlockLatencies(pair=one.pair, arm=one.arm, latencies=Latencies.of(one.latencies))
            for one in blocks
            if one.loss is Loss.NONE and one.latencies is not None
        ),
    )


def _significant(
    experiment: Experiment, ratios: dict[PrimaryMeasure, PairedRatio]
) -> dict[PrimaryMeasure, bool]:
    plan = experiment.plan
    if not plan.stop_when_certain and len(experiment.blocks) == plan.blocks:
        p_values: dict[PrimaryMeasure, float] = {
            measure: ratio.p_value
            for measure, ratio in ratios.items()
            if ratio.p_value is not None
        }
        others = {one: p for one, p in p_values.items() if one is not plan.primary}
        significant = dict.fromkeys(ratios, False) | holm(others)
        if plan.primary in p_values:
            significant[plan.primary] = p_values[plan.primary] <= 0.05
    else:
        significant = {measure: ratio.always.excludes(1.0) for measure, ratio in ratios.items()}
    return {
        measure: found and all_have_ratios(experiment.blocks, measure)
        for measure, found in significant.items()
    }


def _arm(blocks: tuple[BlockResult, ...], arm: Arm) -> ArmBlocks:
    mine = [one for one in blocks if one.arm is arm]
    counted = [one for one in mine if one.loss is Loss.NONE]
    seconds = sum(one.seconds for one in counted)
    met = math.fsum((one.attainment or 0.0) * one.seconds for one in counted)
    lost = [one.loss for one in mine if one.loss is not Loss.NONE]
    known = [one.latencies for one in counted if one.latencies is not None]
    return ArmBlocks(
        arm=arm,
        blocks=len(counted),
        lost={loss: lost.count(loss) for loss in Loss if loss in lost},
        attainment=met / seconds if seconds else None,
        fallback_share=(
            math.fsum(one.fallback_share for one in counted) / len(counted) if counted else None
        ),
        latencies=Latencies.of(merged(known)) if known else None,
    )
