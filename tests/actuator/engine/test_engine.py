"""Decisions without a kernel: the controller in force, its default, and replay."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scripted_engine import tick_record
from tick_replay import replay

from stallward.actuator.engine.engine import Engine
from stallward.actuator.engine.interface import EngineSettings
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.record import wire
from stallward.actuator.record.reasons import (
    ControllerRaised,
    DecisionLate,
    Fault,
    FaultKind,
    OutsideTraining,
    TimeStoodStill,
)
from stallward.actuator.record.tick_record import Mode, TickRecord
from stallward.agent.controller import Controller, Decision, Need, NodeContext
from stallward.agent.desired import RELEASED, DesiredState, SlotDesire, Tuning
from stallward.agent.errors import ControllerError
from stallward.agent.observation.encoder import OBSERVATION_NAMES
from stallward.agent.registry import make_controller
from stallward.agent.sample import Sample
from stallward.agent.testing import CONTEXT, make_sample
from stallward.proto.v1 import stallward_pb2 as pb

PAUSE = DesiredState(slots=(SlotDesire(paused=True), SlotDesire()))
LIMIT = DesiredState(slots=(SlotDesire(limit_bytes=240 << 20), SlotDesire()))


class Fixed:
    """A controller that always wants the same state, or always fails."""

    needs_processes = False

    def __init__(self, name: str, desired: DesiredState | Exception) -> None:
        self.name = name
        self.desired = desired
        self.resets = 0

    def reset(self, context: NodeContext) -> None:
        self.resets += 1

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        if isinstance(self.desired, Exception):
            raise self.desired
        return Decision(desired=self.desired, reason=self.name)


def _engine(rule: Controller, default: Controller | None = None, late_s: float = 1.0) -> Engine:
    settings = EngineSettings(context=CONTEXT, budgets=Budgets(), late_s=late_s)
    return Engine(
        settings=settings, configured=rule, default=default or Fixed("default", RELEASED)
    )


class Retargeted(Fixed):
    """A controller that goes on with another target."""

    slo_ms = 0.0

    def retarget(self, slo_ms: float) -> None:
        self.slo_ms = slo_ms


def test_another_target_and_other_budgets_let_nothing_go() -> None:
    rule, default = Retargeted("rule", LIMIT), Fixed("default", RELEASED)
    engine = _engine(rule, default)
    for k in range(20):
        engine.step(make_sample(k))
    memory, resets = engine.memory, default.resets
    budgets = Budgets(max_pause_s=1.0)
    engine.reconfigure(slo_ms=CONTEXT.slo_ms, budgets=budgets, lacks={}, retarget=False)
    assert engine.memory is memory
    assert engine.guard.budgets is budgets
    assert (rule.resets, default.resets) == (1, resets), "they go on as they were"
    engine.reconfigure(slo_ms=1.0, budgets=budgets, lacks={}, retarget=True)
    assert (rule.slo_ms, rule.resets) == (1.0, 1)
    assert default.resets == resets + 1, "it knows no other way to another target"
    outcome = engine.step(make_sample(20))
    assert outcome.decision.controller == "rule"
    assert outcome.granted.slots[0].limit_bytes == LIMIT.slots[0].limit_bytes


def test_consent_that_is_given_later_counts_for_what_is_loaded_from_then_on() -> None:
    engine = _engine(Fixed("rule", LIMIT))
    lacks = {Need.THREAD_SLICE: "not allowed"}
    same = partial(engine.reconfigure, slo_ms=CONTEXT.slo_ms, budgets=Budgets(), retarget=False)
    same(lacks=lacks)
    with pytest.raises(ControllerError, match=r"thread_slice \(not allowed\)"):
        engine.install(make_controller("bvt"))
    same(lacks={})
    engine.install(make_controller("bvt"))


def test_the_rule_decides() -> None:
    outcome = _engine(Fixed("rule", PAUSE)).step(make_sample())
    assert outcome.decision.controller == "rule"
    assert outcome.granted.slots[0].paused
    assert not outcome.fallback


@pytest.mark.parametrize(
    ("broken", "kind"),
    [
        (RuntimeError("boom"), FaultKind.RAISED),
        (DesiredState(tuning=Tuning(dirty_ratio=float("nan"))), FaultKind.NOT_FINITE),
        (DesiredState(tuning=Tuning(swappiness=201)), FaultKind.UNUSABLE),
    ],
)
def test_a_broken_decision_falls_back(broken: DesiredState | Exception, kind: FaultKind) -> None:
    outcome = _engine(Fixed("rule", broken), Fixed("default", LIMIT)).step(make_sample())
    assert outcome.fallback
    assert outcome.decision.controller == "default"
    assert outcome.fault is not None
    assert (outcome.fault.controller, outcome.fault.kind) == ("rule", kind)


def test_the_demand_in_observations_begins_with_that_of_the_configuration() -> None:
    context = replace(CONTEXT, demand_bytes=CONTEXT.zone_limit_bytes // 2)
    settings = EngineSettings(context=context, budgets=Budgets(), late_s=1.0)
    controller = make_controller("none")
    outcome = Engine(settings=settings, configured=controller, default=controller).step(
        make_sample()
    )
    assert outcome.observation[OBSERVATION_NAMES.index("demand_ratio")] == 0.5


def test_when_everything_is_broken_the_node_is_released() -> None:
    broken = RuntimeError("boom")
    outcome = _engine(Fixed("rule", broken), Fixed("default", broken)).step(make_sample())
    assert outcome.granted == replace(RELEASED, slots=(SlotDesire(), SlotDesire()))
    boom = ControllerRaised(error="boom")
    assert outcome.reasons.fault == Fault(controller="rule", cause=boom)
    assert outcome.reasons.default_fault == Fault(controller="default", cause=boom)


def test_a_late_decision_falls_back() -> None:
    outcome = _engine(Fixed("rule", PAUSE), late_s=0.0).step(make_sample())
    assert outcome.fallback
    assert outcome.fault is not None
    assert isinstance(outcome.fault.cause, DecisionLate)
    assert outcome.fault.cause.took_s > outcome.fault.cause.limit_s == 0.0


def test_a_stale_sample_falls_back() -> None:
    engine = _engine(Fixed("rule", PAUSE))
    engine.step(make_sample(5))
    outcome = engine.step(make_sample(5))
    assert outcome.fallback
    assert outcome.fault == Fault(controller="rule", cause=TimeStoodStill())


def test_a_lease_takes_precedence_over_the_controller() -> None:
    outcome = _engine(Fixed("rule", PAUSE)).step(make_sample(), remote=LIMIT)
    assert outcome.decision.controller == "remote"
    assert not outcome.granted.slots[0].paused


@pytest.mark.parametrize("watching", [Mode.SHADOW, Mode.ADVICE])
def test_modes_of_a_policy(watching: Mode) -> None:
    engine = _engine(Fixed("rule", RELEASED))
    policy = Fixed("policy", PAUSE)
    engine.set_mode(Mode.ACTIVE)
    assert engine.mode is Mode.OFF, "there is no policy yet"
    engine.install(policy)
    assert engine.step(make_sample(1)).decision.controller == "rule"
    engine.set_mode(watching)
    watched = engine.step(make_sample(2))
    assert watched.decision.controller == "rule"
    assert watched.shadow is not None
    assert watched.shadow.decision.desired == PAUSE
    engine.set_mode(Mode.ACTIVE)
    active = engine.step(make_sample(3))
    assert (active.decision.controller, active.shadow) == ("policy", None)
    assert policy.resets == 1, "only on leaving off"


def test_a_policy_outside_its_training_data_is_not_used() -> None:
    class Far(Fixed):
        path = Path("policy.onnx")
        sha256 = ""
        schema_hash = ""
        ood_limit = 0.2

        def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
            return Decision(desired=PAUSE, score=0.5)

    outcome = _engine(Far("policy", PAUSE)).step(make_sample())
    assert outcome.fallback
    assert outcome.fault == Fault(controller="policy", cause=OutsideTraining(score=0.5, limit=0.2))


def _samples(ticks: int) -> list[Sample]:
    rng = np.random.default_rng(1)
    some = np.cumsum(rng.integers(0, 3, ticks) * 1000).tolist()
    full = np.cumsum(rng.integers(0, 2, ticks) * 700).tolist()
    return [make_sample(i, some_us=some[i], full_us=full[i]) for i in range(ticks)]


def _record(engine: Engine, sample: Sample, remote: DesiredState | None = None) -> TickRecord:
    return tick_record(sample, engine.step(sample, remote=remote))


def _over_the_wire(record: TickRecord) -> TickRecord:
    data = wire.TICK_RECORD.to_wire(record).SerializeToString()
    return wire.TICK_RECORD.from_wire(pb.TickRecord.FromString(data))


SPECS = ["latd", "latd-cgroup", "latd-grow", "none", "excite"]


@pytest.mark.parametrize("spec", SPECS)
def test_a_recorded_run_replays_bit_for_bit(spec: str) -> None:
    settings = EngineSettings(context=CONTEXT, budgets=Budgets())
    engine = Engine(
        settings=settings, configured=make_controller(spec), default=make_controller("none")
    )
    records = []
    for sample in _samples(200):
        remote = PAUSE if 50 <= sample.sequence < 60 else None
        records.append(_over_the_wire(_record(engine, sample, remote)))
    twice = [*records, *records]  # the second half is a restarted loop
    assert replay(twice, make_controller(spec), settings=settings) is None


def test_replay_follows_a_policy_through_its_modes() -> None:
    settings = EngineSettings(context=CONTEXT, budgets=Budgets())
    engine = Engine(
        settings=settings, configured=make_controller("latd"), default=make_controller("none")
    )
    engine.install(make_controller("excite"))
    modes = {20: Mode.SHADOW, 40: Mode.ADVICE, 60: Mode.ACTIVE, 120: Mode.OFF, 150: Mode.ACTIVE}
    records = []
    for sample in _samples(200):
        if sample.sequence in modes:
            engine.set_mode(modes[sample.sequence])
        records.append(_over_the_wire(_record(engine, sample)))
    assert any(record.shadow for record in records)
    policy = make_controller("excite")
    difference = replay(records, make_controller("latd"), settings=settings, policy=policy)
    assert difference is None


def test_replay_finds_the_first_difference() -> None:
    settings = EngineSettings(context=CONTEXT, budgets=Budgets())
    engine = _engine(make_controller("latd"))
    records = [_record(engine, sample) for sample in _samples(50)]
    records[20] = replace(records[20], granted=PAUSE)
    difference = replay(records, make_controller("latd"), settings=settings)
    assert difference is not None
    assert (difference.sequence, difference.field) == (20, "granted")


def test_replay_with_another_controller_differs_at_once() -> None:
    engine = _engine(make_controller("latd"))
    records = [_record(engine, sample) for sample in _samples(5)]
    settings = EngineSettings(context=CONTEXT, budgets=Budgets())
    difference = replay(records, make_controller("none"), settings=settings)
    assert difference is not None
    assert (difference.sequence, difference.field) == (0, "decision")
