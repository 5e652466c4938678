"""What an experiment on many nodes showed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from stallward.actuator.experiments.block_tally import BlockResult, Loss
from stallward.actuator.experiments.plan import Arm, Candidate, ExperimentPlan, PrimaryMeasure
from stallward.actuator.experiments.state import Progress, all_have_ratios, log_ratios
from stallward.actuator.experiments.wire import Experiment
from stallward.evaluation.errors import MeasureError
from stallward.evaluation.experiments.analysis import holm
from stallward.evaluation.experiments.node_report import LOSSES_DIFFER_P
from stallward.evaluation.results.interval import UNKNOWN, Interval
from stallward.fleet.pooled import (
    PooledRatio,
    mean_interval,
    pooled_ratio,
    unevenly_lost_p,
)

_ALPHA: Final = 0.05
_AS_PLANNED: Final = (Progress.COMPLETE, Progress.GUARDRAIL, Progress.LOSSES)
"""How a node's part ends without anybody having looked at the measures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePart:
    """What one node showed."""

    progress: Progress
    blocks: int
    """How many blocks ended."""
    lost_blocks: int
    ratio: Interval
    """The primary measure of the treatment over that of the baseline; the 95 % interval is of this
    node alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreatmentReport:
    """What one treatment showed on the nodes that compared it with the baseline."""

    treatment: Candidate
    nodes: dict[str, NodePart]
    ratios: dict[PrimaryMeasure, PooledRatio]
    """Treatment over baseline, for each measure of which a pair is known."""
    significant: dict[PrimaryMeasure, bool]
    """Whether a measure differs on these nodes at 5 %: the primary ones of all treatments
    together, and the others together, each with Holm's correction."""
    losses_p: float
    """The chance that arms that lose blocks alike lose them as unevenly as here."""

    @property
    def losses_differ(self) -> bool:
        """Whether which blocks are left depends on the arm, so that they are not comparable."""
        return self.losses_p < LOSSES_DIFFER_P


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetReport:
    """What an experiment on many nodes showed."""

    plan: ExperimentPlan
    """That of one node; they differ in the seed and the treatment only."""
    treatments: tuple[TreatmentReport, ...]
    running: int
    """On how many nodes it still runs."""
    is_final: bool
    """Whether it ended on all nodes as it was planned. Until then whether a measure is significant
    is judged by the interval that holds at every look."""

    @property
    def broken(self) -> tuple[str, ...]:
        """The nodes on which the treatment certainly kept the target less often."""
        return tuple(
            name
            for one in self.treatments
            for name, part in one.nodes.items()
            if part.progress is Progress.GUARDRAIL
        )


def report_on_fleet(part: Mapping[str, Experiment]) -> FleetReport:
    """Analyse an experiment on many nodes, also while it runs.

    Nodes that their guardrail stopped count with the pairs that they have: without them only nodes
    on which the treatment does well would be left.

    Args:
        part: What each node ran.

    Raises:
        MeasureError: If there is no node.
    """
    if not part:
        raise MeasureError(
            "No node takes part in an experiment on many nodes.",
            next_step="Start one: stallward ab start --nodes FILE.",
        )
    by_treatment: dict[str, dict[str, Experiment]] = {}
    for name, experiment in part.items():
        by_treatment.setdefault(experiment.plan.treatment.sha256, {})[name] = experiment
    plan = next(iter(part.values())).plan
    is_final = all(one.progress in _AS_PLANNED for one in part.values())
    alpha = _ALPHA / len(by_treatment)
    pooled = {key: _ratios(nodes.values(), alpha) for key, nodes in by_treatment.items()}
    significant = _significant(pooled, plan.primary, is_final=is_final)
    return FleetReport(
        plan=plan,
        treatments=tuple(
            TreatmentReport(
                treatment=next(iter(nodes.values())).plan.treatment,
                nodes={name: _node(one) for name, one in nodes.items()},
                ratios=pooled[key],
                significant={
                    measure: significant[key, measure]
                    and all(all_have_ratios(one.blocks, measure) for one in nodes.values())
                    for measure in pooled[key]
                },
                losses_p=_losses_p(nodes.values()),
            )
            for key, nodes in by_treatment.items()
        ),
        running=sum(one.progress is Progress.RUNNING for one in part.values()),
        is_final=is_final,
    )


def _node(experiment: Experiment) -> NodePart:
    known = np.array(log_ratios(experiment.blocks, experiment.plan.primary))
    return NodePart(
        progress=experiment.progress,
        blocks=len(experiment.blocks),
        lost_blocks=sum(one.loss is not Loss.NONE for one in experiment.blocks),
        ratio=mean_interval(known) if known.size else UNKNOWN,
    )


def _ratios(nodes: Iterable[Experiment], alpha: float) -> dict[PrimaryMeasure, PooledRatio]:
    """Every measure that is known; ``alpha`` is that of the interval that always holds."""
    ratios = {}
    experiments = list(nodes)
    for measure in PrimaryMeasure:
        known = [log_ratios(one.blocks, measure) for one in experiments]
        behind = [
            len(pairs)
            for one, pairs in zip(experiments, known, strict=True)
            if one.progress is Progress.RUNNING
        ]
        seed = (experiments[0].plan.fleet_seed or 0) % (1 << 32)
        try:
            ratios[measure] = pooled_ratio(
                known, rounds=min(behind, default=None), alpha=alpha, seed=seed
            )
        except MeasureError:  # no pair is known
            continue
    return ratios


def _significant(
    pooled: Mapping[str, dict[PrimaryMeasure, PooledRatio]],
    primary: PrimaryMeasure,
    *,
    is_final: bool,
) -> dict[tuple[str, PrimaryMeasure], bool]:
    """Whether each measure of each treatment differs."""
    every = {
        (key, measure): one for key, ratios in pooled.items() for measure, one in ratios.items()
    }
    significant = dict.fromkeys(every, False)
    for is_primary in (True, False):
        if is_primary and not is_final:
            # Their intervals are wide enough for all treatments together.
            found = {at: one.always.excludes(1.0) for at, one in every.items() if at[1] is primary}
        else:
            found = holm(
                {
                    at: one.p_value
                    for at, one in every.items()
                    if (at[1] is primary) is is_primary and one.p_value is not None
                },
                alpha=_ALPHA,
            )
        significant |= found
    return significant


def _losses_p(nodes: Iterable[Experiment]) -> float:
    """Compare the losses of both arms, in the pairs of which both blocks ended."""
    lost_alone = dict.fromkeys(Arm, 0)
    for experiment in nodes:
        pairs: dict[int, list[BlockResult]] = {}
        for block in experiment.blocks:
            pairs.setdefault(block.pair, []).append(block)
        for pair in pairs.values():
            lost = [one.arm for one in pair if one.loss is not Loss.NONE]
            if len(pair) == len(Arm) and len(lost) == 1:
                lost_alone[lost[0]] += 1
    return unevenly_lost_p(lost_alone[Arm.BASELINE], lost_alone[Arm.TREATMENT])
