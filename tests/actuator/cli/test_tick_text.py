"""Ticks and the status as text."""

from __future__ import annotations

import json

import pytest

from stallward.actuator.cli.status_text import status_rows, status_values
from stallward.actuator.cli.tick_text import TickPrinter
from stallward.actuator.client.status import STATUS
from stallward.actuator.guard.changes import GuardChange, GuardRule, Unit, Wish
from stallward.actuator.record.reasons import DecisionLate, Fault, Reasons
from stallward.actuator.record.tick_record import NamedDecision, TickRecord
from stallward.actuator.record.wire import TICK_RECORD
from stallward.agent.controller import Decision
from stallward.agent.desired import MIB, DesiredState, SlotDesire
from stallward.agent.sample import (
    GroupSample,
    LatencySample,
    NodeSample,
    PsiTotals,
    Sample,
    SlotState,
)
from stallward.proto.v1 import stallward_pb2 as pb


def _record(sequence: int, stalled_us: int) -> TickRecord:
    psi = PsiTotals(memory_some_us=stalled_us)
    sample = Sample(
        sequence=sequence,
        time_s=0.1 * sequence,
        node=NodeSample(),
        zone=GroupSample(
            name="stallward/1", psi=psi, memory_usage_bytes=500 * MIB, memory_limit_bytes=600 * MIB
        ),
        protected=GroupSample(name="stallward/1/app", psi=psi),
        slots=(
            GroupSample(name="stallward/1/slot0", memory_usage_bytes=300 * MIB, swap_bytes=MIB),
        ),
        slot_states=(SlotState(paused=True, paused_for_s=1.2, limit_bytes=100 * MIB),),
        latency=LatencySample(completed=15, p95_ms=812.4),
    )
    return TickRecord(
        sequence=sequence,
        time_s=sample.time_s,
        wall_time_s=0.0,
        sample=sample,
        observation=(),
        decision=NamedDecision(
            controller="ppo", decision=Decision(desired=DesiredState(), reason="policy")
        ),
        granted=DesiredState(slots=(SlotDesire(paused=True, limit_bytes=100 * MIB),)),
        reasons=Reasons(
            fault=Fault(controller="ppo", cause=DecisionLate(took_s=0.06, limit_s=0.05)),
            changes=(
                GuardChange(
                    rule=GuardRule.MAX_PAUSE,
                    wish=Wish.PAUSE,
                    slot=0,
                    group="stallward/1/slot0",
                    found=4.9,
                    bound=5.0,
                    unit=Unit.SECONDS,
                ),
            ),
        ),
    )


def test_a_line_holds_the_inputs_the_decision_and_the_guard() -> None:
    printer = TickPrinter()
    first, second = printer.line(_record(1, 0)), printer.line(_record(2, 50_000))
    assert "stall app -" in first, "one tick has no rate"
    assert "\n" not in second
    for part in (
        "p95 812.4 ms",
        "stall app 50 %",
        "mem 500/600 MiB",
        "0:slot0 300+1 MiB paused 1.2 s limit 100",
        "-> ppo: policy",
        "pause 0, limit 0 to 100 MiB",
        "guard: fallback, decision late: ppo: 60 ms",
        "guard: stallward/1/slot0: not paused, paused 4.9 s of at most 5 s",
    ):
        assert part in second


def test_slots_go_by_their_number_and_the_name_in_the_configuration() -> None:
    assert "| 0:training 300+1 MiB" in TickPrinter(names=("training",)).line(_record(1, 0))


def test_json_lines_hold_the_same() -> None:
    printer = TickPrinter(as_json=True)
    printer.line(_record(1, 0))
    printed = json.loads(printer.line(_record(2, 50_000)))
    assert printed["protected_stall_share"] == pytest.approx(0.5)
    assert printed["slots"][0]["paused"] is True
    assert printed["controller"] == "ppo"
    assert printed["fault"] == "decision_late"
    assert printed["guard_changes"] == [
        {
            "rule": "max_pause",
            "wish": "pause",
            "slot": 0,
            "pid": None,
            "lever": None,
            "found": 4.9,
            "bound": 5.0,
            "unit": "s",
        }
    ]
    assert printed["guard_notes"] == [
        "fallback, decision late: ppo: 60 ms",
        "stallward/1/slot0: not paused, paused 4.9 s of at most 5 s",
    ]


