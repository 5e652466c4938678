"""Why a controller is not followed: as values, in words, and as labels of metrics."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from numpy.typing import NDArray
from scripted_engine import Scripted, ScriptedPolicy, scripted_engine, wire_record

from stallward.actuator.engine import engine as ask_controller
from stallward.actuator.engine.engine import Engine
from stallward.actuator.engine.interface import EngineSettings, TickOutcome
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.guard.problem import Flaw, Problem
from stallward.actuator.record.reasons import (
    Cause,
    ControllerRaised,
    DecisionLate,
    DecisionUnfit,
    Fault,
    FaultKind,
    FeatureNotFinite,
    NoDetails,
    NoSample,
    NotObservable,
    OutsideTraining,
    Reasons,
    SampleTooOld,
    SignalLost,
    TimeNotFinite,
    TimeStoodStill,
    TotalWentBack,
    Waiting,
    WrongSlots,
)
from stallward.actuator.record.reasons_text import reason_notes
from stallward.actuator.record.tick_record import Circumstances, Mode
from stallward.actuator.record.wire import REASONS
from stallward.actuator.service.metrics.counts import fallback_reason
from stallward.agent.controller import Decision
from stallward.agent.desired import DesiredState, SlotDesire, Tuning
from stallward.agent.observation.encoder import OBSERVATION_NAMES, OBSERVATION_SIZE
from stallward.agent.testing import CONTEXT, make_sample
from stallward.proto.v1 import stallward_pb2 as pb


def _after_one(changes: dict[str, Any], *, some_us: int = 0) -> TickOutcome:
    """The outcome of the tick after a good one; its sample has ``changes``."""
    engine = scripted_engine(Scripted("rule"))
    engine.step(make_sample(1, some_us=some_us))
    return engine.step(replace(make_sample(2, some_us=some_us), **changes))


def _answering(answer: Any) -> TickOutcome:
    return scripted_engine(Scripted("rule", answer)).step(make_sample())


def _waiting() -> TickOutcome:
    rule = Scripted("rule", RuntimeError("boom"))
    engine = scripted_engine(rule)
    engine.step(make_sample(1))
    rule.answer = DesiredState()
    return engine.step(make_sample(2))


def _aged(age_s: float) -> TickOutcome:
    about = Circumstances(sample_age_s=age_s)
    return scripted_engine(Scripted("rule")).step(make_sample(), circumstances=about)


def _blind() -> TickOutcome:
    about = Circumstances(blind_ticks=2)
    return scripted_engine(Scripted("rule")).step(make_sample(), circumstances=about)


def _outside() -> TickOutcome:
    return scripted_engine(ScriptedPolicy("rule")).step(make_sample())


def _unscored() -> TickOutcome:
    return scripted_engine(ScriptedPolicy("rule", Decision(desired=DesiredState()))).step(
        make_sample()
    )


TUNED = DesiredState(tuning=Tuning(swappiness=201))
NAN = DesiredState(slots=(SlotDesire(cpu_max_cores=math.nan),))
FAULTS: tuple[tuple[Any, Cause, str], ...] = (
    (
        lambda: _after_one({"time_s": 1000.1}),
        TimeStoodStill(),
        "fallback, stale sample: rule: its time did not advance",
    ),
    (
        lambda: _aged(0.61),
        SampleTooOld(age_s=0.61, limit_s=0.5),
        "fallback, stale sample: rule: 0.61 s old, at most 0.5 s",
    ),
    (
        lambda: _after_one({"slots": ()}),
        WrongSlots(slots=0, states=2, expected=2),
        "fallback, invalid sample: rule: 0 slots and 2 states, not 2",
    ),
    (
        lambda: _after_one({"time_s": math.inf}),
        TimeNotFinite(time_s=math.inf),
        "fallback, invalid sample: rule: its time is inf",
    ),
    (
        lambda: _after_one({"protected": make_sample().protected}, some_us=10),
        TotalWentBack(signal="protected memory pressure"),
        "fallback, invalid sample: rule: protected memory pressure went back",
    ),
    (
        _blind,
        NoSample(ticks=2),
        "fallback, invalid sample: rule: none could be read for 2 ticks",
    ),
    (
        lambda: _after_one({"latency": None}),
        SignalLost(signal="request latency"),
        "fallback, signal lost: rule: request latency was there and is gone",
    ),
    (
        lambda: _answering(RuntimeError("boom")),
        ControllerRaised(error="boom"),
        "fallback, controller failed: rule: boom",
    ),
    (
        lambda: _answering(TUNED),
        DecisionUnfit(
            problem=Problem(
                flaw=Flaw.OUT_OF_RANGE, field="swappiness", value="201", low=0.0, high=200.0
            )
        ),
        "fallback, decision unusable: rule: swappiness is 201, outside 0..200",
    ),
    (
        lambda: _answering(NAN),
        DecisionUnfit(
            problem=Problem(flaw=Flaw.NOT_FINITE, field="cpu_max_cores", value="nan", slot=0)
        ),
        "fallback, decision not finite: rule: cpu_max_cores is nan, not finite (slot 0)",
    ),
    (
        _outside,
        OutsideTraining(score=0.5, limit=0.2),
        "fallback, outside the training range: rule: score 0.500 above 0.2",
    ),
    (
        _unscored,
        OutsideTraining(score=None, limit=0.2),
        "fallback, outside the training range: rule: score None, limit 0.2: "
        "they cannot be compared",
    ),
    (
        _waiting,
        Waiting(good_ticks=1, needed_ticks=5),
        "fallback, waiting: rule: 1 of 5 good ticks since its last fault",
    ),
)


@pytest.mark.parametrize(("tick", "cause", "says"), FAULTS, ids=[says for *_, says in FAULTS])
def test_every_fault_names_itself_and_its_numbers(tick: Any, cause: Cause, says: str) -> None:
    outcome = tick()
    assert outcome.fault == Fault(controller="rule", cause=cause)
    assert outcome.fallback
    assert reason_notes(outcome.reasons) == (says,)
    assert fallback_reason(wire_record(outcome)) == outcome.fault.kind.value
    assert REASONS.from_wire(wire_record(outcome).reasons) == outcome.reasons


def test_a_late_decision_says_how_late() -> None:
    ticks = iter([0.0, 0.0, 0.0, 1.5, *[1.5] * 10])
    settings = EngineSettings(context=CONTEXT, budgets=Budgets(), late_s=1.0)
    engine = Engine(
        settings=settings,
        configured=Scripted("rule"),
        default=Scripted("default"),
        clock_s=lambda: next(ticks),
    )
    outcome = engine.step(make_sample())
    cause = DecisionLate(took_s=1.5, limit_s=1.0)
    assert outcome.fault == Fault(controller="rule", cause=cause)
    assert reason_notes(outcome.reasons) == ("fallback, decision late: rule: 1500 ms",)
    assert fallback_reason(wire_record(outcome)) == "decision_late"


def test_a_sample_without_an_observation_says_why() -> None:
    zone = replace(make_sample().zone, memory_usage_bytes=10**400)
    outcome = _after_one({"zone": zone})
    assert outcome.fault is not None
    assert isinstance(outcome.fault.cause, NotObservable)
    assert "too large" in outcome.fault.cause.error
    (note,) = reason_notes(outcome.reasons)
    assert note == f"fallback, invalid sample: rule: {outcome.fault.cause.error}"
    wire = pb.TickRecord(reasons=REASONS.to_wire(outcome.reasons))
    assert fallback_reason(wire) == "invalid_sample"


class NanEncoder:
    """Computes an observation whose second feature is a NaN."""

    def __init__(self, slo_ms: float, demand_bytes: float) -> None:
        pass

    def encode(self, raw: object) -> NDArray[np.float32]:
        observation = np.zeros(OBSERVATION_SIZE, dtype=np.float32)
        observation[1] = np.nan
        return observation


def test_a_feature_that_is_not_finite_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask_controller, "ObservationEncoder", NanEncoder)
    outcome = scripted_engine(Scripted("rule")).step(make_sample())
    feature = OBSERVATION_NAMES[1]
    assert outcome.fault == Fault(controller="rule", cause=FeatureNotFinite(feature=feature))
    (note,) = reason_notes(outcome.reasons)
    assert note == f"fallback, observation not finite: rule: {feature}"
    assert fallback_reason(wire_record(outcome)) == "observation_not_finite"


def test_no_fault_is_untested() -> None:
    tested = {type(cause) for _, cause, _ in FAULTS}
    tested |= {DecisionLate, NotObservable, FeatureNotFinite}
    assert tested == set(get_args(Cause)) - {NoDetails}
    kinds = {cause.kind for _, cause, _ in FAULTS} | {FaultKind.LATE, FaultKind.OBSERVATION}
    assert kinds == set(FaultKind) - {FaultKind.OTHER}


def test_every_kind_of_fault_has_its_label() -> None:
    for kind in FaultKind:
        fault = Fault(controller="x", cause=NoDetails(kind=kind))
        wire = REASONS.to_wire(Reasons(fault=fault))
        assert fallback_reason(pb.TickRecord(reasons=wire)) == kind.value


def test_faults_of_the_default_and_of_a_watched_policy_are_recorded() -> None:
    boom = RuntimeError("boom")
    engine = scripted_engine(Scripted("rule", boom), Scripted("default", boom))
    engine.install(Scripted("policy", boom))
    engine.set_mode(Mode.SHADOW)
    outcome = engine.step(make_sample())
    raised = ControllerRaised(error="boom")
    assert outcome.reasons.default_fault == Fault(controller="default", cause=raised)
    assert outcome.reasons.watched_fault == Fault(controller="policy", cause=raised)
    assert reason_notes(outcome.reasons) == (
        "fallback, controller failed: rule: boom",
        "default default: boom",
        "watched policy: boom",
    )
