"""The counts behind the daemon's metrics, made from tick records. Standard library only."""

from __future__ import annotations

import bisect
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from stallward.actuator.service.metrics.table import LATE_S, PHASE_BOUNDS_S, PHASES
from stallward.actuator.service.target_seconds import TickTime
from stallward.agent.latency_histogram import middle_ms
from stallward.proto.v1 import stallward_pb2 as pb

# ---------- A Prometheus histogram of request latencies, counted from those that samples bring. Pure
# Standard library only.

_BOUNDS_S: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip


class RequestTimes:
    """Counts requests by their latency.

    The target is one of the bounds, so that the share of the requests that met it follows exactly.
    A latency is off by at most 1 %, as in the samples.

    Args:
        slo_ms: The latency target.
    """

    def __init__(self, slo_ms: float) -> None:
        self.bounds_s: Final = tuple(sorted({*_BOUNDS_S, slo_ms / 1e3}))
        self.counts: Final = [0] * (len(self.bounds_s) + 1)
        """The count of each bucket, not cumulative; the last bucket has no bound."""
        self.sum_s = 0.0

    def take(self, new: pb.LatencyHistogram) -> None:
        """Count the requests that came since the sample before."""
        for bucket, count in zip(new.buckets, new.counts, strict=False):
            latency_s = middle_ms(bucket) / 1e3
            self.counts[bisect.bisect_left(self.bounds_s, latency_s)] += count
            self.sum_s += count * latency_s


# ---------- The labels of metrics for the reasons of a tick; each label has only a few values

OTHER: Final = "other"
_FAULTS: Final = {
    pb.FAULT_KIND_STALE: "stale_sample",
    pb.FAULT_KIND_INVALID: "invalid_sample",
    pb.FAULT_KIND_LOST: "signal_lost",
    pb.FAULT_KIND_OBSERVATION: "observation_not_finite",
    pb.FAULT_KIND_RAISED: "controller_failed",
    pb.FAULT_KIND_UNUSABLE: "decision_unusable",
    pb.FAULT_KIND_NOT_FINITE: "decision_not_finite",
    pb.FAULT_KIND_LATE: "decision_late",
    pb.FAULT_KIND_OUT_OF_RANGE: "outside_the_training_range",
    pb.FAULT_KIND_WAITING: "waiting",
}
_BY_WISH: Final = {
    pb.WISH_STOP: "stop",
    pb.WISH_TERMINATE: "terminate",
    pb.WISH_MEMORY: "limit_unknown",
    pb.WISH_HOLD: "no_pressure",
    pb.WISH_CPU_MAX: "minimum",
    pb.WISH_IO_MAX: "minimum",
    pb.WISH_NICE: "minimum",
    pb.WISH_PROTECTED_LOW: "guarantee",
    pb.WISH_THREADS: "threads",
}
"""Wishes that have one label for all rules."""
_LIMIT: Final = {
    pb.GUARD_RULE_NO_TIME: "limit_unknown",
    pb.GUARD_RULE_FLOOR: "limit_floor",
    pb.GUARD_RULE_ONE_LEVEL: "limit_step",
    pb.GUARD_RULE_LOWEST_WORKABLE: "limit_workable",
}
_BY_RULE: Final = {
    pb.WISH_PAUSE: {
        pb.GUARD_RULE_MAX_PAUSE: "max_pause",
        pb.GUARD_RULE_PAUSE_SHARE: "pause_share",
        pb.GUARD_RULE_POD_PAUSE: "pod_pause",
        pb.GUARD_RULE_MIN_RUN: "min_run",
    },
    pb.WISH_LIMIT: {**_LIMIT, pb.GUARD_RULE_DEMAND_UNKNOWN: "limit_unknown"},
    pb.WISH_HARD_LIMIT: {
        **_LIMIT,
        pb.GUARD_RULE_ABOVE_USAGE: "hard_limit",
        pb.GUARD_RULE_ABOVE_LIMIT: "hard_limit",
        pb.GUARD_RULE_HARD_ALONE: "hard_limit",
    },
    pb.WISH_RECLAIM: {
        pb.GUARD_RULE_FLOOR: "reclaim_step",
        pb.GUARD_RULE_LOWEST_WORKABLE: "limit_workable",
        pb.GUARD_RULE_ONE_LEVEL: "reclaim_step",
    },
    pb.WISH_CPUS: {pb.GUARD_RULE_CPUS_OFFLINE: "cpus"},
}
"""Wishes whose label depends on the rule."""


