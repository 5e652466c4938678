"""Tests of the daemon's metrics: their counts, their server and their documentation."""

from __future__ import annotations

import asyncio
import json
import math
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from free_port import free_port
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families

from stallward.actuator.errors import DaemonError
from stallward.actuator.guard.changes import GuardChange, GuardRule, Wish
from stallward.actuator.record.lever_result import LeverResult
from stallward.actuator.record.reasons import DecisionLate, Fault, FaultKind, Reasons
from stallward.actuator.record.tick_record import Mode, NamedDecision, TickRecord, TickTimings
from stallward.actuator.record.wire import TICK_RECORD
from stallward.actuator.runtime.addresses import Address
from stallward.actuator.service.loop_link import LoopLink
from stallward.actuator.service.metrics.counts import (
    MetricsConfig,
    TickCounts,
    fallback_reason,
    guard_rule,
)
from stallward.actuator.service.metrics.exposition import DaemonMetrics, available_bytes
from stallward.actuator.service.metrics.server import MetricsServer, make_metrics_server
from stallward.actuator.service.metrics.table import METRICS, metrics_page
from stallward.actuator.service.target_seconds import TargetSeconds
from stallward.agent.controller import Decision
from stallward.agent.desired import RELEASED
from stallward.agent.latency_histogram import LOG_WIDTH, LOWEST_MS, LatencyHistogram
from stallward.agent.sample import (
    UNBOUND,
    ApplicationSample,
    GroupSample,
    LatencySample,
    LeverState,
    PsiTotals,
    Sample,
    SlotState,
    WorkSample,
    WorkSource,
)
from stallward.agent.testing import make_sample
from stallward.proto.v1 import stallward_pb2 as pb

ROOT = Path(__file__).parents[3]


def tick(sequence: int, sample: Sample, **changes: object) -> pb.TickRecord:
    """A record at ``sequence`` tenths of a second."""
    values: dict[str, object] = {
        "sequence": sequence,
        "time_s": sample.time_s,
        "wall_time_s": 0.0,
        "sample": sample,
        "observation": (),
        "decision": NamedDecision(
            controller="latd", decision=Decision(desired=RELEASED, reason="")
        ),
        "granted": RELEASED,
        "timings": TickTimings(late_ms=11.0, sense_ms=0.7, apply_ms=3.0),
        "mode": Mode.ACTIVE,
        **changes,
    }
    return TICK_RECORD.to_wire(TickRecord(**values))  # type: ignore[arg-type]


def at(time_s: float, **changes: object) -> Sample:
    made = make_sample()
    protected = replace(made.protected, memory_usage_bytes=1 << 20)
    slots = tuple(replace(slot, cpu_usage_us=4_000_000) for slot in made.slots)
    work = (WorkSample(slot=0, source=WorkSource.FILE, unit="steps", units=7.0),)
    values = {"protected": protected, "slots": slots, "work": work, **changes}
    return replace(made, time_s=time_s, **values)  # type: ignore[arg-type]


def bucket_of(latency_ms: float) -> int:
    """The bucket in which a latency is."""
    return round(math.log(latency_ms / LOWEST_MS) / LOG_WIDTH + 0.5)


def sources_of_two() -> list[pb.ApplicationStatus]:
    """The sources of two applications: one that is fine, and a coarse one that fails."""
    fine = pb.LatencySourceStatus(source="lines")
    failing = pb.LatencySourceStatus(source="statsd", fault="gone", step_ms=10.0, malformed=4)
    return [
        pb.ApplicationStatus(name="db", latency_source=fine),
        pb.ApplicationStatus(name="web", latency_source=failing),
        pb.ApplicationStatus(name="quiet"),
    ]


@pytest.fixture
def link() -> Iterator[LoopLink]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made = LoopLink(ours)
    status = pb.StatusResponse(
        node_kind="hybrid",
        loop_restarts=2,
        missing=["a", "b"],
        uptime_s=5.0,
        latency_source=pb.LatencySourceStatus(
            source="statsd", malformed=3, ignored_names=8, fault="gone", step_ms=1.0
        ),
        applications=sources_of_two(),
        policy=pb.PolicyStatus(name="november", sha256="ab" * 32),
        mode=pb.MODE_SHADOW,
        problems=["a"],
        hold_budget=pb.HoldBudgetStatus(used_s=90.0, allowed_s=180.0, refusing=True),
    )
    theirs.send(pb.LoopMessage(status=status).SerializeToString())
    made.receive()
    yield made
    ours.close()
    theirs.close()


