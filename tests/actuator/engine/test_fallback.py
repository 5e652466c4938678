"""When the default controller takes over, and when it hands back."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scripted_engine import Scripted, scripted_engine, tick_record
from tick_replay import replay

from stallward.actuator.engine.engine import MAX_DOUBLINGS, STEADY_TICKS, Engine, Trust
from stallward.actuator.engine.interface import EngineSettings, TickOutcome
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.guard.hold_budget import HoldMemory
from stallward.actuator.record import wire
from stallward.actuator.record.reasons import Cause, Fault, FaultKind, NoSample, SignalLost
from stallward.actuator.record.tick_record import Circumstances, Mode
from stallward.agent.controller import Decision
from stallward.agent.desired import RELEASED, DesiredState, SlotDesire
from stallward.agent.sample import (
    UNBOUND,
    ApplicationSample,
    GroupSample,
    LatencySample,
    NodeSample,
    PsiTotals,
    Sample,
    SlotState,
)
from stallward.agent.testing import CONTEXT, make_sample

PAUSE = DesiredState(slots=(SlotDesire(paused=True), SlotDesire()))
LIMIT = DesiredState(slots=(SlotDesire(limit_bytes=240 << 20), SlotDesire()))
WAIT = 3


def _engine(rule: Scripted, default: Any = LIMIT) -> Engine:
    budgets = Budgets(return_after_ticks=WAIT)
    return scripted_engine(rule, Scripted("default", default), budgets)


def _kind(outcome: TickOutcome) -> FaultKind | None:
    return None if outcome.fault is None else outcome.fault.kind


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (RuntimeError("boom"), FaultKind.RAISED),
        (UnspeakableError(), FaultKind.RAISED),
        (RuntimeError("\ud800" * 1000), FaultKind.RAISED),
        (None, FaultKind.UNUSABLE),
        (PAUSE.slots, FaultKind.UNUSABLE),
        (Decision(desired=None), FaultKind.UNUSABLE),  # type: ignore[arg-type]
        (Decision(desired=DesiredState(slots=(SlotDesire(),) * 3)), FaultKind.UNUSABLE),
        (Decision(desired=PAUSE, action=(-1,)), FaultKind.UNUSABLE),
        (Decision(desired=PAUSE, action=(0.5,)), FaultKind.UNUSABLE),  # type: ignore[arg-type]
        (Decision(desired=PAUSE, action=np.zeros(9)), FaultKind.UNUSABLE),  # type: ignore[arg-type]
        (Decision(desired=PAUSE, score=math.nan), FaultKind.NOT_FINITE),
        (Decision(desired=PAUSE, propensity=math.inf), FaultKind.NOT_FINITE),
        (Decision(desired=PAUSE, propensity=2.0), FaultKind.UNUSABLE),
        (Decision(desired=PAUSE, reason=None), FaultKind.UNUSABLE),  # type: ignore[arg-type]
        (
            Decision(desired=DesiredState(slots=(SlotDesire(cpu_max_cores=math.nan),))),
            FaultKind.NOT_FINITE,
        ),
    ],
)
def test_an_unusable_answer_is_not_followed(answer: Any, fault: FaultKind) -> None:
    outcome = _engine(Scripted("rule", answer)).step(make_sample())
    assert outcome.fault is not None
    assert (outcome.fallback, outcome.fault.controller) == (True, "rule")
    assert outcome.fault.kind is fault
    assert outcome.decision.controller == "default"
    wire.TICK_RECORD.to_wire(tick_record(make_sample(), outcome)).SerializeToString()


def test_a_reason_that_the_wire_does_not_take_is_cleaned() -> None:
    outcome = _engine(Scripted("rule", Decision(desired=PAUSE, reason="\udc80"))).step(
        make_sample()
    )
    assert outcome.decision.decision.reason == "?"


def _gone(sample: Sample, name: str) -> Sample:
    psi = PsiTotals()
    match name:
        case "protected memory pressure":
            return replace(sample, protected=replace(sample.protected, psi=psi))
        case "protected memory use":
            return replace(sample, protected=replace(sample.protected, memory_usage_bytes=None))
        case "zone memory pressure":
            return replace(sample, zone=replace(sample.zone, psi=psi))
        case "zone memory use":
            return replace(sample, zone=replace(sample.zone, memory_usage_bytes=None))
        case _:
            return replace(sample, latency=None)


def _whole(tick: int, some_us: int = 0) -> Sample:
    sample = make_sample(tick, some_us=some_us)
    return replace(sample, protected=replace(sample.protected, memory_usage_bytes=1 << 20))


@pytest.mark.parametrize(
    "name",
    [
        "protected memory pressure", "protected memory use", "zone memory pressure",
        "zone memory use", "request latency",
    ],
)  # fmt: skip
def test_an_essential_signal_that_goes_is_missed(name: str) -> None:
    engine = _engine(Scripted("rule", PAUSE))
    assert engine.step(_gone(_whole(1), name)).fault is None, "it was never there"
    assert engine.step(_whole(2)).fault is None
    outcome = engine.step(_gone(_whole(3), name))
    assert outcome.fault == Fault(controller="rule", cause=SignalLost(signal=name))


def test_the_latencies_of_a_pod_that_is_gone_are_not_missed() -> None:
    """Else the default rule decides while there is none, and until the next one has answered."""

    def tick(number: int, group: GroupSample, latency: LatencySample | None) -> Cause | None:
        fault = engine.step(replace(_whole(number), protected=group, latency=latency)).fault
        return None if fault is None else fault.cause

    engine = _engine(Scripted("rule", PAUSE))
    first, second = (replace(_whole(0).protected, name=name) for name in ("first", "second"))
    assert tick(1, first, LatencySample()) is None
    assert tick(2, GroupSample(name=f"{UNBOUND}protected"), None) is None
    assert tick(3, second, None) is None
    assert tick(4, second, LatencySample()) is None
    assert tick(5, second, None) == SignalLost(signal="request latency")


def test_the_latencies_of_one_of_several_applications_are_missed() -> None:
    def tick(
        number: int, latency: LatencySample | None, name: str = "b", held: int | None = 1
    ) -> Cause | None:
        groups = (
            GroupSample(name="a", memory_usage_bytes=1),
            GroupSample(name=name, memory_usage_bytes=held),
        )
        a, b = (
            ApplicationSample(name=label, slo_ms=1.0, group=group, latency=one)
            for label, group, one in zip("ab", groups, (LatencySample(), latency), strict=True)
        )
        fault = engine.step(replace(_whole(number), applications=(a, b))).fault
        return None if fault is None else fault.cause

    engine = _engine(Scripted("rule", PAUSE))
    lost = SignalLost(signal="request latency")
    assert tick(1, None) is None, "they were never there"
    assert tick(2, LatencySample()) is None
    assert tick(3, None) == lost
    assert tick(4, None) == lost
    assert tick(5, None, name=f"{UNBOUND}b") != lost, "its pod is gone"
    assert tick(6, None, name="b2") != lost, "another pod may not have answered yet"
    assert tick(7, LatencySample(), name="b2") != lost
    assert tick(8, None, name="b2") == lost
    assert tick(9, None, name="b2", held=None) != lost, "the service was stopped"
    assert tick(10, None, name="b2") != lost, "it has just been started"


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"time_s": 1000.1}, FaultKind.STALE),
        ({"time_s": 999.0}, FaultKind.STALE),
        ({"time_s": math.nan}, FaultKind.INVALID),
        ({"slots": ()}, FaultKind.INVALID),
        ({"slot_states": (SlotState(),) * 3}, FaultKind.INVALID),
        (
            {"zone": replace(make_sample().zone, psi=PsiTotals(memory_some_us=3))},
            FaultKind.INVALID,
        ),
        ({"zone": replace(make_sample().zone, memory_usage_bytes=10**400)}, FaultKind.INVALID),
    ],
)
def test_no_controller_decides_on_an_invalid_sample(
    change: dict[str, Any], fault: FaultKind
) -> None:
    rule = Scripted("rule", PAUSE)
    engine = _engine(rule)
    engine.step(make_sample(1, some_us=5))
    asked = rule.decisions
    outcome = engine.step(replace(make_sample(2, some_us=5), **change))
    assert (_kind(outcome), rule.decisions) == (fault, asked)
    assert np.isfinite(outcome.observation).all()
    assert outcome.decision.controller == "default"


@pytest.mark.parametrize(
    ("age_s", "fault"), [(0.4, None), (0.6, FaultKind.STALE), (math.nan, FaultKind.STALE)]
)
def test_an_old_sample_is_stale(age_s: float, fault: FaultKind | None) -> None:
    about = Circumstances(sample_age_s=age_s)
    outcome = _engine(Scripted("rule", PAUSE)).step(make_sample(), circumstances=about)
    assert _kind(outcome) is fault


def test_blind_ticks_before_a_sample_are_a_fault() -> None:
    engine = _engine(Scripted("rule", PAUSE))
    outcome = engine.step(make_sample(), circumstances=Circumstances(blind_ticks=2))
    assert outcome.fault == Fault(controller="rule", cause=NoSample(ticks=2))


def test_blind_ticks_do_not_forget_that_the_kernel_killed_under_a_limit() -> None:
    engine = scripted_engine(Scripted("rule", LIMIT), Scripted("default", LIMIT), Budgets())
    in_force: int | None = None

    def granted(tick: int, kills: int, blind_ticks: int = 0) -> int | None:
        nonlocal in_force
        sample = make_sample(tick)
        state = SlotState(reference_bytes=300 << 20, limit_bytes=in_force, since_thaw_s=60.0)
        outcome = engine.step(
            replace(
                sample,
                slots=(replace(sample.slots[0], oom_kills=kills), *sample.slots[1:]),
                slot_states=(state, *sample.slot_states[1:]),
            ),
            late=False,
            circumstances=Circumstances(blind_ticks=blind_ticks),
        )
        in_force = outcome.granted.slots[0].limit_bytes
        return in_force

    assert granted(1, kills=0) == LIMIT.slots[0].limit_bytes
    assert granted(2, kills=1) is None
    assert granted(3, kills=1, blind_ticks=1) is None
    assert granted(4, kills=1) is None


def test_nothing_was_held_back_in_blind_ticks() -> None:
    engine = scripted_engine(Scripted("rule", LIMIT), Scripted("default", LIMIT), Budgets())
    psi, lasts_s = PsiTotals(memory_some_us=0), Budgets().pressure_lasts_s
    calm = replace(
        make_sample(),
        node=NodeSample(memory_total_bytes=16 << 30, memory_available_bytes=12 << 30),
        zone=GroupSample(
            name="/", psi=psi, memory_usage_bytes=4 << 30, memory_limit_bytes=8 << 30
        ),
        protected=GroupSample(
            name="app", psi=psi, memory_usage_bytes=1 << 30, refault_file_pages=0
        ),
    )

    def tick(time_s: float, blind_ticks: int = 0) -> HoldMemory:
        about = Circumstances(blind_ticks=blind_ticks)
        engine.step(replace(calm, time_s=time_s), late=False, circumstances=about)
        return engine.memory.holds

    before = [tick(time_s) for time_s in (1.0, lasts_s + 2.0, lasts_s + 3.0)][-1]
    assert before.held
    assert not before.explained
    assert tick(lasts_s + 3603.0, blind_ticks=7200).used_s < 2.0


def test_the_policy_returns_after_good_ticks_in_a_row() -> None:
    rule = Scripted("rule", PAUSE)
    engine = _engine(rule)
    faults = []
    for tick, broken in enumerate([0, 1, 0, 0, 1, 0, 0, 0, 0, 0]):
        rule.answer = RuntimeError("boom") if broken else PAUSE
        faults.append(_kind(engine.step(make_sample(tick))))
    raised, waiting = FaultKind.RAISED, FaultKind.WAITING
    assert faults == [
        None, raised, waiting, waiting, raised, waiting, waiting, waiting, None, None,
    ]  # fmt: skip
    assert engine.counts.fallbacks == {"raised": 2, "waiting": 5}
    assert engine.counts.ticks == 10


def _run(trust: Trust, *ticks: bool, wait: int = WAIT) -> Trust:
    for good in ticks:
        trust = trust.after("policy", None if good else FaultKind.RAISED, wait)
    return trust


def test_each_early_fault_doubles_the_wait_up_to_a_bound() -> None:
    trust, waits = _run(Trust(), True), []
    for _ in range(MAX_DOUBLINGS + 3):
        trust = _run(trust, False)
        waits.append(trust.wait_ticks)
        trust = _run(trust, *[True] * (trust.wait_ticks + 1))
        assert trust.followed
    assert waits[:4] == [3, 6, 12, 24]
    assert waits[-1] == waits[-2] == WAIT << MAX_DOUBLINGS
    trust = _run(trust, *[True] * STEADY_TICKS, False)
    assert trust.wait_ticks == WAIT


def test_a_new_controller_starts_trusted() -> None:
    trust = _run(Trust(), True, False)
    assert not trust.followed
    assert trust.after("other", None, WAIT).followed


def test_without_a_wait_the_next_good_tick_is_followed() -> None:
    assert not _run(Trust(), False, wait=0).followed
    assert _run(Trust(), False, True, wait=0).followed


def _late(engine: Engine, ticks: str) -> list[FaultKind | None]:
    """Run one tick for each character, late for ``!``; returns the faults."""
    first = engine.counts.ticks
    outcomes = [engine.step(make_sample(first + i), late=t == "!") for i, t in enumerate(ticks)]
    return [_kind(outcome) for outcome in outcomes]


LATE, WAITING = FaultKind.LATE, FaultKind.WAITING


@pytest.mark.parametrize(
    ("ticks", "faults"),
    [
        ("..!..", [None, None, LATE, None, None]),
        ("!!.", [LATE, LATE, None]),
        ("!!!....", [LATE, LATE, LATE, WAITING, WAITING, WAITING, None]),
        ("!...!...!.", [LATE, *[None] * 3, LATE, *[None] * 3, LATE, WAITING]),
        ("!....!....!.", [LATE, *[None] * 4, LATE, *[None] * 4, LATE, None]),
    ],
)
def test_only_repeated_lateness_makes_a_controller_wait(
    ticks: str, faults: list[FaultKind | None]
) -> None:
    assert _late(_engine(Scripted("rule", PAUSE)), ticks) == faults


def test_a_controller_that_waits_starts_again_when_it_is_late() -> None:
    engine = _engine(Scripted("rule", PAUSE))
    faults = _late(engine, "!!!..!....")
    assert faults[5:] == [LATE, WAITING, WAITING, WAITING, None]


def test_other_faults_are_no_reason_to_be_lenient() -> None:
    rule = Scripted("rule", PAUSE)
    engine = _engine(rule)
    assert _late(engine, "!") == [LATE]
    rule.answer = RuntimeError("boom")
    assert _late(engine, ".") == [FaultKind.RAISED]
    rule.answer = PAUSE
    assert _late(engine, ".") == [WAITING]


def test_a_lease_is_not_followed_on_a_stale_sample_and_says_so() -> None:
    engine = _engine(Scripted("rule", RELEASED))
    held = engine.step(make_sample(1), remote=PAUSE)
    assert held.granted.slots[0].paused
    stale = engine.step(make_sample(1), remote=PAUSE)
    assert (stale.decision.controller, _kind(stale)) == ("default", FaultKind.STALE)
    assert stale.shadow is not None
    assert stale.shadow.decision.desired == PAUSE
    waiting = engine.step(make_sample(2), remote=PAUSE)
    assert _kind(waiting) is FaultKind.WAITING
    assert engine.step(make_sample(3)).decision.controller == "rule", "the lease lapsed"


def test_fallbacks_replay_bit_for_bit() -> None:
    rule, policy = Scripted("rule", RELEASED), Scripted("policy", PAUSE)
    engine = _engine(rule)
    engine.install(policy)
    engine.set_mode(Mode.ACTIVE)
    records = []
    for tick in range(60):
        repeated = make_sample(tick - (tick % 13 == 5))
        sample = replace(repeated, sequence=tick)
        if tick == 30:
            sample = _gone(sample, "zone memory use")
        about = Circumstances(
            sample_age_s=0.7 if tick == 40 else 0.01,
            horizon_s=0.5 if tick % 2 else None,
            blind_ticks=int(tick == 50),
        )
        remote = LIMIT if 16 <= tick < 24 else None
        outcome = engine.step(sample, remote=remote, late=tick == 28, circumstances=about)
        records.append(tick_record(sample, outcome))
    assert {record.decision.controller for record in records} == {"policy", "default", "remote"}
    difference = replay(
        records,
        Scripted("rule", RELEASED),
        settings=EngineSettings(
            context=CONTEXT, budgets=Budgets(return_after_ticks=WAIT), late_s=1.0
        ),
        default=Scripted("default", LIMIT),
        policy=Scripted("policy", PAUSE),
    )
    assert difference is None
