"""A daemon's status as text and as JSON values."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, fields
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

from stallward.actuator.cli.output import duration
from stallward.actuator.cli.tick_text import mib_text
from stallward.actuator.latency.counts import too_coarse
from stallward.actuator.record.desired.text import node_text, slot_text
from stallward.agent.sample import LatencySample, WorkSource

if TYPE_CHECKING:  # the help of `ctl status` needs neither gRPC nor numpy
    from stallward.actuator.client import CanaryInfo, DaemonStatus, LatencyInfo
    from stallward.actuator.client.status import HoldBudgetInfo
    from stallward.actuator.experiments.wire import Phase
    from stallward.actuator.record.tick_record import TickRecord

COLUMNS: Final = 100
"""How wide the status is printed at most."""
_NARROWEST: Final = 30
_FEW: Final = 2
"""So many missing signals and levers are listed; of more their number is given."""
_WORTH_SAYING: Final = 0.005


def status_values(status: DaemonStatus) -> dict[str, Any]:
    """Return a daemon's status as JSON values."""
    policy, phase = status.policy, status.experiment
    own = {one.name: getattr(status, one.name) for one in fields(status)}
    del own["last_tick"]
    return own | {
        "mode": status.mode.name.lower(),
        "policy": policy and {"name": policy.name, "path": policy.path, "sha256": policy.sha256},
        "slots": list(status.slots),
        "pods": [list(pods) for pods in status.pods],
        "refused": dict(status.refused),
        "missing": list(status.missing),
        "plugged_levers": list(status.plugged_levers),
        "problems": list(status.problems),
        "fallbacks": dict(status.fallbacks),
        "latency": _latency_values(status.latency),
        "applications": [
            {**asdict(one), "latency": _latency_values(one.latency)} for one in status.applications
        ],
        "work": [
            {"slot": slot, **asdict(one), "fault": one.fault or None}
            for slot, one in zip(status.slots, status.work, strict=False)
        ],
        "hold_budget": status.hold_budget and asdict(status.hold_budget),
        "canary": status.canary and asdict(status.canary),
        "experiment": phase and {**asdict(phase), "arm": phase.arm.name.lower()},
    }


def status_rows(status: DaemonStatus, *, everything: bool = False) -> list[tuple[str, str]]:
    """Return a daemon's status as rows of a table, the most important first.

    Args:
        status: The status.
        everything: Whether to list all that the node lacks, not only how much that is.
    """
    lacks = [reason for reason in status.missing if reason not in status.problems]
    rows = [
        *(("problem", with_slot_name(problem, status.slots)) for problem in status.problems),
        *_application_rows(status),
        *_tick_rows(status),
        ("decided by", _decider_row(status)),
        ("policy", _policy_row(status)),
        *_pod_rows(status),
        ("lease", f"{status.lease_remaining_s:.1f} s left" if status.lease_held else "not held"),
        *_latency_rows(status),
        *_work_rows(status),
        ("held without pressure", _hold_budget_row(status.hold_budget)),
        ("canary", _canary_row(status.canary)),
        ("experiment", phase_text(status.experiment) if status.experiment else "none is running"),
        ("daemon", _daemon_row(status)),
    ]
    odd = (
        ("records dropped", status.records_dropped),
        ("loop restarts", status.loop_restarts),
        ("stepped aside", status.stepped_aside),
    )
    rows += [(name, f"{count}") for name, count in odd if count]
    if status.plugged_levers:
        rows.append(("levers of packages", ", ".join(status.plugged_levers)))
    rows += [(f"fallback: {fault}", f"{count} ticks") for fault, count in status.fallbacks]
    rows += [(f"refused: {reason}", f"{count}") for reason, count in status.refused]
    if everything or len(lacks) <= _FEW:
        return rows + [("off here", with_slot_name(reason, status.slots)) for reason in lacks]
    return [*rows, ("off here", f"{len(lacks)} signals and levers; --all lists them")]


def with_slot_name(reason: str, slots: Sequence[str]) -> str:
    """What is missing, with the name of its slot in place of the number."""
    numbered = re.match(r"slots\[(\d+)\]", reason)
    if numbered is None or int(numbered[1]) >= len(slots):
        return reason
    return f"{slots[int(numbered[1])]}{reason[numbered.end() :]}"


def folded(rows: Sequence[tuple[str, str]], columns: int = COLUMNS) -> list[tuple[str, str]]:
    """Return rows of a table that is no wider than ``columns``: long values take several rows."""
    width = max(columns - 2 - max((len(name) for name, _ in rows), default=0), _NARROWEST)
    shorter = []
    for name, value in rows:
        first, *others = wrap(value, width, break_on_hyphens=False) or [""]
        shorter += [(name, first), *(("", other) for other in others)]
    return shorter