def fallback_reason(record: pb.TickRecord) -> str:
    """The label of the reason why the default controller decided."""
    return _FAULTS.get(record.reasons.fault.kind, OTHER)


def guard_rule(change: pb.GuardChange) -> str | None:
    """The label of a change that the guard made; ``None`` if it is not counted."""
    label = _BY_WISH.get(change.wish)
    return label or _BY_RULE.get(change.wish, {}).get(change.rule)


def lever_kind(lever: str) -> str:
    """The kind of a lever without its subject: ``pause`` for ``pause:hog0``."""
    return lever.partition(":")[0] or OTHER


@dataclass(slots=True)
class PhaseTimes:
    """A histogram of the times that one phase of a tick took."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(PHASE_BOUNDS_S) + 1))
    """The count of each bucket, not cumulative; the last bucket has no bound."""
    sum_s: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one observation."""
        self.counts[bisect.bisect_left(PHASE_BOUNDS_S, seconds)] += 1
        self.sum_s += seconds


class TickCounts:
    """Counts what happened at the ticks. Each record costs the service about 20 us.

    Args:
        slo_ms: The latency target.
    """

    def __init__(self, slo_ms: float) -> None:
        self.ticks = 0
        self.late = 0
        self.phases = {phase: PhaseTimes() for phase in PHASES}
        self.fallbacks: Counter[str] = Counter()
        self.rules: Counter[str] = Counter()
        self.moves: Counter[tuple[str, bool]] = Counter()
        self.step_asides: Counter[str] = Counter()
        self.pauses: Counter[int] = Counter()
        self.paused_s: dict[int, float] = {}
        self.requests = 0
        self.request_times = RequestTimes(slo_ms)
        self.request_times_of: dict[str, RequestTimes] = {}
        """Those of each application, where there are several."""
        self._time = TickTime()
        self._foreign: frozenset[str] = frozenset()
        self._paused: tuple[bool, ...] = ()
        self._completed: dict[str, int] = {}

    def take(self, record: pb.TickRecord) -> None:
        """Count one tick."""
        self.ticks += 1
        timings = record.timings
        self.late += timings.late_ms > LATE_S * 1e3
        for phase, times in self.phases.items():
            times.add(getattr(timings, f"{phase}_ms") / 1e3)
        if record.fallback:
            self.fallbacks[fallback_reason(record)] += 1
        for change in record.reasons.changes:
            rule = guard_rule(change)
            if rule is not None:
                self.rules[rule] += 1
        for result in record.applied:
            if result.missing:  # the node does not have it, which stallward_missing_signals counts
                continue
            self.moves[lever_kind(result.lever), result.ok] += 1
        self._take_foreign(record.sample)
        self._take_pauses(record.sample, self._time.passed_s(record))
        self._take_requests(record.sample)

    def _take_foreign(self, sample: pb.Sample) -> None:
        foreign = frozenset(state.lever for state in sample.levers if state.foreign)
        for lever in foreign - self._foreign:
            self.step_asides[lever_kind(lever)] += 1
        self._foreign = foreign

    def _take_pauses(self, sample: pb.Sample, passed_s: float) -> None:
        paused = tuple(state.paused for state in sample.slot_states)
        for slot, now in enumerate(paused):
            before = slot < len(self._paused) and self._paused[slot]
            self.pauses[slot] += now and not before
            # The state in a sample has been in force since the sample before.
            self.paused_s[slot] = self.paused_s.get(slot, 0.0) + (passed_s if now else 0.0)
        self._paused = paused

    def _take_requests(self, sample: pb.Sample) -> None:
        if not sample.applications:
            self._take_latency("", sample)
        for one in sample.applications:
            self._take_latency(one.name, one)
            times = self.request_times_of.get(one.name)
            if times is None or one.slo_ms / 1e3 not in times.bounds_s:  # with another target anew
                times = self.request_times_of[one.name] = RequestTimes(one.slo_ms)
            times.take(one.latency.new_requests)

    def _take_latency(self, name: str, part: pb.Sample | pb.ApplicationSample) -> None:
        """Count the requests of one application."""
        if not part.HasField("latency"):
            return
        self.request_times.take(part.latency.new_requests)
        total, before = part.latency.completed_total, self._completed.get(name, 0)
        # A loop that was started again counts from zero.
        self.requests += total - before if total >= before else total
        self._completed[name] = total


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    """The part of the configuration that the metrics show."""

    slots: tuple[str, ...]
    """The names of the background slots."""
    slo_ms: float
    """The latency target."""
    silence_s: float = 5.0
    """Without a tick for so long the daemon is not ready."""
