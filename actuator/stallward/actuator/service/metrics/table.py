"""The table of all metrics, from which the code and docs/reference/metrics.md are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

PHASES: Final = ("sense", "observe", "decide", "guard", "apply")
PHASE_BOUNDS_S: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1)
LATE_S: Final = 0.01
"""A tick that starts later than this after its due time counts as late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()


METRICS: Final = (
    Metric(
        name="stallward_build_info",
        kind="gauge",
        help="Always 1; the version and the kind of node are labels.",
        labels=("version", "node_kind"),
    ),
    Metric(
        name="stallward_start_time_seconds",
        kind="gauge",
        help="When the daemon was started, Unix time.",
    ),
    Metric(
        name="stallward_loop_silence_seconds",
        kind="gauge",
        help="Time since the last tick; it grows while there is no loop.",
    ),
    Metric(
        name="stallward_loop_restarts_total",
        kind="counter",
        help="Times that the loop died and was started again.",
    ),
    Metric(name="stallward_ticks_total", kind="counter", help="Ticks."),
    Metric(
        name="stallward_late_ticks_total",
        kind="counter",
        help="Ticks that started more than 10 ms after they were due.",
    ),
    Metric(
        name="stallward_tick_phase_seconds",
        kind="histogram",
        help="Time that a phase of a tick took.",
        labels=("phase",),
    ),
    Metric(
        name="stallward_controller_in_force",
        kind="gauge",
        help="1 for the controller whose decision the last tick applied.",
        labels=("controller",),
    ),
    Metric(
        name="stallward_policy_mode",
        kind="gauge",
        help="1 for the mode of the loaded policy.",
        labels=("mode",),
    ),
    Metric(
        name="stallward_policy_info",
        kind="gauge",
        help="Always 1; which policy is loaded, and in which mode.",
        labels=("name", "sha256", "mode"),
    ),
    Metric(
        name="stallward_canary_watching",
        kind="gauge",
        help="1 while a policy that was activated is watched; absent if policies are not.",
    ),
    Metric(
        name="stallward_canary_attainment_ratio",
        kind="gauge",
        help="Share of the seconds that met the target, of what decides now and decided before.",
        labels=("of",),
    ),
    Metric(
        name="stallward_canary_turned_off",
        kind="gauge",
        help="1 if a policy was turned off because it met the target less often.",
    ),
    Metric(
        name="stallward_experiment_running",
        kind="gauge",
        help="1 while an experiment runs.",
    ),
    Metric(
        name="stallward_experiment_arm",
        kind="gauge",
        help="1 for the arm of the experiment that decides now.",
        labels=("arm",),
    ),
    Metric(
        name="stallward_experiment_block",
        kind="gauge",
        help="The number of the experiment's block that runs, from 1.",
    ),
    Metric(
        name="stallward_experiment_blocks",
        kind="gauge",
        help="How many blocks the experiment has at most.",
    ),
    Metric(name="stallward_lease_held", kind="gauge", help="1 while a remote client decides."),
    Metric(
        name="stallward_fallback_ticks_total",
        kind="counter",
        help="Ticks at which the default controller decided instead, by fault.",
        labels=("reason",),
    ),
    Metric(
        name="stallward_guard_interventions_total",
        kind="counter",
        help="Times that the guard granted less than was wanted, by guard rule.",
        labels=("rule",),
    ),
    Metric(
        name="stallward_hold_without_pressure_seconds",
        kind="gauge",
        help="What holds without a sign of memory pressure have used up of their budget.",
    ),
    Metric(
        name="stallward_hold_without_pressure_allowed_seconds",
        kind="gauge",
        help="The most that they may use up; absent if there is no bound.",
    ),
    Metric(
        name="stallward_holds_refused",
        kind="gauge",
        help="1 while nothing may be held back, because that budget is used up.",
    ),
    Metric(
        name="stallward_lever_moves_total",
        kind="counter",
        help="Attempts to move a lever that the node has, by success.",
        labels=("lever", "ok"),
    ),
    Metric(
        name="stallward_step_asides_total",
        kind="counter",
        help="Times that something else had changed a lever, which was then left alone.",
        labels=("lever",),
    ),
    Metric(
        name="stallward_slot_paused",
        kind="gauge",
        help="1 while the slot is paused.",
        labels=("slot",),
    ),
    Metric(
        name="stallward_slot_pauses_total",
        kind="counter",
        help="Times that the slot was paused.",
        labels=("slot",),
    ),
    Metric(
        name="stallward_slot_paused_seconds_total",
        kind="counter",
        help="Time for which the slot was paused.",
        labels=("slot",),
    ),
    Metric(
        name="stallward_zone_available_bytes",
        kind="gauge",
        help="Memory of the zone that is available as the kubelet counts, which evicts by it.",
    ),
    Metric(
        name="stallward_slot_limit_bytes",
        kind="gauge",
        help="The limit that the daemon has set; absent while there is none.",
        labels=("slot",),
    ),
    Metric(
        name="stallward_slot_memory_bytes",
        kind="gauge",
        help="Memory that the slot uses.",
        labels=("slot",),
    ),
    Metric(
        name="stallward_slot_work_total",
        kind="counter",
        help="The slot's work, in the units of its source; processor time where it has none.",
        labels=("slot", "unit"),
    ),
    Metric(
        name="stallward_protected_memory_bytes",
        kind="gauge",
        help="Memory that the protected group uses.",
    ),
    Metric(
        name="stallward_protected_stall_seconds_total",
        kind="counter",
        help="Pressure stall totals of the protected group.",
        labels=("resource", "kind"),
    ),
    Metric(
        name="stallward_slo_seconds",
        kind="gauge",
        help="The latency target of the configuration (slo_ms).",
    ),
    Metric(
        name="stallward_request_latency_seconds",
        kind="gauge",
        help="Latency over the last window; absent without requests.",
        labels=("stat",),
    ),
    Metric(
        name="stallward_application_slo_seconds",
        kind="gauge",
        help="Latency target of each application, where there are several.",
        labels=("application",),
    ),
    Metric(
        name="stallward_application_p95_seconds",
        kind="gauge",
        help="95th percentile of its latencies over the last window; absent without requests.",
        labels=("application",),
    ),
    Metric(
        name="stallward_application_target_seconds_total",
        kind="counter",
        help="Time in which the p95 of its last second met its target, and in which it did not.",
        labels=("application", "met"),
    ),
    Metric(
        name="stallward_application_memory_bytes",
        kind="gauge",
        help="Memory that it holds.",
        labels=("application",),
    ),
    Metric(
        name="stallward_application_stall_seconds_total",
        kind="counter",
        help="Time in which any of its tasks waited for memory.",
        labels=("application",),
    ),
    Metric(
        name="stallward_requests_total",
        kind="counter",
        help="Requests of the protected application whose latency was seen.",
    ),
    Metric(
        name="stallward_request_duration_seconds",
        kind="histogram",
        help="Latency of each request; the target is one of the bounds.",
    ),
    Metric(
        name="stallward_target_seconds_total",
        kind="counter",
        help="Time in which the p95 of the last second was within the target, or above it.",
        labels=("met",),
    ),
    Metric(
        name="stallward_latency_source_up",
        kind="gauge",
        help="1 while latencies arrive; absent without a source.",
        labels=("source",),
    ),
    Metric(
        name="stallward_latency_step_seconds",
        kind="gauge",
        help="The step in which the source gives latencies; absent where there is none.",
    ),
    Metric(
        name="stallward_latency_rejected_total",
        kind="counter",
        help="Values from the latency source that were not accepted as latencies.",
        labels=("reason",),
    ),
    Metric(
        name="stallward_missing_signals",
        kind="gauge",
        help="Signals and levers that this node does not have now.",
    ),
    Metric(
        name="stallward_problems",
        kind="gauge",
        help="What somebody should look at now; stallward ctl status names it.",
    ),
    Metric(
        name="stallward_records_dropped_total",
        kind="counter",
        help="Tick records dropped because a watcher or the recorder was too slow.",
    ),
    Metric(
        name="stallward_refused_calls_total",
        kind="counter",
        help="Calls of the service that were refused, by gRPC status code.",
        labels=("code",),
    ),
    Metric(
        name="stallward_metrics_failures_total",
        kind="counter",
        help="Tries to listen for requests of these metrics that failed, e.g. on a busy port.",
    ),
)


def metrics_page() -> str:
    """The table of docs/reference/metrics.md."""
    lines = ["| metric | kind | labels | meaning |", "| --- | --- | --- | --- |"]
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |")
    return "\n".join(lines) + "\n"