def metrics_of(link: LoopLink, counts: TickCounts) -> DaemonMetrics:
    config = MetricsConfig(slots=("hog0", "hog1"), slo_ms=60.0)
    metrics = DaemonMetrics(counts=counts, link=link, refused={"NOT_FOUND": 4}, config=config)
    metrics.own_status = lambda: pb.StatusResponse(
        met_s=2.5,
        applications=[pb.ApplicationStatus(name="db", met_s=1.0, missed_s=0.5)],
        problems=["metrics: in use"],
        canary=pb.CanaryStatus(watching=True, attainment=0.9, attainment_before=0.95),
        experiment=pb.ExperimentPhase(block=2, blocks=6, arm=pb.EXPERIMENT_ARM_TREATMENT),
    )
    return metrics


def values(metrics: DaemonMetrics) -> dict[str, float]:
    """Every sample as ``name{labels}``."""
    _, body = metrics.render("")
    return {
        sample.name + "".join(f",{v}" for v in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def run_ticks(counts: TickCounts, link: LoopLink) -> None:
    paused = (SlotState(paused=True, limit_bytes=1 << 20), SlotState())
    running = (SlotState(), SlotState())
    moved = (
        LeverResult(lever="pause:hog0", value="1"),
        LeverResult(lever="vm.swappiness", value="7", ok=False, error="no"),
        LeverResult(lever="memory_low:app", value="7", ok=False, error="v1", missing=True),
    )
    foreign = (LeverState(lever="limit:hog1", value="x", held_for_s=0.0, foreign=True),)
    new = LatencyHistogram.of({bucket_of(55.0): 3, bucket_of(61.0): 2})
    latency = LatencySample(
        completed=5, completed_total=105, mean_ms=5, p95_ms=20, max_ms=30, new_requests=new
    )
    late = Fault(controller="latd", cause=DecisionLate(took_s=0.06, limit_s=0.05))
    floor = GuardChange(rule=GuardRule.FLOOR, wish=Wish.LIMIT, slot=0, bound=9.0)
    reasons = Reasons(fault=late, changes=(floor,))
    records = (
        tick(0, at(10.0, slot_states=running, latency=replace(latency, completed_total=100))),
        tick(1, at(10.1, slot_states=paused), applied=moved, fallback=True, reasons=reasons),
        tick(2, at(10.2, slot_states=paused, levers=foreign)),
        tick(3, at(10.3, slot_states=running, levers=foreign)),
        tick(0, at(90.0, slot_states=paused, latency=replace(latency, completed_total=4))),
        tick(1, at(90.1, slot_states=paused, latency=replace(latency, completed_total=9))),
    )
    link.listeners.append(counts.take)
    for record in records:
        link._fan_out(record)


def test_ticks_are_counted(link: LoopLink) -> None:
    counts = TickCounts(60.0)
    run_ticks(counts, link)
    shown = values(metrics_of(link, counts))
    expected = {
        "stallward_ticks_total": 6,
        "stallward_late_ticks_total": 6,
        "stallward_fallback_ticks_total,decision_late": 1,
        "stallward_guard_interventions_total,limit_floor": 1,
        "stallward_lever_moves_total,pause,true": 1,
        "stallward_lever_moves_total,vm.swappiness,false": 1,
        "stallward_step_asides_total,limit": 1,
        "stallward_slot_pauses_total,hog0": 2,
        "stallward_slot_pauses_total,hog1": 0,
        "stallward_slot_paused,hog0": 1,
        "stallward_slot_limit_bytes,hog0": 1 << 20,
        "stallward_requests_total": 109,
        "stallward_request_latency_seconds,p95": 0.02,
        "stallward_slo_seconds": 0.06,
        "stallward_controller_in_force,latd": 1,
        "stallward_policy_mode,active": 1,
        "stallward_policy_mode,off": 0,
        "stallward_policy_mode,advice": 0,
        "stallward_refused_calls_total,NOT_FOUND": 4,
        "stallward_loop_restarts_total": 2,
        "stallward_latency_source_up,statsd": 0,
        "stallward_latency_rejected_total,malformed": 3,
        "stallward_latency_rejected_total,ignored_names": 8,
        "stallward_hold_without_pressure_seconds": 90,
        "stallward_hold_without_pressure_allowed_seconds": 180,
        "stallward_holds_refused": 1,
        "stallward_missing_signals": 2,
        "stallward_problems": 2,
        "stallward_latency_step_seconds": 0.001,
        "stallward_policy_info,shadow,november,abababababab": 1,
        "stallward_target_seconds_total,true": 2.5,
        "stallward_canary_watching": 1,
        "stallward_canary_turned_off": 0,
        "stallward_canary_attainment_ratio,now": 0.9,
        "stallward_canary_attainment_ratio,before": 0.95,
        "stallward_experiment_running": 1,
        "stallward_experiment_arm,treatment": 1,
        "stallward_experiment_block": 3,
        "stallward_experiment_blocks": 6,
        "stallward_slot_work_total,hog0,steps": 7,
        "stallward_request_duration_seconds_bucket,0.05": 0,
        "stallward_request_duration_seconds_bucket,0.06": 9,
        "stallward_request_duration_seconds_bucket,+Inf": 15,
        "stallward_request_duration_seconds_count": 15,
        "stallward_tick_phase_seconds_count,sense": 6,
        "stallward_tick_phase_seconds_bucket,0.0005,sense": 0,
        "stallward_tick_phase_seconds_bucket,0.001,sense": 6,
        "stallward_tick_phase_seconds_bucket,0.0025,apply": 0,
    }
    assert {name: shown.get(name) for name in expected} == expected
    assert not [name for name in shown if "memory_low" in name], "the node does not have it"
    assert shown["stallward_request_duration_seconds_sum"] == pytest.approx(0.861, rel=0.01)
    assert shown["stallward_slot_work_total,hog1,cpu-s"] == 4.0
    # 0.2 s before the loop was started again, 0.1 s after: the gap does not count.
    assert shown["stallward_slot_paused_seconds_total,hog0"] == pytest.approx(0.3)
    assert shown["stallward_start_time_seconds"] == pytest.approx(time.time() - 5.0, abs=2.0)
    assert "stallward_slot_limit_bytes,hog1" not in shown, "no limit is absent, not zero"


def test_the_time_within_the_target_and_above_it_is_counted() -> None:
    """Each tick counts for the time since the one before; gaps, and time without requests, do not."""
    target = TargetSeconds()
    for number, (time_s, p95_ms, slo_ms) in enumerate(
        (
            (10.0, 20.0, 60.0),
            (10.1, 20.0, 60.0),
            (10.6, 61.0, 60.0),
            (10.7, 60.0, 60.0),
            (10.8, None, 60.0),
            (10.9, 20.0, None),
            (90.0, 20.0, 60.0),
        )
    ):
        latency = LatencySample(completed=5, completed_total=5, p95_ms=p95_ms)
        target.take(tick(number, at(time_s, latency=latency), slo_ms=slo_ms))
    assert target.met_s == pytest.approx(0.2)
    assert target.missed_s == pytest.approx(0.5)


@pytest.mark.parametrize(("longest_ms", "missed_s"), [(20.0, 0.0), (3000.0, 2.44), (9000.0, 4.5)])
def test_time_without_answers_is_missed_where_a_request_waited(
    longest_ms: float, missed_s: float
) -> None:
    target = TargetSeconds()
    for number in range(11):
        answered = number in (0, 10)
        latency = LatencySample(
            completed=5 * answered,
            completed_total=5,
            p95_ms=20.0 if answered else None,
            max_ms=longest_ms if answered else None,
        )
        target.take(tick(number, at(10.0 + 0.5 * number, latency=latency), slo_ms=60.0))
    assert target.met_s == pytest.approx(0.5)
    assert target.missed_s == pytest.approx(missed_s)


def two_applications(met_ms: float, missed_ms: float) -> tuple[ApplicationSample, ...]:
    """Two applications with targets of 10 and 40 ms."""
    group = GroupSample(
        name="z/app", memory_usage_bytes=3 << 20, psi=PsiTotals(memory_some_us=2_000_000)
    )
    return tuple(
        ApplicationSample(
            name=name,
            slo_ms=slo_ms,
            group=group,
            latency=LatencySample(completed=1, completed_total=total, p95_ms=p95_ms),
        )
        for name, slo_ms, p95_ms, total in (
            ("db", 10.0, met_ms, 7),
            ("web", 40.0, missed_ms, 3),
        )
    )


def test_each_of_several_applications_has_its_own_figures(link: LoopLink) -> None:
    counts, target = TickCounts(60.0), TargetSeconds()
    link.listeners += [counts.take, target.take]
    for number in range(5):
        both = two_applications(9.0, 41.0 if number else 1.0)
        link._fan_out(tick(number, at(10.0 + number, applications=both)))
    metrics = metrics_of(link, counts)
    metrics.own_status = lambda: pb.StatusResponse(
        applications=[
            pb.ApplicationStatus(name=name, met_s=met_s, missed_s=missed_s)
            for name, (met_s, missed_s) in target.of.items()
        ]
    )
    shown = values(metrics)
    assert shown["stallward_application_slo_seconds,db"] == 0.01
    assert shown["stallward_application_p95_seconds,web"] == pytest.approx(0.041)
    assert shown["stallward_application_memory_bytes,db"] == 3 << 20
    assert shown["stallward_application_stall_seconds_total,web"] == 2.0
    assert shown["stallward_application_target_seconds_total,db,true"] == 4.0
    assert shown["stallward_application_target_seconds_total,web,false"] == 4.0
    assert shown["stallward_application_target_seconds_total,web,true"] == 0.0
    assert shown["stallward_requests_total"] == 10, "of both"
    assert shown["stallward_application_latency_source_up,db,lines"] == 1
    assert shown["stallward_application_latency_source_up,web,statsd"] == 0
    rejected = "stallward_application_latency_rejected_total"
    assert shown[f"{rejected},web,malformed"] == 4
    assert (shown[f"{rejected},web,lost"], shown[f"{rejected},db,malformed"]) == (0, 0)
    assert shown["stallward_application_latency_step_seconds,web"] == pytest.approx(0.01)
    assert "stallward_application_latency_step_seconds,db" not in shown


def test_the_source_of_a_pod_that_is_not_there_is_neither_up_nor_down(link: LoopLink) -> None:
    """Else the alert on a source that gives none would last on each node without such a pod."""
    counts, up = TickCounts(60.0), "stallward_latency_source_up,statsd"
    db, web = two_applications(1.0, 1.0)
    gone = replace(web, group=GroupSample(name=f"{UNBOUND}web"))
    link._fan_out(tick(0, at(10.0, applications=(db, gone))))
    shown = values(metrics_of(link, counts))
    assert shown["stallward_application_latency_source_up,db,lines"] == 1
    assert "stallward_application_latency_source_up,web,statsd" not in shown
    for name, there in (("app", True), (f"{UNBOUND}protected", False)):
        link._fan_out(tick(1, at(10.1, protected=GroupSample(name=name))))
        assert (up in values(metrics_of(link, counts))) == there


def requests_of_two(
    *, db_ms: float, web_ms: float, db_slo_ms: float = 7.0
) -> tuple[ApplicationSample, ...]:
    """Two applications, each with three new requests of one latency."""

    def latency(latency_ms: float) -> LatencySample:
        new = LatencyHistogram.of({bucket_of(latency_ms): 3})
        return LatencySample(completed=3, completed_total=3, new_requests=new)

    db, web = two_applications(1.0, 1.0)
    return (
        replace(db, slo_ms=db_slo_ms, latency=latency(db_ms)),
        replace(web, latency=latency(web_ms)),
    )


def test_each_application_has_a_histogram_with_its_own_target_as_a_bound(link: LoopLink) -> None:
    counts = TickCounts(60.0)
    link.listeners.append(counts.take)
    for number in range(2):
        both = requests_of_two(db_ms=6.5, web_ms=38.0 if number else 44.0)
        link._fan_out(tick(number, at(10.0 + number, applications=both)))
    shown, name = (
        values(metrics_of(link, counts)),
        "stallward_application_request_duration_seconds",
    )
    assert shown[f"{name}_bucket,db,0.005"] == 0
    assert shown[f"{name}_bucket,db,0.007"] == 6, "its target"
    assert f"{name}_bucket,web,0.007" not in shown
    assert (shown[f"{name}_bucket,web,0.04"], shown[f"{name}_count,web"]) == (3, 6)
    assert shown[f"{name}_sum,web"] == pytest.approx(0.246, rel=0.02)
    assert shown["stallward_request_duration_seconds_count"] == 12, "of both"


def test_a_histogram_begins_again_where_its_target_becomes_another(link: LoopLink) -> None:
    """The loop takes another target without a restart of the service."""
    counts = TickCounts(60.0)
    link.listeners.append(counts.take)
    for number, db_slo_ms in enumerate((7.0, 7.0, 8.0)):
        both = requests_of_two(db_ms=7.5, web_ms=1.0, db_slo_ms=db_slo_ms)
        link._fan_out(tick(number, at(10.0 + number, applications=both)))
    shown, name = (
        values(metrics_of(link, counts)),
        "stallward_application_request_duration_seconds",
    )
    assert (shown[f"{name}_bucket,db,0.008"], shown[f"{name}_count,db"]) == (3, 3)
    assert shown[f"{name}_count,web"] == 9


def test_every_metric_of_the_table_is_served_and_no_other(link: LoopLink) -> None:
    counts = TickCounts(60.0)
    run_ticks(counts, link)
    link._fan_out(
        tick(
            2,
            at(
                90.2,
                slot_states=(SlotState(limit_bytes=1 << 20), SlotState()),
                applications=two_applications(1.0, 1.0),
            ),
        )
    )
    _, body = metrics_of(link, counts).render("")
    declared = {
        (line.split()[2], line.split()[3])
        for line in body.decode().splitlines()
        if line.startswith("# TYPE")
    }
    assert declared == {(metric.name, metric.kind) for metric in METRICS}
    labels = {metric.name: metric.labels for metric in METRICS}
    for family in text_string_to_metric_families(body.decode()):
        assert family.samples, f"{family.name} has no value although everything happened"
        for sample in family.samples:
            name = sample.name if sample.name in labels else sample.name.rpartition("_")[0]
            assert set(sample.labels) - {"le"} == set(labels[name])


def test_without_a_loop_little_is_said_and_nothing_fails() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        shown = values(metrics_of(LoopLink(ours), TickCounts(60.0)))
    assert shown["stallward_ticks_total"] == 0
    assert "stallward_build_info" not in str(shown)


def test_openmetrics_is_served_where_it_is_accepted(link: LoopLink) -> None:
    counts = TickCounts(60.0)
    run_ticks(counts, link)
    content_type, body = metrics_of(link, counts).render("application/openmetrics-text")
    assert content_type.startswith("application/openmetrics-text")
    families = parse_openmetrics(body.decode())  # type: ignore[no-untyped-call]
    assert len(list(families)) == len(METRICS)


def test_a_header_that_nobody_can_read_gets_the_metrics(link: LoopLink) -> None:
    metrics = metrics_of(link, TickCounts(60.0))
    content_type, body = metrics.render("application/openmetrics-text;version=1.a.0")
    # Versions of prometheus_client before 0.22 do not look at the number.
    assert content_type.startswith(("text/plain", "application/openmetrics-text"))
    assert b"stallward_ticks_total 0.0\n" in body


def test_promtool_finds_nothing_to_complain_about(link: LoopLink) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian package prometheus)")
    counts = TickCounts(60.0)
    run_ticks(counts, link)
    _, body = metrics_of(link, counts).render("")
    checks: tuple[tuple[list[str], bytes], ...] = (
        (["check", "metrics"], body),
        (["check", "rules", str(ROOT / "docs/reference/alerts.yml")], b""),
        (["check", "rules", str(ROOT / "docs/reference/alerts-kubernetes.yml")], b""),
        (["check", "rules", str(ROOT / "docs/reference/fleet-rules.yml")], b""),
    )
    for arguments, text in checks:
        done = subprocess.run([promtool, *arguments], input=text, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b""), done.stdout + done.stderr


def counted(met_of_ten: dict[str, int]) -> list[dict[str, str]]:
    """Series of two hours in which so many of ten seconds met a target; of the node without a name."""
    series = []
    for name, met in met_of_ten.items():
        of = f'application="{name}",' if name else ""
        metric = f"stallward_{'application_' if name else ''}target_seconds_total"
        for label, share in (("true", met), ("false", 10 - met)):
            title = f'{metric}{{instance="node",job="edge",{of}met="{label}"}}'
            series.append({"series": title, "values": f"0+{6 * share}x120"})
    return series


MISSED = [
    pytest.param({"": 2}, [""], id="the only application"),
    pytest.param({"": 8}, [], id="it is well"),
    pytest.param({"": 1, "db": 9, "web": 2}, ["web"], id="one of two"),
    pytest.param({"": 1, "db": 1, "web": 2}, ["db", "web"], id="both"),
    pytest.param({"": 2, "db": 6, "web": 6}, [""], id="mostly one or the other"),
]


@pytest.mark.parametrize(("met_of_ten", "who"), MISSED)
def test_the_alert_on_the_target_names_the_application_that_misses_it(
    met_of_ten: dict[str, int], who: list[str], tmp_path: Path
) -> None:
    expected = [
        {
            "exp_labels": {
                "severity": "critical",
                "instance": "node",
                "job": "edge",
                **({"application": name} if name else {}),
            },
            "exp_annotations": {
                "summary": f"{name or 'The protected application'} misses its target most of the "
                "time although stallward runs.\n",
                "runbook": "docs/reference/alerts.md#stallwardtargetmissed",
            },
        }
        for name in who
    ]
    alert = {"eval_time": "1h", "alertname": "StallwardTargetMissed", "exp_alerts": expected}
    test = {"interval": "1m", "input_series": counted(met_of_ten), "alert_rule_test": [alert]}
    check_rules(tmp_path, test)


def test_the_alerts_on_sources_name_the_application(tmp_path: Path) -> None:
    node = 'instance="node",job="edge"'
    series = {
        f'stallward_application_latency_source_up{{{node},application="db",source="lines"}}': 0,
        f'stallward_application_latency_source_up{{{node},application="web",source="lines"}}': 1,
        f'stallward_application_latency_step_seconds{{{node},application="web"}}': 0.01,
        f'stallward_application_slo_seconds{{{node},application="web"}}': 0.05,
        f'stallward_application_slo_seconds{{{node},application="db"}}': 5,
    }
    test = {
        "interval": "1m",
        "input_series": [{"series": s, "values": f"{v}+0x120"} for s, v in series.items()],
        "alert_rule_test": [
            {
                "eval_time": "1h",
                "alertname": name,
                "exp_alerts": [{"exp_labels": labels, "exp_annotations": annotations}],
            }
            for name, labels, annotations in (
                source_alert("StallwardBlind", "warning", "db", BLIND, source="lines"),
                source_alert("StallwardSourceTooCoarse", "info", "web", COARSE),
            )
        ],
    }
    check_rules(tmp_path, test)


def test_each_daemon_that_is_gone_raises_an_alert_though_others_are_there(tmp_path: Path) -> None:
    def seen(instance: str, minutes: str, version: str = "1") -> dict[str, str]:
        labels = f'instance="{instance}",job="edge",version="{version}"'
        return {"series": f"stallward_build_info{{{labels}}}", "values": minutes}

    def raised(minute: int, *of: Mapping[str, str]) -> dict[str, object]:
        annotations = {
            "summary": "The control loop does not tick: nothing is held, and nothing is protected.",
            "runbook": "docs/reference/alerts.md#stallwardloopgone",
        }
        expected = [
            {"exp_labels": {"severity": "critical", **labels}, "exp_annotations": annotations}
            for labels in of
        ]
        return {
            "alertname": "StallwardLoopGone",
            "eval_time": f"{minute}m",
            "exp_alerts": expected,
        }

    # A value counts for five minutes where, as here, no scrape fails.
    upgraded = (seen("gone", "1x20 _x220"), seen("gone", "_x20 1x30 _x190", version="2"))
    gone, last = ({"instance": name, "job": "edge"} for name in ("gone", "last"))
    check_rules(
        tmp_path,
        {
            "interval": "1m",
            "input_series": [*upgraded, seen("last", "1x120 _x120")],
            "alert_rule_test": [
                raised(30),
                raised(60, gone),
                raised(119),  # it has been gone for an hour
                raised(150, last),
                raised(200, {}),
            ],
        },
    )


def test_the_alert_on_fallbacks_is_one_for_all_reasons_and_says_where_they_are(
    tmp_path: Path,
) -> None:
    of_node = 'instance="node",job="edge"'
    series = [
        {
            "series": f'stallward_fallback_ticks_total{{{of_node},reason="{reason.value}"}}',
            "values": f"0+{a_minute}x120",
        }
        for reason, a_minute in ((FaultKind.LATE, 4), (FaultKind.WAITING, 4))
    ]
    expected = {
        "exp_labels": {"severity": "warning", "instance": "node"},
        "exp_annotations": {
            "summary": "The policy is not followed; stallward ctl status says why.",
            "runbook": "docs/reference/alerts.md#stallwardfallsback",
        },
    }
    alert = {"eval_time": "1h", "alertname": "StallwardFallsBack", "exp_alerts": [expected]}
    check_rules(tmp_path, {"interval": "1m", "input_series": series, "alert_rule_test": [alert]})


BLIND = "No latencies of {} arrive; only stalls show how it is doing.\n"
COARSE = "The latencies of {} come in steps that are too large for the target.\n"


def source_alert(
    alert: str, severity: str, name: str, summary: str, **labels: str
) -> tuple[str, dict[str, str], dict[str, str]]:
    """An alert on the source of one application: its name, labels and annotations."""
    known = {"severity": severity, "instance": "node", "job": "edge", "application": name}
    runbook = f"docs/reference/alerts.md#{alert.lower()}"
    return alert, known | labels, {"summary": summary.format(name), "runbook": runbook}


def check_rules(folder: Path, test: Mapping[str, object]) -> None:
    """Have promtool run a test of the alerts."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian package prometheus)")
    rules = str(ROOT / "docs/reference/alerts.yml")
    file = folder / "test.yml"
    file.write_text(json.dumps({"rule_files": [rules], "tests": [test]}))
    done = subprocess.run(
        [promtool, "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


MACHINE = pb.NodeSample(memory_total_bytes=1000)


@pytest.mark.parametrize(
    ("zone", "available"),
    [
        # A group: its limit less its working set.
        ({"memory_limit_bytes": 800, "memory_usage_bytes": 500, "inactive_file_bytes": 90}, 390),
        ({"memory_limit_bytes": 800, "inactive_file_bytes": 90}, None),
        # The machine: anonymous and active file pages are in use.
        ({"anon_bytes": 300, "file_bytes": 200, "inactive_file_bytes": 90}, 590),
        (
            {
                "memory_limit_bytes": 1000,
                "memory_usage_bytes": 999,
                "anon_bytes": 300,
                "file_bytes": 200,
                "inactive_file_bytes": 90,
            },
            590,
        ),
        ({"anon_bytes": 300, "file_bytes": 200}, None),
        ({"file_bytes": 200, "inactive_file_bytes": 90}, None),
    ],
)
def test_what_is_available_is_counted_like_the_kubelet(
    zone: dict[str, int], available: int | None
) -> None:
    sample = pb.Sample(node=MACHINE, zone=pb.GroupSample(name="z", **zone))  # type: ignore[arg-type]
    assert available_bytes(sample) == available


def test_alerts_name_metrics_that_exist() -> None:
    text = "".join(
        (ROOT / f"docs/reference/{name}.yml").read_text()
        for name in ("alerts", "alerts-kubernetes")
    )
    assert text.count("- alert:") == text.count("severity:"), "each says how bad it is"
    headings = re.findall(
        r"^## (\w+)$", (ROOT / "docs/reference/alerts.md").read_text(), re.MULTILINE
    )
    assert headings == re.findall(r"- alert: (\w+)", text), "each has its section"
    assert re.findall(r"runbook: docs/reference/alerts.md#(\w+)", text) == [
        name.lower() for name in headings
    ]
    names = {word.strip("(){}[],") for word in text.replace("(", " ").replace("{", " ").split()}
    used = {name.partition("[")[0] for name in names if name.startswith("stallward_")}
    assert used
    assert used <= {metric.name for metric in METRICS}


def test_the_page_is_generated() -> None:
    page = (ROOT / "docs/reference/metrics.md").read_text()
    assert metrics_page() in page, (
        "stale: put what `python -c 'from stallward.actuator.service.metrics.table import "
        "metrics_page; print(metrics_page())'` prints into docs/reference/metrics.md"
    )


NUMBERS = st.integers(0, 60)


@given(NUMBERS, NUMBERS, NUMBERS)
def test_reasons_of_all_kinds_have_few_labels(kind: int, rule: int, wish: int) -> None:
    record = pb.TickRecord(fallback=True)
    record.reasons.fault.kind = kind  # type: ignore[assignment]
    assert len(fallback_reason(record)) < 40
    change = record.reasons.changes.add(rule=rule, wish=wish)
    assert len(guard_rule(change) or "") < 20


def test_a_fallback_without_a_fault_is_counted_as_other() -> None:
    assert fallback_reason(pb.TickRecord(fallback=True)) == "other"


async def ask(address: Address, request: bytes) -> bytes:
    if address.path:
        reader, writer = await asyncio.open_unix_connection(address.path)
    else:
        reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(request)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    return answer


async def served(address: Address, requests: list[bytes]) -> list[bytes]:
    server = MetricsServer(address, lambda accept: ("text/x", f"accepts {accept}\n".encode()))
    await server.start()
    answers = [await ask(address, request) for request in requests]
    await server.stop()
    return answers


def addresses(tmp_path: Path) -> list[Address]:
    return [Address(host="127.0.0.1", port=free_port()), Address(path=str(tmp_path / "m.sock"))]


def test_only_metrics_are_served(tmp_path: Path) -> None:
    requests = [
        b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: a/b\r\n\r\n",
        b"GET /metrics?x=1 HTTP/1.0\r\n\r\n",
        b"HEAD /metrics HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST /metrics HTTP/1.1\r\n\r\n",
        b"GET /metrics",
        b"x" * 100_000 + b"\r\n\r\n",
        b"\xff\x00\r\n\r\n",
    ]
    for address in addresses(tmp_path):
        answers = asyncio.run(served(address, requests))
        assert [answer.partition(b"\r\n")[0] for answer in answers] == [
            *[b"HTTP/1.1 200 OK"] * 3,
            b"HTTP/1.1 404 Not Found",
            b"HTTP/1.1 405 Method Not Allowed",
            b"",
            b"",
            b"HTTP/1.1 405 Method Not Allowed",
        ]
        assert answers[0].endswith(b"\r\n\r\naccepts a/b\n")
        assert answers[2].endswith(b"\r\n\r\n")
    assert not (tmp_path / "m.sock").exists()


def test_failing_metrics_are_said_once_however_often_they_are_asked_for(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(_accept: str) -> tuple[str, bytes]:
        raise ValueError("no\nnumber")

    async def run() -> list[bytes]:
        address = Address(path=str(tmp_path / "m"))
        server = MetricsServer(address, broken)
        await server.start()
        answers = [await ask(address, b"GET /metrics HTTP/1.1\r\n\r\n") for _ in range(3)]
        await server.stop()
        return answers

    for answer in asyncio.run(run()):
        assert answer.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
        assert b"number" not in answer
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("stallward service: metrics: they cannot be shown (ValueError")


def test_it_is_ready_while_the_loop_ticks(link: LoopLink, tmp_path: Path) -> None:
    address = Address(path=str(tmp_path / "m.sock"))
    config = MetricsConfig(slots=(), slo_ms=60.0, silence_s=1e3)
    server = make_metrics_server(address, link, {}, config, pb.StatusResponse)
    request = b"GET /ready HTTP/1.1\r\n\r\n"

    async def asked() -> list[bytes]:
        await server.start()
        before = await ask(address, request)
        run_ticks(TickCounts(60.0), link)
        answers = [before, await ask(address, request)]
        await server.stop()
        return answers

    before, after = asyncio.run(asked())
    assert before.startswith(b"HTTP/1.1 503 Service Unavailable")
    assert before.endswith(b"the loop does not tick\n")
    assert after.startswith(b"HTTP/1.1 200 OK")


def test_who_connects_and_says_nothing_keeps_no_scraper_out(tmp_path: Path) -> None:
    async def scrape_in_between(address: Address) -> list[bytes]:
        server = MetricsServer(address, lambda _accept: ("text/x", b"metrics\n"))
        await server.start()
        answers: list[bytes] = []
        silent = []
        for _ in range(4):
            silent += [
                await asyncio.open_connection(address.host, address.port) for _ in range(100)
            ]
            answers.append(await ask(address, b"GET /metrics HTTP/1.1\r\n\r\n"))
        for _, writer in silent:
            writer.close()
        await server.stop()
        return answers

    answers = asyncio.run(scrape_in_between(addresses(tmp_path)[0]))
    assert [answer.endswith(b"metrics\n") for answer in answers] == [True] * 4


def test_an_address_that_is_taken_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taker:
        address = Address(host="127.0.0.1", port=taker.getsockname()[1])
        with pytest.raises(DaemonError, match=r"cannot be served at 127.*in use"):
            asyncio.run(served(address, []))
    (tmp_path / "precious").write_text("x")
    with pytest.raises(DaemonError, match="not a socket"):
        asyncio.run(served(Address(path=str(tmp_path / "precious")), []))
    left = tmp_path / "left.sock"
    with socket.socket(socket.AF_UNIX) as abandoned:
        abandoned.bind(str(left))
    asyncio.run(served(Address(path=str(left)), []))


async def served_later(server: MetricsServer, taker: socket.socket) -> tuple[str, bytes]:
    """What is said while a port is taken, and the first answer when it is free again."""
    trying = asyncio.create_task(server.keep_trying(0.01))
    while server.failures < 3:
        await asyncio.sleep(0.005)
    problem = server.problem
    address = Address(host="127.0.0.1", port=taker.getsockname()[1])
    taker.close()
    await asyncio.wait_for(trying, 20.0)
    answer = await ask(address, b"GET /metrics HTTP/1.1\r\n\r\n")
    await server.stop()
    return problem, answer


def test_a_port_that_another_program_has_is_tried_again() -> None:
    """Any user can take a port, and the daemon protects without metrics, too."""
    with socket.create_server(("127.0.0.1", 0)) as taker:
        address = Address(host="127.0.0.1", port=taker.getsockname()[1])
        server = MetricsServer(address, lambda _accept: ("a/b", b"here"))
        problem, answer = asyncio.run(served_later(server, taker))
    assert re.fullmatch(
        r"Metrics cannot be served at 127\.0\.0\.1:\d+: .*in use.* \(tried 3 times, and again .*",
        problem,
    )
    assert answer.endswith(b"here")
    assert server.problem == ""
    assert server.failures >= 3


def test_failures_to_serve_the_metrics_are_counted(link: LoopLink) -> None:
    config = MetricsConfig(slots=(), slo_ms=60.0)
    server = make_metrics_server(Address(path="/nowhere/m"), link, {}, config, pb.StatusResponse)
    server.failures = 7
    _, body = server._render("")
    assert b"stallward_metrics_failures_total 7.0\n" in body
