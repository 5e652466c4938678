"""A daemon's status as text and as JSON values."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from stallward.actuator.cli.tick_text import mib_text
from stallward.actuator.client import CanaryInfo, DaemonStatus, LatencyInfo
from stallward.actuator.client.status import HoldBudgetInfo
from stallward.actuator.experiments.wire import Phase
from stallward.actuator.record.desired.text import desired_text
from stallward.agent.sample import WorkSource

_FEW: Final = 2
"""So many missing signals and levers are listed; of more their number is given."""


def status_values(status: DaemonStatus) -> dict[str, Any]:
    """Return a daemon's status as JSON values."""
    policy = status.policy
    return {
        "version": status.version,
        "node_kind": status.node_kind,
        "controller": status.controller,
        "mode": status.mode.name.lower(),
        "policy": policy and {"name": policy.name, "path": policy.path, "sha256": policy.sha256},
        "slo_ms": status.slo_ms,
        "slots": list(status.slots),
        "pods": [list(pods) for pods in status.pods],
        "lease_held": status.lease_held,
        "lease_remaining_s": status.lease_remaining_s,
        "ticks": status.ticks,
        "records_dropped": status.records_dropped,
        "refused": dict(status.refused),
        "missing": list(status.missing),
        "plugged_levers": list(status.plugged_levers),
        "uptime_s": status.uptime_s,
        "loop_restarts": status.loop_restarts,
        "fallbacks": dict(status.fallbacks),
        "stepped_aside": status.stepped_aside,
        "latency": _latency_values(status.latency),
        "work": [
            {"slot": slot, "source": one.source, "unit": one.unit, "fault": one.fault or None}
            for slot, one in zip(status.slots, status.work, strict=False)
        ],
        "hold_budget": status.hold_budget and asdict(status.hold_budget),
        "canary": status.canary and asdict(status.canary),
        "experiment": status.experiment
        and {**asdict(status.experiment), "arm": status.experiment.arm.name.lower()},
    }


def status_rows(status: DaemonStatus, *, everything: bool = False) -> list[tuple[str, str]]:
    """Return a daemon's status as rows of a table.

    Args:
        status: The status.
        everything: Whether to list all that the node lacks, not only how much that is.
    """
    policy = status.policy
    rows = [
        ("version", status.version),
        ("node", status.node_kind),
        ("up", f"{status.uptime_s:.0f} s, {status.ticks} ticks"),
        ("latency", _latency_now(status)),
        *_tick_rows(status),
        ("controller", status.controller),
        ("policy", f"{policy.name} ({status.mode.name.lower()})" if policy else "none loaded"),
        ("slots", ", ".join(f"{i}:{name}" for i, name in enumerate(status.slots)) or "none"),
        *_pod_rows(status),
        ("lease", f"{status.lease_remaining_s:.1f} s left" if status.lease_held else "not held"),
        *_latency_rows(status),
        *_work_rows(status),
        ("records dropped", f"{status.records_dropped}"),
        ("loop restarts", f"{status.loop_restarts}"),
        ("stepped aside", f"{status.stepped_aside}"),
        ("held without pressure", _hold_budget_row(status.hold_budget)),
        ("canary", _canary_row(status.canary)),
        ("experiment", phase_text(status.experiment) if status.experiment else "none is running"),
    ]
    if status.plugged_levers:
        rows.append(("levers of packages", ", ".join(status.plugged_levers)))
    rows += [(f"fallback: {fault}", f"{count} ticks") for fault, count in status.fallbacks]
    rows += [(f"refused: {reason}", f"{count}") for reason, count in status.refused]
    if everything or len(status.missing) <= _FEW:
        return rows + [("missing", reason) for reason in status.missing]
    return [*rows, ("missing", f"{len(status.missing)} signals and levers; --all lists them")]


