"""Replay compares the reasons of a tick; those of newer versions are read."""

from __future__ import annotations

import math
from dataclasses import replace

from scripted_engine import Scripted, scripted_engine, tick_record
from tick_replay import replay

from stallward.actuator.engine.interface import EngineSettings
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.guard.changes import GuardRule, Wish
from stallward.actuator.record import wire
from stallward.actuator.record.reasons import (
    DecisionLate,
    Fault,
    FaultKind,
    NoDetails,
)
from stallward.actuator.record.reasons_text import reason_notes
from stallward.actuator.record.tick_record import TickRecord
from stallward.agent.desired import DesiredState, SlotDesire
from stallward.agent.testing import CONTEXT, make_sample
from stallward.env.recording.recording import action_columns
from stallward.proto.v1 import stallward_pb2 as pb

PAUSE = SlotDesire(paused=True)


def test_reasons_of_a_newer_version_are_read_as_far_as_they_are_known() -> None:
    message = pb.TickRecord(fallback=True)
    message.reasons.fault.controller = "rule"
    message.reasons.fault.kind = pb.FAULT_KIND_LATE
    message.reasons.changes.add(rule=99, wish=99, slot=1, group="hog1")
    reasons = wire.REASONS.from_wire(message.reasons)
    late = NoDetails(kind=FaultKind.LATE)
    assert reasons.fault == Fault(controller="rule", cause=late)
    (change,) = reasons.changes
    assert (change.rule, change.wish, change.slot) == (GuardRule.OTHER, Wish.OTHER, 1)
    assert reason_notes(reasons) == (
        "fallback, decision late: rule: no details were recorded",
        "hog1: this version does not know why",
    )


def _recorded(rule: Scripted) -> list[TickRecord]:
    engine = scripted_engine(rule)
    return [
        tick_record(sample, engine.step(sample, late=sample.sequence == 3))
        for sample in map(make_sample, range(6))
    ]


def _replayed(records: list[TickRecord]) -> str | None:
    settings = EngineSettings(context=CONTEXT, budgets=Budgets(), late_s=1.0)
    pausing = Scripted("rule", DesiredState(slots=(PAUSE, SlotDesire(nice=-5))))
    difference = replay(records, pausing, settings=settings, default=Scripted("default"))
    return None if difference is None else difference.field


def test_replay_compares_the_values() -> None:
    rule = Scripted("rule", DesiredState(slots=(PAUSE, SlotDesire(nice=-5))))
    records = _recorded(rule)
    assert _replayed(records) is None
    (change,) = records[1].reasons.changes
    other = replace(change, bound=1.0)
    records[1] = replace(records[1], reasons=replace(records[1].reasons, changes=(other,)))
    assert _replayed(records) == "reasons"


def test_replay_ignores_how_long_a_late_decision_took() -> None:
    records = _recorded(Scripted("rule", DesiredState(slots=(PAUSE, SlotDesire(nice=-5)))))
    fault = records[3].reasons.fault
    assert fault is not None
    slower = replace(fault, cause=DecisionLate(took_s=9.0, limit_s=1.0))
    reasons = replace(records[3].reasons, fault=slower)
    records[3] = replace(records[3], reasons=reasons)
    assert _replayed(records) is None
    another = replace(fault, controller="another")
    records[3] = replace(records[3], reasons=replace(reasons, fault=another))
    assert _replayed(records) == "reasons"


def test_a_nan_among_the_numbers_is_no_difference() -> None:
    engine = scripted_engine(Scripted("rule", DesiredState(slots=(PAUSE, SlotDesire(nice=-5)))))
    sample = make_sample(1)
    strange = replace(sample.slot_states[0], since_thaw_s=math.nan)
    sample = replace(sample, slot_states=(strange, sample.slot_states[1]))
    record = tick_record(sample, engine.step(sample, late=False))
    number = record.reasons.changes[0].found
    assert number is not None
    assert math.isnan(number)
    data = wire.TICK_RECORD.to_wire(record).SerializeToString()
    assert _replayed([wire.TICK_RECORD.from_wire(pb.TickRecord.FromString(data))]) is None


def test_a_column_holds_the_reasons_as_sentences() -> None:
    engine = scripted_engine(Scripted("rule", DesiredState(slots=(PAUSE, SlotDesire(nice=-5)))))
    new = [tick_record(s, engine.step(s, late=False)) for s in map(make_sample, range(2))]
    column = action_columns([wire.TICK_RECORD.to_wire(record) for record in new])["guard_notes"]
    assert column.to_pylist() == ["hog1: nice raised to 0 as no slot goes first"] * 2
