"""Renders the metrics with prometheus_client. Importing this module costs memory."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import version

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
from stallward.actuator.service.loop_link import LoopLink
from stallward.actuator.service.metrics.counts import MetricsConfig, TickCounts
from stallward.actuator.service.metrics.table import METRICS, PHASE_BOUNDS_S
from stallward.proto.v1 import stallward_pb2 as pb

_MODES = {
    pb.MODE_OFF: "off",
    pb.MODE_SHADOW: "shadow",
    pb.MODE_ADVICE: "advice",
    pb.MODE_ACTIVE: "active",
}
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
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def render(self, accept: str) -> tuple[str, bytes]:
        """The content type and the body for a request with the header ``Accept: accept``."""
        encoder, content_type = choose_encoder(accept)
        return content_type, encoder(self._registry)

    def collect(self) -> Iterator[Family]:
        """The metric families, in the order of the table."""
        rows = dict(self._rows(self._link.status(), self._link.last))
        for metric in METRICS:
            if metric.kind == "histogram":
                yield self._phases()
            else:
                yield _family(metric.name, rows.get(metric.name, ()))

    def _rows(
        self, status: pb.StatusResponse | None, last: pb.TickRecord | None
    ) -> Iterator[tuple[str, Rows]]:
        yield from self._count_rows()
        yield "stallward_slo_seconds", [((), self._slo_ms / 1e3)]
        yield "stallward_refused_calls_total", _by_label(self._refused)
        yield "stallward_metrics_failures_total", [((), self.server_failures())]
        if math.isfinite(self._link.silent_s):
            yield "stallward_loop_silence_seconds", [((), self._link.silent_s)]
        if status is not None:
            yield from _status_rows(status, self._link.watchers.skipped)
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
        met = [(("true",), counts.met_s), (("false",), counts.missed_s)]
        yield "stallward_target_seconds_total", met

    def _phases(self) -> Family:
        metric = _BY_NAME["stallward_tick_phase_seconds"]
        family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        bounds = [f"{bound:g}" for bound in PHASE_BOUNDS_S] + ["+Inf"]
        for phase, times in self._counts.phases.items():
            cumulative, buckets = 0, []
            for bound, count in zip(bounds, times.counts, strict=True):
                cumulative += count
                buckets.append((bound, cumulative))
            family.add_metric((phase,), buckets, sum_value=times.sum_s)
        return family


def _status_rows(status: pb.StatusResponse, skipped: int) -> Iterator[tuple[str, Rows]]:
    yield "stallward_build_info", [((version("stallward"), status.node_kind), 1)]
    yield "stallward_start_time_seconds", [((), time.time() - status.uptime_s)]
    yield "stallward_loop_restarts_total", [((), status.loop_restarts)]
    yield "stallward_lease_held", [((), status.lease_held)]
    yield "stallward_missing_signals", [((), len(status.missing))]
    yield "stallward_records_dropped_total", [((), status.records_dropped + skipped)]
    if status.HasField("hold_budget"):
        budget = status.hold_budget
        yield "stallward_hold_without_pressure_seconds", [((), budget.used_s)]
        yield "stallward_hold_without_pressure_allowed_seconds", [((), budget.allowed_s)]
        yield "stallward_holds_refused", [((), budget.refusing)]
    if status.HasField("latency_source"):
        source = status.latency_source
        yield "stallward_latency_source_up", [((source.source,), not source.fault)]
        rejected = [((reason,), getattr(source, reason)) for reason in REJECTED]
        yield "stallward_latency_rejected_total", rejected


def _tick_rows(last: pb.TickRecord, names: tuple[str, ...]) -> Iterator[tuple[str, Rows]]:
    sample = last.sample
    yield "stallward_controller_in_force", [((last.decision.controller,), 1)]
    modes = [((name,), last.mode == mode) for mode, name in _MODES.items()]
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
