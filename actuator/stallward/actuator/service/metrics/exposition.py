"""Renders the metrics with prometheus_client. Importing this module costs memory."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from stallward.actuator.latency.counts import REJECTED
from stallward.actuator.service.loop_link import MODES, LoopLink
from stallward.actuator.service.metrics.counts import (
    OTHER,
    MetricsConfig,
    RequestTimes,
    TickCounts,
)
from stallward.actuator.service.metrics.table import METRICS, PHASE_BOUNDS_S, Metric
from stallward.actuator.work.config import CPU_UNIT
from stallward.agent.sample import UNBOUND
from stallward.proto.v1 import stallward_pb2 as pb

_MODES = {mode: name for name, mode in MODES.items()}
_ARMS = {pb.EXPERIMENT_ARM_BASELINE: "baseline", pb.EXPERIMENT_ARM_TREATMENT: "treatment"}
_BY_NAME = {metric.name: metric for metric in METRICS}
Rows = Iterable[tuple[tuple[str, ...], float]]


class DaemonMetrics(Collector):
    """Collects the present values of all metrics in ``METRICS``.

    Args:
        counts: The counts of past ticks.
        link: The connection to the loop, with the newest record and status.
        refused: The number of refused calls by code.
        config: The part of the configuration that the metrics show.
    """

    def __init__(
        self,
        *,
        counts: TickCounts,
        link: LoopLink,
        refused: Mapping[str, int],
        config: MetricsConfig,
    ) -> None:
        self._counts, self._link, self._refused = counts, link, refused
        self._slots, self._slo_ms = config.slots, config.slo_ms
        self.server_failures: Callable[[], int] = lambda: 0
        """How often the server of these metrics could not listen."""
        self.own_status: Callable[[], pb.StatusResponse] = pb.StatusResponse
        """Returns what the service itself knows: problems, canary and experiment."""
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def render(self, accept: str) -> tuple[str, bytes]:
        """The content type and the body for a request with the header ``Accept: accept``."""
        try:
            encoder, content_type = choose_encoder(accept)
        except Exception:  # of several kinds, at a header that it cannot read
            encoder, content_type = choose_encoder("")
        return content_type, encoder(self._registry)

    def collect(self) -> Iterator[Family]:
        """The metric families, in the order of the table."""
        rows = dict(self._rows(self._link.status(), self._link.last))
        for metric in METRICS:
            if metric.name == "stallward_tick_phase_seconds":
                yield self._phases()
            elif metric.name == "stallward_request_duration_seconds":
                yield _request_times(metric, {(): self._counts.request_times})
            elif metric.name == "stallward_application_request_duration_seconds":
                each = self._counts.request_times_of.items()
                yield _request_times(metric, {(name,): times for name, times in each})
            else:
                yield _family(metric.name, rows.get(metric.name, ()))

    def _rows(
        self, status: pb.StatusResponse | None, last: pb.TickRecord | None
    ) -> Iterator[tuple[str, Rows]]:
        yield from self._count_rows()
        yield "stallward_slo_seconds", [((), self._slo_ms / 1e3)]
        own = self.own_status()
        yield from _own_rows(own)
        yield "stallward_refused_calls_total", _by_label(self._refused)
        yield "stallward_metrics_failures_total", [((), self.server_failures())]
        if math.isfinite(self._link.silent_s):
            yield "stallward_loop_silence_seconds", [((), self._link.silent_s)]
        if status is not None:
            yield from _status_rows(status, self._link.watchers.skipped)
            yield "stallward_problems", [((), len(status.problems) + len(own.problems))]
        if last is not None:
            yield from _tick_rows(last, self._slots)

    def _count_rows(self) -> Iterator[tuple[str, Rows]]:
        counts = self._counts
        yield "stallward_ticks_total", [((), counts.ticks)]
        yield "stallward_late_ticks_total", [((), counts.late)]
        yield "stallward_fallback_ticks_total", _by_label(counts.fallbacks)
        yield "stallward_guard_interventions_total", _by_label(counts.rules)
        yield "stallward_step_asides_total", _by_label(counts.step_asides)
        moves = [((lever, str(ok).lower()), n) for (lever, ok), n in counts.moves.items()]
        yield "stallward_lever_moves_total", moves
        slots = list(enumerate(self._slots))
        yield "stallward_slot_pauses_total", [((n,), counts.pauses[i]) for i, n in slots]
        yield (
            "stallward_slot_paused_seconds_total",
            [((n,), counts.paused_s.get(i, 0.0)) for i, n in slots],
        )
        yield "stallward_requests_total", [((), counts.requests)]

    def _phases(self) -> Family:
        metric = _BY_NAME["stallward_tick_phase_seconds"]
        family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for phase, times in self._counts.phases.items():
            buckets = _buckets(PHASE_BOUNDS_S, times.counts)
            family.add_metric((phase,), buckets, sum_value=times.sum_s)
        return family


def _request_times(metric: Metric, each: Mapping[tuple[str, ...], RequestTimes]) -> Family:
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, times in each.items():
        family.add_metric(labels, _buckets(times.bounds_s, times.counts), sum_value=times.sum_s)
    return family


def _buckets(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """The buckets of a histogram, each with all that are below its bound."""
    names = [f"{bound:.12g}" for bound in bounds] + ["+Inf"]
    return list(zip(names, accumulate(map(float, counts)), strict=True))


def _own_rows(own: pb.StatusResponse) -> Iterator[tuple[str, Rows]]:
    """The rows of what the service knows, and not the loop."""
    met = [(("true",), own.met_s), (("false",), own.missed_s)]
    yield "stallward_target_seconds_total", met
    each = [
        ((one.name, within), seconds)
        for one in own.applications
        for within, seconds in (("true", one.met_s), ("false", one.missed_s))
    ]
    yield "stallward_application_target_seconds_total", each
    if own.HasField("canary"):
        canary = own.canary
        yield "stallward_canary_watching", [((), canary.watching)]
        yield "stallward_canary_turned_off", [((), bool(canary.returned))]
        kept = [
            ((of,), getattr(canary, field))
            for of, field in (("now", "attainment"), ("before", "attainment_before"))
            if canary.HasField(field)
        ]
        yield "stallward_canary_attainment_ratio", kept
    running = own.HasField("experiment")
    yield "stallward_experiment_running", [((), running)]
    if running:
        phase = own.experiment
        yield "stallward_experiment_block", [((), phase.block + 1)]
        yield "stallward_experiment_blocks", [((), phase.blocks)]
        yield "stallward_experiment_arm", [((_ARMS.get(phase.arm, OTHER),), 1)]


def _work(sample: pb.Sample, names: tuple[str, ...]) -> Rows:
    """What each slot has done: in its own units, or else in processor time."""
    counted = {one.slot: one for one in sample.work if one.source != pb.WORK_SOURCE_CPU}
    for index, (name, group) in enumerate(zip(names, sample.slots, strict=False)):
        if index in counted:
            yield (name, counted[index].unit), counted[index].units
        elif group.HasField("cpu_usage_us"):
            yield (name, CPU_UNIT), group.cpu_usage_us / 1e6


def _status_rows(status: pb.StatusResponse, skipped: int) -> Iterator[tuple[str, Rows]]:
    yield "stallward_build_info", [((version("stallward"), status.node_kind), 1)]
    yield "stallward_start_time_seconds", [((), time.time() - status.uptime_s)]
    yield "stallward_loop_restarts_total", [((), status.loop_restarts)]
    yield "stallward_lease_held", [((), status.lease_held)]
    yield "stallward_missing_signals", [((), len(status.missing))]
    if status.HasField("policy"):
        policy, mode = status.policy, _MODES.get(status.mode, OTHER)
        yield "stallward_policy_info", [((policy.name, policy.sha256[:12], mode), 1)]
    yield "stallward_records_dropped_total", [((), status.records_dropped + skipped)]
    if status.HasField("hold_budget"):
        budget = status.hold_budget
        yield "stallward_hold_without_pressure_seconds", [((), budget.used_s)]
        yield "stallward_hold_without_pressure_allowed_seconds", [((), budget.allowed_s)]
        yield "stallward_holds_refused", [((), budget.refusing)]
    sample = status.last_tick.sample
    groups = {one.name: one.group for one in sample.applications} or {"": sample.protected}
    away = {name for name, group in groups.items() if group.name.startswith(UNBOUND)}
    if status.HasField("latency_source"):
        source = status.latency_source
        if not away:
            yield "stallward_latency_source_up", [((source.source,), not source.fault)]
        rejected = [((reason,), getattr(source, reason)) for reason in REJECTED]
        yield "stallward_latency_rejected_total", rejected
        step = [((), source.step_ms / 1e3)] if source.step_ms else []
        yield "stallward_latency_step_seconds", step
    sources = [
        (one.name, one.latency_source)
        for one in status.applications
        if one.HasField("latency_source")
    ]
    up = [
        ((name, source.source), not source.fault) for name, source in sources if name not in away
    ]
    yield "stallward_application_latency_source_up", up
    each = [
        ((name, reason), getattr(source, reason))
        for name, source in sources
        for reason in REJECTED
    ]
    yield "stallward_application_latency_rejected_total", each
    steps = [((name,), source.step_ms / 1e3) for name, source in sources if source.step_ms]
    yield "stallward_application_latency_step_seconds", steps


def _tick_rows(last: pb.TickRecord, names: tuple[str, ...]) -> Iterator[tuple[str, Rows]]:
    sample = last.sample
    yield "stallward_controller_in_force", [((last.decision.controller,), 1)]
    modes = [((name,), last.mode == mode) for name, mode in MODES.items()]
    yield "stallward_policy_mode", modes
    states = list(zip(names, sample.slot_states, strict=False))
    yield "stallward_slot_paused", [((name,), state.paused) for name, state in states]
    limits = [((n,), state.limit_bytes) for n, state in states if state.HasField("limit_bytes")]
    yield "stallward_slot_limit_bytes", limits
    used = [
        ((name,), group.memory_usage_bytes)
        for name, group in zip(names, sample.slots, strict=False)
        if group.HasField("memory_usage_bytes")
    ]
    yield "stallward_slot_memory_bytes", used
    yield "stallward_slot_work_total", _work(sample, names)
    available = available_bytes(sample)
    yield "stallward_zone_available_bytes", [] if available is None else [((), available)]
    protected = sample.protected
    if protected.HasField("memory_usage_bytes"):
        yield "stallward_protected_memory_bytes", [((), protected.memory_usage_bytes)]
    stalls = [
        ((resource, kind), getattr(protected.psi, f"{resource}_{kind}_us") / 1e6)
        for resource in ("memory", "io", "cpu")
        for kind in ("some", "full")
        if protected.psi.HasField(f"{resource}_{kind}_us")
    ]
    yield "stallward_protected_stall_seconds_total", stalls
    stats = [
        ((stat,), getattr(sample.latency, f"{stat}_ms") / 1e3)
        for stat in ("mean", "p95", "max")
        if sample.latency.HasField(f"{stat}_ms")
    ]
    yield "stallward_request_latency_seconds", stats
    yield from _application_rows(sample)


def _application_rows(sample: pb.Sample) -> Iterator[tuple[str, Rows]]:
    """What is known of each application, where there are several."""
    each = sample.applications
    yield "stallward_application_slo_seconds", [((one.name,), one.slo_ms / 1e3) for one in each]
    yield (
        "stallward_application_p95_seconds",
        [
            ((one.name,), one.latency.p95_ms / 1e3)
            for one in each
            if one.latency.HasField("p95_ms")
        ],
    )
    yield (
        "stallward_application_memory_bytes",
        [
            ((one.name,), one.group.memory_usage_bytes)
            for one in each
            if one.group.HasField("memory_usage_bytes")
        ],
    )
    yield (
        "stallward_application_stall_seconds_total",
        [
            ((one.name,), one.group.psi.memory_some_us / 1e6)
            for one in each
            if one.group.psi.HasField("memory_some_us")
        ],
    )


def available_bytes(sample: pb.Sample) -> int | None:
    """Return the zone's ``memory.available`` as the kubelet counts it; ``None`` if not known.

    Active file pages are in use there. The machine as a whole has no use of its own: the kubelet
    adds up its anonymous and file pages (cadvisor, opencontainers/cgroups fs2/memory.go).
    """
    zone, node = sample.zone, sample.node
    if not zone.HasField("inactive_file_bytes"):
        return None
    total = node.memory_total_bytes if node.HasField("memory_total_bytes") else 0
    limit = zone.memory_limit_bytes if zone.HasField("memory_limit_bytes") else 0
    if limit and (not total or limit < total):
        if not zone.HasField("memory_usage_bytes"):
            return None
        return limit - max(zone.memory_usage_bytes - zone.inactive_file_bytes, 0)
    if not (total and zone.HasField("anon_bytes") and zone.HasField("file_bytes")):
        return None
    return total - max(zone.anon_bytes + zone.file_bytes - zone.inactive_file_bytes, 0)


def _by_label(counts: Mapping[str, int]) -> Rows:
    return [((label,), count) for label, count in sorted(counts.items())]


def _family(name: str, rows: Rows) -> Family:
    metric = _BY_NAME[name]
    make: Callable[..., CounterMetricFamily | GaugeMetricFamily]
    make = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = make(name, metric.help, labels=metric.labels)
    for labels, value in rows:
        family.add_metric(labels, float(value))
    return family
