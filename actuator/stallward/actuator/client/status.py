"""The status of a daemon, as its client returns it."""

from __future__ import annotations

from dataclasses import dataclass

from stallward.actuator.experiments.wire import Phase, phase_from_wire
from stallward.actuator.latency.counts import COUNTS, LatencyCounts
from stallward.actuator.record.tick_record import Mode, TickRecord
from stallward.actuator.record.wire import mode_from_wire, record_from_wire
from stallward.actuator.record.work_wire import work_source_from_wire
from stallward.agent.sample import WorkSource
from stallward.proto.v1 import stallward_pb2 as pb


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyInfo:
    """The policy a daemon has loaded."""

    name: str
    path: str
    schema_hash: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPolicyInfo:
    """A policy in the store of a daemon."""

    name: str
    sha256: str
    size_bytes: int
    stored_s: float
    """When it was complete, in Unix time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyInfo:
    """The source of a daemon's latencies."""

    source: str
    """``lines``, ``prometheus``, ``statsd`` or ``grpc``."""
    fault: str
    """Why there are no latencies now; empty if there are."""
    counts: LatencyCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkInfo:
    """The source of a slot's work."""

    source: WorkSource
    unit: str
    fault: str
    """Why the work is not known now; empty if it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldBudgetInfo:
    """How long background work may be held back while nothing shows that memory is short."""

    used_s: float
    """What holds without a sign of memory pressure have used up."""
    allowed_s: float
    """The most that they may use up."""
    refusing: bool
    """Whether nothing may be held back now, because it is used up."""
    since_pressure_s: float | None
    """The time since the last sign of memory pressure; ``None`` if there was none yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryInfo:
    """Whether a policy that was activated keeps the target as often as what decided before."""

    watching: bool
    left_s: float
    """How long the policy is still watched."""
    attainment: float | None
    """The share of the seconds in which what decides now kept the target; ``None`` if unknown."""
    attainment_before: float | None
    """The same of what decided before."""
    returned: str
    """Why the last policy was turned off; empty if none was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonStatus:
    """What a daemon is doing."""

    version: str
    node_kind: str
    controller: str
    mode: Mode
    policy: PolicyInfo | None
    slo_ms: float | None
    """The latency target; ``None`` from a daemon of an earlier version."""
    slots: tuple[str, ...]
    lease_held: bool
    lease_remaining_s: float
    last_tick: TickRecord | None
    ticks: int
    records_dropped: int
    refused: tuple[tuple[str, int], ...]
    missing: tuple[str, ...]
    uptime_s: float
    loop_restarts: int
    fallbacks: tuple[tuple[str, int], ...]
    """Ticks of this loop at which the default controller decided, by fault."""
    stepped_aside: int
    """How often this loop stepped aside from a lever after a foreign change."""
    latency: LatencyInfo | None
    """The source of latencies; ``None`` if none is configured."""
    work: tuple[WorkInfo, ...]
    """Where the work of each slot is counted; empty from a daemon of an earlier version."""
    hold_budget: HoldBudgetInfo | None
    """``None`` if there is no bound."""
    canary: CanaryInfo | None
    """``None`` if policies are not watched."""
    experiment: Phase | None
    """Where the experiment is; ``None`` if none runs."""
    pods: tuple[tuple[str, ...], ...] = ()
    """The pods of each slot now, as ``NAMESPACE/NAME``; empty from a daemon of an earlier version.
    """


def policy_from_wire(wire: pb.PolicyStatus) -> PolicyInfo:
    """Return the policy of a wire message."""
    return PolicyInfo(
        name=wire.name, path=wire.path, schema_hash=wire.schema_hash, sha256=wire.sha256
    )


def stored_from_wire(wire: pb.StoredPolicy) -> StoredPolicyInfo:
    """Return the stored policy of a wire message."""
    return StoredPolicyInfo(
        name=wire.name, sha256=wire.sha256, size_bytes=wire.size_bytes, stored_s=wire.stored_s
    )


def status_from_wire(wire: pb.StatusResponse) -> DaemonStatus:
    """Return the status of a wire message."""
    return DaemonStatus(
        version=wire.version,
        node_kind=wire.node_kind,
        controller=wire.controller,
        mode=mode_from_wire(wire.mode) or Mode.OFF,
        policy=policy_from_wire(wire.policy) if wire.HasField("policy") else None,
        slo_ms=wire.slo_ms if wire.HasField("slo_ms") else None,
        slots=tuple(wire.slots),
        pods=tuple(tuple(slot.pods) for slot in wire.slot_pods),
        lease_held=wire.lease_held,
        lease_remaining_s=wire.lease_remaining_s,
        last_tick=record_from_wire(wire.last_tick) if wire.HasField("last_tick") else None,
        ticks=wire.ticks,
        records_dropped=wire.records_dropped,
        refused=tuple(sorted(wire.refused.items())),
        missing=tuple(wire.missing),
        uptime_s=wire.uptime_s,
        loop_restarts=wire.loop_restarts,
        fallbacks=tuple(sorted(wire.fallbacks.items())),
        stepped_aside=wire.stepped_aside,
        latency=_latency(wire.latency_source) if wire.HasField("latency_source") else None,
        work=tuple(
            WorkInfo(source=work_source_from_wire(one.source), unit=one.unit, fault=one.fault)
            for one in wire.work_sources
        ),
        hold_budget=_hold_budget(wire.hold_budget) if wire.HasField("hold_budget") else None,
        canary=_canary(wire.canary) if wire.HasField("canary") else None,
        experiment=phase_from_wire(wire.experiment) if wire.HasField("experiment") else None,
    )


def _canary(wire: pb.CanaryStatus) -> CanaryInfo:
    before = wire.HasField("attainment_before")
    return CanaryInfo(
        watching=wire.watching,
        left_s=wire.left_s,
        attainment=wire.attainment if wire.HasField("attainment") else None,
        attainment_before=wire.attainment_before if before else None,
        returned=wire.returned,
    )


def _hold_budget(wire: pb.HoldBudgetStatus) -> HoldBudgetInfo:
    known = wire.HasField("since_pressure_s")
    return HoldBudgetInfo(
        used_s=wire.used_s,
        allowed_s=wire.allowed_s,
        refusing=wire.refusing,
        since_pressure_s=wire.since_pressure_s if known else None,
    )


def _latency(wire: pb.LatencySourceStatus) -> LatencyInfo:
    return LatencyInfo(
        source=wire.source,
        fault=wire.fault,
        counts=LatencyCounts(
            **{name: getattr(wire, name) for name in COUNTS},
            first_malformed=wire.first_malformed,
            names=tuple(wire.names),
        ),
    )
