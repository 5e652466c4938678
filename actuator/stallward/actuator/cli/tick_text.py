"""Ticks as text."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stallward.actuator.guard.changes import GuardChange
from stallward.actuator.record.desired.text import desired_text
from stallward.actuator.record.rates import stall_share
from stallward.actuator.record.reasons_text import reason_notes
from stallward.agent.desired import MIB
from stallward.agent.sample import GroupSample, LatencySample, Sample, SlotState

if TYPE_CHECKING:  # see status_text
    from stallward.actuator.record.tick_record import TickRecord


class TickPrinter:
    """Turns tick records into lines; rates need two ticks, so the first has none.

    A line has the inputs of the decision (latency against its target, the stall of the protected
    group and of the zone, each group's memory, swap and levers), then the decision, which
    controller made it and why, and the guard's changes.

    Args:
        as_json: Whether to print one JSON object a line instead.
        names: The slots' names; by default the names of their groups.
    """

    def __init__(self, *, as_json: bool = False, names: Sequence[str] = ()) -> None:
        self._as_json = as_json
        self._names = tuple(names)
        self._before: Sample | None = None

    def line(self, record: TickRecord) -> str:
        """Return the line of one tick."""
        before, self._before = self._before, record.sample
        if self._as_json:
            return json.dumps(_values(record, before, self._names))
        sample = record.sample
        latency = sample.latency
        parts = [
            f"#{record.sequence}",
            *(
                f"{one.name} {_p95(one.latency)}, target {one.slo_ms:g} ms"
                for one in sample.applications
            ),
            *(() if sample.applications else (f"p95 {_p95(latency)}",)),
            f"stall app {_stall(sample, before, 'protected')}",
            f"zone {_stall(sample, before, 'zone')}",
            f"mem {mib_text(sample.zone.memory_usage_bytes)}"
            f"/{mib_text(sample.zone.memory_limit_bytes)} MiB",
            *(
                f"{self._name(i, group)} {_group(group, state)}"
                for i, (group, state) in enumerate(
                    zip(sample.slots, sample.slot_states, strict=True)
                )
            ),
            f"-> {record.decision.controller}: {record.decision.decision.reason or '-'}",
            desired_text(record.granted, self._names),
        ]
        if record.fallback:
            parts.append("FALLBACK")
        parts.extend(f"guard: {note}" for note in reason_notes(record.reasons, self._names))
        parts.extend(
            f"{lever.lever} {'is not here' if lever.missing else 'failed'}"
            for lever in record.applied
            if not lever.ok
        )
        return " | ".join(parts)

    def _name(self, slot: int, group: GroupSample) -> str:
        return self._names[slot] if slot < len(self._names) else group.name.rpartition("/")[2]


def _p95(latency: LatencySample | None) -> str:
    return "- ms" if latency is None or latency.p95_ms is None else f"{latency.p95_ms:.1f} ms"


def _stall(sample: Sample, before: Sample | None, where: str) -> str:
    share = _stall_share(sample, before, where)
    return "-" if share is None else f"{100 * share:.0f} %"


def _stall_share(sample: Sample, before: Sample | None, where: str) -> float | None:
    if before is None:
        return None
    now: GroupSample = getattr(sample, where)
    then: GroupSample = getattr(before, where)
    elapsed_s = sample.time_s - before.time_s
    return stall_share(then.psi.memory_some_us, now.psi.memory_some_us, elapsed_s)


def mib_text(value: int | None) -> str:
    """A size in MiB; a dash if it is not known."""
    return "-" if value is None else f"{value / MIB:.0f}"


def _group(group: GroupSample, state: SlotState) -> str:
    text = f"{mib_text(group.memory_usage_bytes)}+{mib_text(group.swap_bytes)} MiB"
    if state.paused:
        text += f" paused {state.paused_for_s:.1f} s"
    if state.limit_bytes is not None:
        text += f" limit {mib_text(state.limit_bytes)}"
    return text


def _values(record: TickRecord, before: Sample | None, names: Sequence[str]) -> dict[str, Any]:
    sample, fault = record.sample, record.reasons.fault
    return {
        "sequence": record.sequence,
        "time_s": record.time_s,
        "p95_ms": sample.latency.p95_ms if sample.latency else None,
        "applications": [
            {
                "name": one.name,
                "slo_ms": one.slo_ms,
                "p95_ms": one.latency.p95_ms if one.latency else None,
                "usage_bytes": one.group.memory_usage_bytes,
            }
            for one in sample.applications
        ],
        "protected_stall_share": _stall_share(sample, before, "protected"),
        "zone_stall_share": _stall_share(sample, before, "zone"),
        "zone_usage_bytes": sample.zone.memory_usage_bytes,
        "slots": [
            {
                "name": group.name,
                "usage_bytes": group.memory_usage_bytes,
                "swap_bytes": group.swap_bytes,
                "paused": state.paused,
                "limit_bytes": state.limit_bytes,
            }
            for group, state in zip(sample.slots, sample.slot_states, strict=True)
        ],
        "controller": record.decision.controller,
        "reason": record.decision.decision.reason,
        "granted": desired_text(record.granted, names),
        "fallback": record.fallback,
        "fault": None if fault is None else fault.kind.value,
        "guard_changes": [_change_values(change) for change in record.reasons.changes],
        "guard_notes": list(reason_notes(record.reasons, names)),
    }


def _change_values(change: GuardChange) -> dict[str, Any]:
    return {
        "rule": change.rule.value,
        "wish": change.wish.value,
        "slot": change.slot,
        "pid": change.pid,
        "lever": change.lever or None,
        "found": _finite(change.found),
        "bound": _finite(change.bound),
        "unit": change.unit.value or None,
    }


def _finite(number: float | None) -> float | None:
    """A number as JSON has it; ``None`` for a NaN or an infinity."""
    return number if number is not None and math.isfinite(number) else None
