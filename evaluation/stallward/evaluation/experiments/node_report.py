"""What an experiment on a node showed. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from stallward.actuator.experiments.block_tally import BlockResult, Loss
from stallward.actuator.experiments.plan import Arm, ExperimentPlan, PrimaryMeasure
from stallward.actuator.experiments.state import paired
from stallward.actuator.experiments.wire import Experiment
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


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """What an experiment on a node showed."""

    plan: ExperimentPlan
    arms: tuple[ArmBlocks, ArmBlocks]
    """The baseline, and the treatment."""
    ratios: dict[PrimaryMeasure, PairedRatio]
    """Treatment over baseline, for each measure of which a pair is known."""
    significant: dict[PrimaryMeasure, bool]
    """Whether a measure differs at 5 %: the primary one by itself, the others with Holm's
    correction."""
    work_unit: str
    """The unit in which the background's work was counted; empty if it was processor time."""
    losses_p: float
    """The chance that arms that lose blocks alike lose them as unevenly as here."""

    @property
    def losses_differ(self) -> bool:
        """Whether which blocks are left depends on the arm, so that they are not comparable."""
        return self.losses_p < LOSSES_DIFFER_P

    @property
    def primary(self) -> PairedRatio | None:
        """The primary measure; ``None`` if no pair is known."""
        return self.ratios.get(self.plan.primary)


def report_on(experiment: Experiment) -> NodeReport:
    """Analyse an experiment, also while it runs.

    Whether the primary measure is significant is judged by the interval that holds at every look,
    except where the number of pairs was fixed before and all of them were run.
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
    )


def _significant(
    experiment: Experiment, ratios: dict[PrimaryMeasure, PairedRatio]
) -> dict[PrimaryMeasure, bool]:
    plan = experiment.plan
    others: dict[str, float] = {
        measure: ratio.p_value
        for measure, ratio in ratios.items()
        if measure is not plan.primary and ratio.p_value is not None
    }
    found = holm(others)
    significant = {measure: found.get(measure, False) for measure in ratios}
    primary = ratios.get(plan.primary)
    if primary is not None:
        fixed = not plan.stop_when_certain and len(experiment.blocks) == plan.blocks
        significant[plan.primary] = (
            primary.p_value is not None and primary.p_value <= 0.05
            if fixed
            else primary.always.excludes(1.0)
        )
    return significant


def _arm(blocks: tuple[BlockResult, ...], arm: Arm) -> ArmBlocks:
    mine = [one for one in blocks if one.arm is arm]
    counted = [one for one in mine if one.loss is Loss.NONE]
    seconds = sum(one.seconds for one in counted)
    met = math.fsum((one.attainment or 0.0) * one.seconds for one in counted)
    lost = [one.loss for one in mine if one.loss is not Loss.NONE]
    return ArmBlocks(
        arm=arm,
        blocks=len(counted),
        lost={loss: lost.count(loss) for loss in Loss if loss in lost},
        attainment=met / seconds if seconds else None,
        fallback_share=(
            math.fsum(one.fallback_share for one in counted) / len(counted) if counted else None
        ),
    )
