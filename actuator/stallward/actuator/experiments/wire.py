"""Experiments on the wire."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from stallward.actuator.errors import ExperimentError
from stallward.actuator.experiments.block_tally import BlockResult, Loss
from stallward.actuator.experiments.plan import Arm, ExperimentPlan, PrimaryMeasure
from stallward.actuator.experiments.state import Progress
from stallward.agent.latency_histogram import LatencyHistogram
from stallward.proto.codec import Codec, EnumCodec
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


def _not_understood(what: str) -> Callable[[int], Any]:
    """Return what refuses a number that stands for nothing that this version knows."""

    def refuse(number: int) -> NoReturn:
        raise ExperimentError(
            f"The daemon's answer cannot be understood: there is no {what} {number}.",
            next_step="Use the client of the daemon's version.",
        )

    return refuse


def _measure(number: int) -> PrimaryMeasure:
    """Return the measure of a plan that names none that this version knows.

    Raises:
        ExperimentError: If it names any.
    """
    if number == pb.PRIMARY_MEASURE_UNSPECIFIED:
        return PrimaryMeasure.P95
    raise ExperimentError(f"primary is {number}, which is no measure.")


_ARM: Final = EnumCodec(Arm, pb.ExperimentArm, unknown=_not_understood("arm"))
HISTOGRAM: Final = Codec(LatencyHistogram, pb.LatencyHistogram, make=LatencyHistogram.of_pairs)
PHASE: Final = Codec(Phase, pb.ExperimentPhase, use=(_ARM,))
EXPERIMENT_PLAN: Final = Codec(
    ExperimentPlan,
    pb.ExperimentPlan,
    use=(EnumCodec(PrimaryMeasure, pb.PrimaryMeasure, unknown=_measure),),
)
_BLOCK: Final = Codec(
    BlockResult,
    pb.ExperimentBlock,
    fields={"batches": None},
    use=(
        _ARM,
        HISTOGRAM,
        EnumCodec(
            Loss, pb.BlockLoss, unspecified=Loss.NONE, unknown=_not_understood("loss of a block")
        ),
    ),
)
EXPERIMENT: Final = Codec(
    Experiment,
    pb.Experiment,
    use=(
        EXPERIMENT_PLAN,
        _BLOCK,
        PHASE,
        EnumCodec(Progress, pb.ExperimentProgress, unknown=_not_understood("progress")),
    ),
)
