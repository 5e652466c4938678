"""The status of a daemon, as its client returns it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stallward.actuator.experiments.wire import PHASE, Phase
from stallward.actuator.latency.counts import LatencyCounts
from stallward.actuator.record.tick_record import Mode, TickRecord
from stallward.actuator.record.wire import MODE, TICK_RECORD, WORK_SOURCE
from stallward.agent.sample import WorkSource
from stallward.proto.codec import Codec, Own, Parts
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
    loaded: bool = False
    """Whether it is the policy that the node has loaded."""
    active: bool = False
    """Whether it decides."""


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
class ApplicationInfo:
    """One of several protected applications."""

    name: str
    slo_ms: float
    """Its latency target."""
    latency: LatencyInfo | None = None
    """The source of its latencies; ``None`` if it has none."""
    met_s: float | None = None
    """The time in which the p95 of the last second met its target."""
    missed_s: float | None = None
    """The time in which it did not."""


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
    plugged_levers: tuple[str, ...] = ()
    """The levers of other packages that are loaded."""
    met_s: float | None = None
    """The time in which the p95 of the last second met the target, since the service was started;
    ``None`` from a daemon of an earlier version."""
    missed_s: float | None = None
    """The time in which it did not."""
    problems: tuple[str, ...] = ()
    """What somebody should look at: it is wrong now, and no lack of the node."""
    applications: tuple[ApplicationInfo, ...] = ()
    """Each protected application, where there are several."""


POLICY: Final = Codec(PolicyInfo, pb.PolicyStatus)
STORED_POLICY: Final = Codec(StoredPolicyInfo, pb.StoredPolicy)
_LATENCY: Final = Codec(
    LatencyInfo,
    pb.LatencySourceStatus,
    fields={"counts": Codec(LatencyCounts, pb.LatencySourceStatus)},
)


def _pods_parts(status: DaemonStatus) -> Parts:
    return {"slot_pods": [{"pods": pods} for pods in status.pods]}


def _pods(message: pb.StatusResponse) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(slot.pods) for slot in message.slot_pods)


_APPLICATION: Final = Codec(
    ApplicationInfo,
    pb.ApplicationStatus,
    fields={"latency": "latency_source"},
    use=(_LATENCY,),
)
STATUS: Final = Codec(
    DaemonStatus,
    pb.StatusResponse,
    fields={
        "latency": "latency_source",
        "work": "work_sources",
        "pods": Own(_pods_parts, _pods),
    },
    use=(POLICY, _LATENCY, _APPLICATION, MODE, PHASE, TICK_RECORD, WORK_SOURCE),
)