def _application_rows(status: DaemonStatus) -> list[tuple[str, str]]:
    """The latency of each application, and what the node guarantees it."""
    tick = status.last_tick
    if not status.applications:
        latency = None if tick is None else tick.sample.latency
        return [("latency", _latency_now(latency, status.slo_ms, status.met_s, status.missed_s))]
    samples = () if tick is None else tick.sample.applications
    rows = []
    for index, one in enumerate(status.applications):
        sample = samples[index] if index < len(samples) else None
        latency = None if sample is None else sample.latency
        text = _latency_now(latency, one.slo_ms, one.met_s, one.missed_s)
        if sample is not None and tick is not None:
            low_bytes = tick.granted.application(index).low_bytes
            guaranteed = "" if low_bytes is None else f", {mib_text(low_bytes)} of it guaranteed"
            text += f"; holds {mib_text(sample.group.memory_usage_bytes)} MiB{guaranteed}"
        rows.append((one.name, text))
    return rows


def _latency_now(
    latency: LatencySample | None,
    slo_ms: float | None,
    met_s: float | None,
    missed_s: float | None,
) -> str:
    """The p95 of the last second beside the target, and how often that was met."""
    p95_ms = None if latency is None else latency.p95_ms
    text = "p95 not known" if p95_ms is None else f"p95 {p95_ms:.3g} ms"
    if slo_ms is None:
        return text
    verdict = ""
    if p95_ms is not None:
        verdict = ": met" if p95_ms <= slo_ms else ": missed"
    text = f"{text}, target {slo_ms:g} ms{verdict}"
    known_s = (met_s or 0.0) + (missed_s or 0.0)
    if known_s < 1.0:
        return text
    share = 100.0 * (met_s or 0.0) / known_s
    return f"{text}; met in {share:.3g} % of {duration(known_s)}"


def _tick_rows(status: DaemonStatus) -> list[tuple[str, str]]:
    """The memory, what is done to each slot, and why, at the last tick."""
    tick = status.last_tick
    if tick is None:
        return [(name, "-") for name in status.slots]
    sample = tick.sample
    zone = mib_text(sample.zone.memory_usage_bytes)
    if sample.zone.memory_limit_bytes is not None:
        zone = f"{zone} of {mib_text(sample.zone.memory_limit_bytes)}"
    held = mib_text(sample.protected.memory_usage_bytes)
    protected = "applications" if sample.applications else "application"
    rows = [("memory", f"{zone} MiB, of which the {protected} {held}")]
    rows += [(name, _slot_row(tick, index)) for index, name in enumerate(status.slots)]
    others = node_text(tick.granted)
    return [
        *rows,
        *([("node", others)] if others else []),
        ("because", tick.decision.decision.reason or "-"),
    ]


def _slot_row(tick: TickRecord, index: int) -> str:
    """How much a slot holds, and how it is treated."""
    sample = tick.sample
    if index >= len(sample.slots):
        return "-"
    group, state = sample.slots[index], sample.slot_states[index]
    text = f"{mib_text(group.memory_usage_bytes)} MiB"
    if group.swap_bytes:
        text = f"{text} and {mib_text(group.swap_bytes)} in swap"
    text = f"{text}: {slot_text(tick.granted.slot(index))}"
    if state.paused:
        text = f"{text}; paused for {state.paused_for_s:.1f} s"
    share = f"; paused {100 * state.paused_share:.0f} % of the last minute"
    return text + (share if state.paused_share >= _WORTH_SAYING else "")


def _decider_row(status: DaemonStatus) -> str:
    tick = status.last_tick
    if tick is None or not tick.fallback:
        return status.controller
    return f"{tick.decision.controller}, because {status.controller} cannot"


def _policy_row(status: DaemonStatus) -> str:
    policy = status.policy
    if policy is None:
        return "none loaded"
    return f"{policy.name} ({status.mode.name.lower()}), sha256 {policy.sha256[:12]}"


def _daemon_row(status: DaemonStatus) -> str:
    up = f"up {duration(status.uptime_s)}, {status.ticks} ticks"
    return f"version {status.version}, {status.node_kind} node, {up}"


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
    rows = []
    for one in status.applications:
        for name, text in _source_rows(one.latency, one.slo_ms):
            rows.append((f"{one.name}: {name}", text))
    return rows or _source_rows(status.latency, status.slo_ms)


def _source_rows(latency: LatencyInfo | None, slo_ms: float | None) -> list[tuple[str, str]]:
    if latency is None:
        return [("latencies from", "nowhere")]
    counts = latency.counts
    coarse, step = too_coarse(counts.step_ms, slo_ms or math.inf)
    odd = [f"{count} {name.replace('_', ' ')}" for name, count in counts.rejected if count]
    fault = [latency.fault] if latency.fault else []
    came = ", ".join([latency.source, f"{counts.accepted} accepted", *odd, *fault])
    rows = [("latencies from", came)]
    if coarse:
        rows.append(("too coarse", f"{coarse}. {step}"))
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
        "step_ms": latency.counts.step_ms or None,
        "other_names": list(latency.counts.names),
    }
