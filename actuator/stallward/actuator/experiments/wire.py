"""Experiments on the wire."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from stallward.actuator.errors import ExperimentError
from stallward.actuator.experiments.block_tally import BlockResult, Loss
from stallward.actuator.experiments.plan import Arm, Candidate, ExperimentPlan, PrimaryMeasure
from stallward.actuator.experiments.state import ExperimentState, Progress
from stallward.agent.latency_histogram import LatencyHistogram
from stallward.proto.v1 import stallward_pb2 as pb


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Where a running experiment is."""

    block: int
    """The number of the block that runs, from 0."""
    blocks: int
    """How many there are at most."""
    arm: Arm
    measured: bool
    """Whether the block's burn-in is over."""
    left_s: float
    """How long the block still takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """An experiment that runs or ended, as a client sees it."""

    plan: ExperimentPlan
    progress: Progress
    began_s: float
    """When it was started, in Unix time."""
    ended_s: float | None
    blocks: tuple[BlockResult, ...]
    """The blocks that ended, in their order; without their batches."""
    phase: Phase | None
    """Where it is; ``None`` if it ended."""


_LOSSES: Final = {
    loss: "BLOCK_LOSS_UNSPECIFIED" if loss is Loss.NONE else f"BLOCK_LOSS_{loss.name}"
    for loss in Loss
}
_KNOWN_LOSSES: Final = {pb.BlockLoss.Value(name): loss for loss, name in _LOSSES.items()}


def _loss_from_wire(number: int) -> Loss:
    """The loss of a number.

    Raises:
        ExperimentError: If it is none that this version knows.
    """
    if number not in _KNOWN_LOSSES:
        raise _not_understood(f"there is no loss {number}")
    return _KNOWN_LOSSES[number]


def _not_understood(why: str) -> ExperimentError:
    return ExperimentError(
        f"The daemon's answer cannot be understood: {why}.",
        next_step="Use the client of the daemon's version.",
    )


def _arm_from_wire(number: int) -> Arm:
    """The arm of a number.

    Raises:
        ExperimentError: If it is none.
    """
    arms = {pb.ExperimentArm.Value(f"EXPERIMENT_ARM_{arm.name}"): arm for arm in Arm}
    if number not in arms:
        raise _not_understood(f"there is no arm {number}")
    return arms[number]


def _name(value: Enum, prefix: str) -> str:
    return f"{prefix}_{value.name}"


def plan_to_wire(plan: ExperimentPlan) -> pb.ExperimentPlan:
    """A plan as a message."""
    return pb.ExperimentPlan(
        baseline=_candidate_to_wire(plan.baseline),
        treatment=_candidate_to_wire(plan.treatment),
        pairs=plan.pairs,
        block_s=plan.block_s,
        burn_in_s=plan.burn_in_s,
        seed=plan.seed,
        primary=_name(plan.primary, "PRIMARY_MEASURE"),
        stop_when_certain=plan.stop_when_certain,
        margin=plan.margin,
        fleet_seed=plan.fleet_seed,
    )


def plan_from_wire(wire: pb.ExperimentPlan) -> ExperimentPlan:
    """The plan of a message.

    Raises:
        ExperimentError: If a number is out of its range.
    """
    return ExperimentPlan(
        baseline=_candidate_from_wire(wire.baseline),
        treatment=_candidate_from_wire(wire.treatment),
        pairs=wire.pairs,
        block_s=wire.block_s,
        burn_in_s=wire.burn_in_s,
        seed=wire.seed,
        primary=_primary_from_wire(wire.primary),
        stop_when_certain=wire.stop_when_certain,
        margin=wire.margin,
        fleet_seed=wire.fleet_seed if wire.HasField("fleet_seed") else None,
    )


def _primary_from_wire(wire: int) -> PrimaryMeasure:
    if wire == pb.PRIMARY_MEASURE_UNSPECIFIED:
        return PrimaryMeasure.P95
    try:
        return PrimaryMeasure[pb.PrimaryMeasure.Name(wire).removeprefix("PRIMARY_MEASURE_")]
    except ValueError as error:
        raise ExperimentError(f"primary is {wire}, which is no measure.") from error


def _candidate_to_wire(candidate: Candidate) -> pb.Candidate:
    return pb.Candidate(policy=candidate.policy, sha256=candidate.sha256)


def _candidate_from_wire(wire: pb.Candidate) -> Candidate:
    return Candidate(policy=wire.policy, sha256=wire.sha256)


def experiment_to_wire(state: ExperimentState, phase: Phase | None) -> pb.Experiment:
    """An experiment as a message."""
    return pb.Experiment(
        plan=plan_to_wire(state.plan),
        progress=_name(state.progress, "EXPERIMENT_PROGRESS"),
        began_s=state.began_s,
        ended_s=state.ended_s,
        blocks=map(_block_to_wire, state.blocks),
        phase=None if phase is None else phase_to_wire(phase),
    )


def experiment_from_wire(wire: pb.Experiment) -> Experiment:
    """The experiment of a message.

    Raises:
        ExperimentError: If a value is none that this version knows.
    """
    try:
        progress = pb.ExperimentProgress.Name(wire.progress)
        return Experiment(
            plan=plan_from_wire(wire.plan),
            progress=Progress[progress.removeprefix("EXPERIMENT_PROGRESS_")],
            began_s=wire.began_s,
            ended_s=wire.ended_s if wire.HasField("ended_s") else None,
            blocks=tuple(map(_block_from_wire, wire.blocks)),
            phase=phase_from_wire(wire.phase) if wire.HasField("phase") else None,
        )
    except (ValueError, KeyError) as error:
        raise _not_understood(str(error)) from error


def phase_to_wire(phase: Phase) -> pb.ExperimentPhase:
    """A phase as a message."""
    return pb.ExperimentPhase(
        block=phase.block,
        blocks=phase.blocks,
        arm=_name(phase.arm, "EXPERIMENT_ARM"),
        measured=phase.measured,
        left_s=phase.left_s,
    )


def phase_from_wire(wire: pb.ExperimentPhase) -> Phase:
    """The phase of a message."""
    return Phase(
        block=wire.block,
        blocks=wire.blocks,
        arm=_arm_from_wire(wire.arm),
        measured=wire.measured,
        left_s=wire.left_s,
    )


def histogram_from_wire(wire: pb.LatencyHistogram) -> LatencyHistogram:
    """The histogram of a message."""
    return LatencyHistogram.of(dict(zip(wire.buckets, wire.counts, strict=False)))


def _block_to_wire(block: BlockResult) -> pb.ExperimentBlock:
    latencies = block.latencies
    return pb.ExperimentBlock(
        pair=block.pair,
        arm=_name(block.arm, "EXPERIMENT_ARM"),
        began_s=block.began_s,
        loss=_LOSSES[block.loss],
        seconds=block.seconds,
        attainment=block.attainment,
        p95_ms=block.p95_ms,
        worst_ms=block.worst_ms,
        background_cores=block.background_cores,
        background_units_per_s=block.background_units_per_s,
        work_unit=block.work_unit,
        fallback_share=block.fallback_share,
        latencies=None
        if latencies is None
        else pb.LatencyHistogram(buckets=latencies.buckets, counts=latencies.counts),
    )


def _block_from_wire(wire: pb.ExperimentBlock) -> BlockResult:
    return BlockResult(
        pair=wire.pair,
        arm=_arm_from_wire(wire.arm),
        began_s=wire.began_s,
        loss=_loss_from_wire(wire.loss),
        seconds=wire.seconds,
        attainment=wire.attainment if wire.HasField("attainment") else None,
        p95_ms=wire.p95_ms if wire.HasField("p95_ms") else None,
        worst_ms=wire.worst_ms if wire.HasField("worst_ms") else None,
        background_cores=wire.background_cores if wire.HasField("background_cores") else None,
        background_units_per_s=(
            wire.background_units_per_s if wire.HasField("background_units_per_s") else None
        ),
        work_unit=wire.work_unit,
        fallback_share=wire.fallback_share,
        latencies=histogram_from_wire(wire.latencies) if wire.HasField("latencies") else None,
    )
