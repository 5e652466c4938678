"""The table of all metrics, from which the code and docs/reference/metrics.md are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

PHASES: Final = ("sense", "observe", "decide", "guard", "apply")
PHASE_BOUNDS_S: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1)
LATE_S: Final = 0.01
"""A tick that starts later than this after its due time counts as late."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    is_histogram: bool = False

    @property
    def kind(self) -> Literal["counter", "gauge", "histogram"]:
        """Counters have names that end with ``_total``, and no others have."""
        if self.is_histogram:
            return "histogram"
        return "counter" if self.name.endswith("_total") else "gauge"


METRICS: Final = (
    Metric(
        "stallward_build_info",
        "Always 1; the version and the kind of node are labels.",
        labels=("version", "node_kind"),
    ),
    Metric("stallward_start_time_seconds", "When the daemon was started, Unix time."),
    Metric(
        "stallward_loop_silence_seconds",
        "Time since the last tick; it grows while there is no loop.",
    ),
    Metric("stallward_loop_restarts_total", "Times that the loop died and was started again."),
    Metric("stallward_ticks_total", "Ticks."),
    Metric(
        "stallward_late_ticks_total", "Ticks that started more than 10 ms after they were due."
    ),
    Metric(
        "stallward_tick_phase_seconds",
        "Time that a phase of a tick took.",
        labels=("phase",),
        is_histogram=True,
    ),
    Metric(
        "stallward_controller_in_force",
        "1 for the controller whose decision the last tick applied.",
        labels=("controller",),
    ),
    Metric("stallward_policy_mode", "1 for the mode of the loaded policy.", labels=("mode",)),
    Metric(
        "stallward_policy_info",
        "Always 1; which policy is loaded, and in which mode.",
        labels=("name", "sha256", "mode"),
    ),
    Metric(
        "stallward_canary_watching",
        "1 while a policy that was activated is watched; absent if policies are not.",
    ),
    Metric(
        "stallward_canary_attainment_ratio",
        "Share of the seconds that met the target, of what decides now and decided before.",
        labels=("of",),
    ),
    Metric(
        "stallward_canary_turned_off",
        "1 if a policy was turned off because it met the target less often, until one is active again.",
    ),
    Metric("stallward_experiment_running", "1 while an experiment runs."),
    Metric(
        "stallward_experiment_arm",
        "1 for the arm of the experiment that decides now.",
        labels=("arm",),
    ),
    Metric(
        "stallward_experiment_block", "The number of the experiment's block that runs, from 1."
    ),
    Metric("stallward_experiment_blocks", "How many blocks the experiment has at most."),
    Metric("stallward_lease_held", "1 while a remote client decides."),
    Metric(
        "stallward_fallback_ticks_total",
        "Ticks at which the default controller decided instead, by fault.",
        labels=("reason",),
    ),
    Metric(
        "stallward_guard_interventions_total",
        "Times that the guard granted less than was wanted, by guard rule.",
        labels=("rule",),
    ),
    Metric(
        "stallward_hold_without_pressure_seconds",
        "What holds without a sign of memory pressure have used up of their budget.",
    ),
    Metric(
        "stallward_hold_without_pressure_allowed_seconds",
        "The most that they may use up; absent if there is no bound.",
    ),
    Metric(
        "stallward_holds_refused",
        "1 while nothing may be held back, because that budget is used up.",
    ),
    Metric(
        "stallward_lever_moves_total",
        "Attempts to move a lever that the node has, by success.",
        labels=("lever", "ok"),
    ),
    Metric(
        "stallward_step_asides_total",
        "Times that something else had changed a lever, which was then left alone.",
        labels=("lever",),
    ),
    Metric("stallward_slot_paused", "1 while the slot is paused.", labels=("slot",)),
    Metric("stallward_slot_pauses_total", "Times that the slot was paused.", labels=("slot",)),
    Metric(
        "stallward_slot_paused_seconds_total",
        "Time for which the slot was paused.",
        labels=("slot",),
    ),
    Metric(
        "stallward_zone_available_bytes",
        "Memory of the zone that is available as the kubelet counts, which evicts by it.",
    ),
    Metric(
        "stallward_slot_limit_bytes",
        "The limit that the daemon has set; absent while there is none.",
        labels=("slot",),
    ),
    Metric("stallward_slot_memory_bytes", "Memory that the slot uses.", labels=("slot",)),
    Metric(
        "stallward_slot_work_total",
        "The slot's work, in the units of its source; processor time where it has none.",
        labels=("slot", "unit"),
    ),
    Metric("stallward_protected_memory_bytes", "Memory that the protected group uses."),
    Metric(
        "stallward_protected_stall_seconds_total",
        "Pressure stall totals of the protected group.",
        labels=("resource", "kind"),
    ),
    Metric("stallward_slo_seconds", "The latency target of the configuration (slo_ms)."),
    Metric(
        "stallward_request_latency_seconds",
        "Latency over the last window; absent without requests.",
        labels=("stat",),
    ),
    Metric(
        "stallward_application_slo_seconds",
        "Latency target of each application, where there are several.",
        labels=("application",),
    ),
    Metric(
        "stallward_application_p95_seconds",
        "95th percentile of its latencies over the last window; absent without requests.",
        labels=("application",),
    ),
    Metric(
        "stallward_application_target_seconds_total",
        "Time in which the p95 of its last second met its target, and in which it did not.",
        labels=("application", "met"),
    ),
    Metric(
        "stallward_application_request_duration_seconds",
        "Latency of each of its requests; its target is one of the bounds.",
        labels=("application",),
        is_histogram=True,
    ),
    Metric("stallward_application_memory_bytes", "Memory that it holds.", labels=("application",)),
    Metric(
        "stallward_application_stall_seconds_total",
        "Time in which any of its tasks waited for memory.",
        labels=("application",),
    ),
    Metric(
        "stallward_application_latency_source_up",
        "1 while its latencies arrive; absent without a source, and while its pod is not there.",
        labels=("application", "source"),
    ),
    Metric(
        "stallward_application_latency_rejected_total",
        "Values from its latency source that were not accepted as latencies.",
        labels=("application", "reason"),
    ),
    Metric(
        "stallward_application_latency_step_seconds",
        "The step of the latencies in its log; absent where there is none.",
        labels=("application",),
    ),
    Metric(
        "stallward_requests_total", "Requests of the protected application whose latency was seen."
    ),
    Metric(
        "stallward_request_duration_seconds",
        "Latency of each request; the target is one of the bounds.",
        is_histogram=True,
    ),
    Metric(
        "stallward_target_seconds_total",
        "Time in which the p95 of the last second was within the target, or above it.",
        labels=("met",),
    ),
    Metric(
        "stallward_latency_source_up",
        "1 while latencies arrive; absent without a source, and while its pod is not there.",
        labels=("source",),
    ),
    Metric(
        "stallward_latency_step_seconds",
        "The step of the latencies in the log; absent where there is none.",
    ),
    Metric(
        "stallward_latency_rejected_total",
        "Values from the latency source that were not accepted as latencies.",
        labels=("reason",),
    ),
    Metric("stallward_missing_signals", "Signals and levers that this node does not have now."),
    Metric(
        "stallward_problems", "What somebody should look at now; stallward ctl status names it."
    ),
    Metric(
        "stallward_records_dropped_total",
        "Tick records dropped because a watcher or the recorder was too slow.",
    ),
    Metric(
        "stallward_refused_calls_total",
        "Calls of the service that were refused, by gRPC status code.",
        labels=("code",),
    ),
    Metric(
        "stallward_metrics_failures_total",
        "Tries to listen for requests of these metrics that failed, e.g. on a busy port.",
    ),
)


def metrics_page() -> str:
    """The table of docs/reference/metrics.md."""
    lines = ["| metric | labels | meaning |", "| --- | --- | --- |"]
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {labels} | {metric.help} |")
    return "\n".join(lines) + "\n"