def test_a_status_says_what_became_of_the_latency_sources_input() -> None:
    source = pb.LatencySourceStatus(
        source="statsd",
        fault="has no timing named a, but these: b",
        accepted=1200,
        malformed=3,
        ignored_names=17,
        first_malformed="a:00x|ms",
        names=["b", "c.d"],
    )
    status = STATUS.from_wire(pb.StatusResponse(latency_source=source))
    rows = dict(status_rows(status))
    assert rows["latencies from"] == (
        "statsd, 1200 accepted, 3 malformed, 17 ignored names, has no timing named a, but these: b"
    )
    assert (rows["first malformed"], rows["other names"]) == ("a:00x|ms", "b, c.d")
    latency = status_values(status)["latency"]
    assert (latency["accepted"], latency["ignored_names"], latency["lost"]) == (1200, 17, 0)
    assert latency["other_names"] == ["b", "c.d"]
    assert json.dumps(latency)
    nowhere = STATUS.from_wire(pb.StatusResponse())
    assert dict(status_rows(nowhere))["latencies from"] == "nowhere"
    assert status_values(nowhere)["latency"] is None


def test_the_status_says_where_the_work_of_each_slot_is_counted() -> None:
    sources = [
        pb.WorkSourceStatus(source=pb.WORK_SOURCE_CPU, unit="cpu-s"),
        pb.WorkSourceStatus(source=pb.WORK_SOURCE_FILE, unit="steps", fault="/n is not reported"),
    ]
    status = STATUS.from_wire(pb.StatusResponse(slots=["a", "b"], work_sources=sources))
    rows = dict(status_rows(status))
    assert rows["work of a"] == "its processor time"
    assert rows["work of b"] == "steps, from file, /n is not reported"
    values = status_values(status)["work"]
    assert values[0] == {"slot": "a", "source": "cpu", "unit": "cpu-s", "fault": None}
    assert json.dumps(values)


def test_the_status_lists_the_levers_of_other_packages() -> None:
    none = STATUS.from_wire(pb.StatusResponse())
    assert "levers of packages" not in dict(status_rows(none))
    status = STATUS.from_wire(pb.StatusResponse(plugged_levers=["bell", "file_pages"]))
    assert dict(status_rows(status))["levers of packages"] == "bell, file_pages"
    assert status_values(status)["plugged_levers"] == ["bell", "file_pages"]


def test_the_status_says_what_the_canary_does() -> None:
    wire = pb.StatusResponse()
    assert dict(status_rows(STATUS.from_wire(wire)))["canary"] == "off"
    wire.canary.SetInParent()
    assert dict(status_rows(STATUS.from_wire(wire)))["canary"] == "not watching now"
    wire.canary.MergeFrom(pb.CanaryStatus(watching=True, left_s=90.0, attainment_before=0.985))
    row = dict(status_rows(STATUS.from_wire(wire)))["canary"]
    assert row == "90 s left; target kept unknown, before 98.5 %"
    values = status_values(STATUS.from_wire(wire))["canary"]
    assert (values["watching"], values["attainment"]) == (True, None)
    gone = pb.StatusResponse(canary=pb.CanaryStatus(returned="The policy x was turned off."))
    assert dict(status_rows(STATUS.from_wire(gone)))["canary"] == "The policy x was turned off."


def test_a_status_begins_with_how_the_application_is_and_what_is_held() -> None:
    wire = pb.StatusResponse(
        slots=["training"],
        slo_ms=100.0,
        last_tick=TICK_RECORD.to_wire(_record(1, 0)),
        missing=[f"signal {number}: not here" for number in range(9)],
    )
    status = STATUS.from_wire(wire)
    rows = dict(status_rows(status))
    assert rows["latency"].endswith("of at most 100 ms")
    assert "training 300" in rows["memory, MiB"]
    assert "training" in rows["now"]
    assert rows["because"]
    assert rows["missing"] == "9 signals and levers; --all lists them"
    assert [row for row in status_rows(status, everything=True) if row[0] == "missing"] == [
        ("missing", f"signal {number}: not here") for number in range(9)
    ]
