"""An engine whose controllers give scripted answers, and the records of its ticks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stallward.actuator.engine.engine import Engine
from stallward.actuator.engine.interface import EngineSettings, TickOutcome
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.record import wire
from stallward.actuator.record.tick_record import TickRecord
from stallward.agent.controller import Decision, NodeContext
from stallward.agent.desired import RELEASED, DesiredState
from stallward.agent.sample import Sample
from stallward.agent.testing import CONTEXT, make_sample
from stallward.proto.v1 import stallward_pb2 as pb


class Scripted:
    """A controller that gives the answer that the test has set."""

    needs_processes = False

    def __init__(self, name: str, answer: Any = RELEASED) -> None:
        self.name = name
        self.answer = answer
        self.decisions = 0

    def reset(self, context: NodeContext) -> None:
        pass

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        self.decisions += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        if isinstance(self.answer, DesiredState):
            return Decision(desired=self.answer, score=0.5)
        return self.answer  # type: ignore[no-any-return]


class ScriptedPolicy(Scripted):
    """A scripted controller that looks like a loaded policy."""

    path = Path("policy.onnx")
    sha256 = ""
    schema_hash = ""
    ood_limit = 0.2


def scripted_engine(
    rule: Scripted, default: Scripted | None = None, budgets: Budgets | None = None
) -> Engine:
    settings = EngineSettings(context=CONTEXT, budgets=budgets or Budgets(), late_s=1.0)
    return Engine(settings=settings, configured=rule, default=default or Scripted("default"))


def wire_record(outcome: TickOutcome) -> pb.TickRecord:
    return wire.TICK_RECORD.to_wire(tick_record(make_sample(), outcome))


def tick_record(sample: Sample, outcome: TickOutcome) -> TickRecord:
    return TickRecord(
        sequence=sample.sequence,
        time_s=sample.time_s,
        wall_time_s=0.0,
        sample=sample,
        observation=tuple(outcome.observation.tolist()),
        decision=outcome.decision,
        granted=outcome.granted,
        reasons=outcome.reasons,
        mode=outcome.mode,
        shadow=outcome.shadow,
        fallback=outcome.fallback,
        circumstances=outcome.circumstances,
    )
