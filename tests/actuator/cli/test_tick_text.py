"""Ticks and the status as text."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from stallward.actuator.cli.output import table_lines
from stallward.actuator.cli.status_text import folded, status_rows, status_values
from stallward.actuator.cli.tick_text import TickPrinter
from stallward.actuator.client.status import STATUS
from stallward.actuator.guard.changes import GuardChange, GuardRule, Unit, Wish
from stallward.actuator.record.lever_result import LeverResult
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
        "slot0 300+1 MiB paused 1.2 s limit 100",
        "-> ppo: policy",
        "pause 0, limit 0 to 100 MiB",
        "guard: fallback, decision late: ppo: 60 ms",
        "guard: stallward/1/slot0: not paused, paused 4.9 s of at most 5 s",
    ):
        assert part in second


def test_slots_go_by_their_name_in_the_configuration() -> None:
    line = TickPrinter(names=("training",)).line(_record(1, 0))
    assert "| training 300+1 MiB" in line
    assert "pause training, limit training to 100 MiB" in line
    assert "guard: training: not paused, paused 4.9 s of at most 5 s" in line
    printed = json.loads(TickPrinter(as_json=True, names=("training",)).line(_record(1, 0)))
    assert printed["granted"] == "pause training, limit training to 100 MiB"


def test_a_lever_that_the_node_lacks_has_not_failed() -> None:
    lacking = LeverResult(lever="memory_low:app", value="9", ok=False, error="no", missing=True)
    failed = LeverResult(lever="limit:a", value="9", ok=False, error="no")
    line = TickPrinter().line(replace(_record(1, 0), applied=(lacking, failed)))
    assert "memory_low:app is not here" in line
    assert "limit:a failed" in line


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
        met_s=90.0,
        missed_s=10.0,
    )
    status = STATUS.from_wire(wire)
    listed = status_rows(status)
    assert [name for name, _ in listed[:4]] == ["latency", "memory", "training", "because"]
    rows = dict(listed)
    assert rows["latency"] == "p95 812 ms, target 100 ms: missed; met in 90 % of 1.7 minutes"
    assert rows["memory"] == "500 of 600 MiB, of which the application -"
    assert rows["training"] == ("300 MiB and 1 in swap: paused, limit 100 MiB; paused for 1.2 s")
    assert rows["because"] == "policy"
    assert rows["off here"] == "9 signals and levers; --all lists them"
    assert [row for row in status_rows(status, everything=True) if row[0] == "off here"] == [
        ("off here", f"signal {number}: not here") for number in range(9)
    ]


def test_what_somebody_should_look_at_comes_first_and_is_never_folded() -> None:
    lacks = [f"signal {number}: not here" for number in range(9)]
    wire = pb.StatusResponse(missing=["metrics: in use", *lacks], problems=["metrics: in use"])
    rows = status_rows(STATUS.from_wire(wire))
    assert rows[0] == ("problem", "metrics: in use")
    assert dict(rows)["off here"].startswith("9 signals")


def test_a_missing_signal_of_a_slot_is_told_by_the_slots_name() -> None:
    wire = pb.StatusResponse(
        slots=["batch"],
        problems=["slots[0].work: gone"],
        missing=["slots[0].psi.memory_some_us: gone", "slots[7].memory: gone"],
    )
    rows = status_rows(STATUS.from_wire(wire), everything=True)
    assert ("problem", "batch.work: gone") in rows
    assert [what for row, what in rows if row == "off here"] == [
        "batch.psi.memory_some_us: gone",
        "slots[7].memory: gone",
    ]


def test_a_source_that_is_too_coarse_for_the_target_is_said_to_be() -> None:
    for slo_ms, said in ((9.0, True), (10.0, False)):
        source = pb.LatencySourceStatus(source="lines", step_ms=1.0)
        status = STATUS.from_wire(pb.StatusResponse(latency_source=source, slo_ms=slo_ms))
        rows = dict(status_rows(status))
        assert ("too coarse" in rows) is said
        if said:
            assert "steps of 1 ms, and the target of 9 ms" in rows["too coarse"]
            assert "docs/reference/latency.md" in rows["too coarse"]
        assert status_values(status)["latency"]["step_ms"] == 1.0


def test_each_of_several_applications_has_its_rows() -> None:
    source = pb.LatencySourceStatus(source="grpc", accepted=7)
    both = [
        pb.ApplicationStatus(name="db", slo_ms=10.0, latency_source=source, met_s=3, missed_s=1),
        pb.ApplicationStatus(name="web", slo_ms=40.0, met_s=0.0, missed_s=0.0),
    ]
    status = STATUS.from_wire(pb.StatusResponse(slo_ms=50.0, applications=both))
    rows = dict(status_rows(status))
    assert rows["db"] == "p95 not known, target 10 ms; met in 75 % of 4 s"
    assert rows["web"] == "p95 not known, target 40 ms"
    assert "latency" not in rows
    assert rows["db: latencies from"] == "grpc, 7 accepted"
    assert rows["web: latencies from"] == "nowhere"
    values = status_values(status)["applications"]
    assert [one["name"] for one in values] == ["db", "web"]
    assert json.dumps(values)


def test_no_line_of_a_status_is_wider_than_100_columns() -> None:
    rows = folded([("a short one", "x"), ("because", "word " * 60), ("held " * 4, "y" * 300)])
    lines = table_lines(("what", "value"), rows)
    assert max(map(len, lines)) <= 100
    assert [name for name, _ in rows][:4] == ["a short one", "because", "", ""]
    assert "".join(value for name, value in rows if "y" in value) == "y" * 300