def _latency_now(status: DaemonStatus) -> str:
    """The p95 of the last second beside the target."""
    tick = status.last_tick
    latency = None if tick is None else tick.sample.latency
    p95_ms = None if latency is None else latency.p95_ms
    now = "p95 not known" if p95_ms is None else f"p95 {p95_ms:.3g} ms"
    return now if status.slo_ms is None else f"{now} of at most {status.slo_ms:g} ms"


def _tick_rows(status: DaemonStatus) -> list[tuple[str, str]]:
    """The memory of all, what is held, and why, at the last tick."""
    tick = status.last_tick
    if tick is None:
        return []
    sample = tick.sample
    held = [
        f"{name} {mib_text(group.memory_usage_bytes)}"
        for name, group in zip(
            ("application", *status.slots), (sample.protected, *sample.slots), strict=False
        )
    ]
    zone = mib_text(sample.zone.memory_usage_bytes)
    if sample.zone.memory_limit_bytes is not None:
        zone = f"{zone} of {mib_text(sample.zone.memory_limit_bytes)}"
    return [
        ("memory, MiB", f"{zone}; {', '.join(held)}"),
        ("now", desired_text(tick.granted, status.slots)),
        ("because", tick.decision.decision.reason or "-"),
    ]


def _hold_budget_row(budget: HoldBudgetInfo | None) -> str:
    if budget is None:
        return "no bound"
    parts = [f"{budget.used_s:.0f} s of {budget.allowed_s:g} s used up"]
    if budget.since_pressure_s is not None:
        parts.append(f"last sign of memory pressure {budget.since_pressure_s:.0f} s ago")
    return ", ".join([*parts, *(["nothing is held back now"] if budget.refusing else [])])


def _canary_row(canary: CanaryInfo | None) -> str:
    if canary is None:
        return "off"
    if not canary.watching:
        return canary.returned or "not watching now"
    now, before = (
        "unknown" if share is None else f"{100 * share:.1f} %"
        for share in (canary.attainment, canary.attainment_before)
    )
    return f"{canary.left_s:.0f} s left; target kept {now}, before {before}"


def phase_text(phase: Phase) -> str:
    """Where an experiment is, in one line."""
    state = "measured" if phase.measured else "burn-in"
    arm = phase.arm.name.lower()
    return f"block {phase.block + 1} of {phase.blocks}: {arm}, {state}, {phase.left_s:.0f} s left"


def _latency_rows(status: DaemonStatus) -> list[tuple[str, str]]:
    latency = status.latency
    if latency is None:
        return [("latencies from", "nowhere")]
    counts = latency.counts
    odd = [f"{count} {name.replace('_', ' ')}" for name, count in counts.rejected if count]
    fault = [latency.fault] if latency.fault else []
    came = ", ".join([latency.source, f"{counts.accepted} accepted", *odd, *fault])
    rows = [("latencies from", came)]
    if counts.first_malformed:
        rows.append(("first malformed", counts.first_malformed))
    if counts.names:
        rows.append(("other names", ", ".join(counts.names)))
    return rows


def _pod_rows(status: DaemonStatus) -> list[tuple[str, str]]:
    named = zip(status.slots, status.pods, strict=False)
    return [(f"pods of {slot}", ", ".join(pods)) for slot, pods in named if pods]


def _work_rows(status: DaemonStatus) -> list[tuple[str, str]]:
    rows = []
    for slot, work in zip(status.slots, status.work, strict=False):
        counted = "its processor time" if work.source is WorkSource.CPU else work.unit
        came = [counted, *([] if work.source is WorkSource.CPU else [f"from {work.source}"])]
        rows.append((f"work of {slot}", ", ".join([*came, *([work.fault] if work.fault else [])])))
    return rows


def _latency_values(latency: LatencyInfo | None) -> dict[str, Any] | None:
    if latency is None:
        return None
    return {
        "source": latency.source,
        "fault": latency.fault or None,
        "accepted": latency.counts.accepted,
        **dict(latency.counts.rejected),
        "first_malformed": latency.counts.first_malformed or None,
        "other_names": list(latency.counts.names),
    }
