"""The parts of the screen as text, in which a node's words are made printable. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from stallward.actuator.cli.tick_text import mib_text
from stallward.actuator.cli.top.history import ATTAINMENT_S, Change, GroupView, View
from stallward.actuator.record.tick_record import Mode
from stallward.agent.printable import printable

COLUMNS: Final = (
    "group", "memory", "swap", "limit", "CPUs", "memory stall", "disk stall", "refaults/s",
    "paused", "also",
)  # fmt: skip
UNKNOWN: Final = "-"


def headline(view: View) -> str:
    """How the application does, and who decides."""
    p95_ms, target_ms, whose = view.p95_ms, view.target_ms, ""
    if view.farthest is not None and view.farthest.latency is not None:
        p95_ms, target_ms = view.farthest.latency.p95_ms, view.farthest.slo_ms
        whose = f"{printable(view.farthest.name)}: "
    p95 = UNKNOWN if p95_ms is None else f"{p95_ms:.3g} ms"
    target = "" if target_ms is None else f" of at most {target_ms:.3g} ms"
    kept = "" if view.attainment is None else f", kept in {100 * view.attainment:.0f} %"
    last = f" of the last {ATTAINMENT_S} s" if kept else ""
    zone = f"{mib_text(view.zone_usage_bytes)} of {mib_text(view.zone_limit_bytes)} MiB"
    return f"{whose}p95 {p95}{target}{kept}{last}   memory {zone}"


def when(view: View, newest: View, *, recorded: bool) -> str:
    """Which second is shown where that is not what happens now."""
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(view.wall_time_s))
    what = "a recording" if recorded else "the past"
    before_s = newest.wall_time_s - view.wall_time_s
    ago = "" if view is newest else f", {before_s:.0f} s before the newest tick; 0 leads to it"
    return f"Not live, but {what}: {at}{ago}"


def decider(view: View) -> str:
    """Which controller decides, and why it decides so."""
    role = {
        Mode.OFF: "",
        Mode.SHADOW: ", a policy in its shadow",
        Mode.ADVICE: ", advised by a policy",
        Mode.ACTIVE: ", a policy",
    }
    fallback = ", in place of a controller that failed" if view.fallback else ""
    tuning = "" if view.profile == "default" else f" [{view.profile}]"
    reason = view.reason or "nothing to do"
    return printable(f"{view.controller}{role[view.mode]}{fallback}: {reason}{tuning}")


SORTS: Final[tuple[tuple[str, Callable[[GroupView], float]], ...]] = (
    ("the configuration", lambda _group: 0.0),
    ("memory", lambda group: group.memory_bytes or 0.0),
    ("CPUs", lambda group: group.cpu_cores or 0.0),
    ("memory stall", lambda group: group.memory_stall_share or 0.0),
    ("time paused", lambda group: group.paused_share),
)
"""The orders of the slots: their names, and what the largest of comes first."""


def group_rows(view: View, *, order: int = 0, words: str = "") -> list[tuple[str, ...]]:
    """The cells of the table, one row for each group, the application first.

    Args:
        view: What to show.
        order: The number of the slots' order in :data:`SORTS`.
        words: Only slots with this in their names are listed.
    """
    slots = [slot for slot in view.slots if words.lower() in slot.name.lower()]
    slots.sort(key=SORTS[order][1], reverse=True)  # stable, so equal ones stay in their order
    return [_row(group) for group in (*view.applications, *slots)]


_EIGHTHS: Final = " \u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"


def bars(values: Sequence[float], top: float, *, width: int, height: int) -> str:
    """Draw the last of some values as bars, the newest on the right.

    Args:
        values: The values, oldest first.
        top: The value of a bar of full height; larger ones are cut off.
        width: The most bars.
        height: Lines.
    """
    shown = values[-width:]
    eighths = [round(8 * height * min(max(v / top, 0.0), 1.0)) if top > 0.0 else 0 for v in shown]
    lines = [
        "".join(_EIGHTHS[min(max(eighth - 8 * row, 0), 8)] for eighth in eighths)
        for row in reversed(range(height))
    ]
    return "\n".join(line.rjust(width) for line in lines)


def latency_top_ms(view: View) -> float:
    """The p95 of a bar of full height: twice the target, so that a bar of half height meets it."""
    if view.target_ms is not None:
        return 2.0 * view.target_ms
    return max(view.p95_history_ms, default=0.0) or 1.0


def _row(group: GroupView) -> tuple[str, ...]:
    share = f" ({100 * group.paused_share:.0f} %)" if group.paused_share >= 0.005 else ""
    return (
        printable(group.name),
        mib_text(group.memory_bytes),
        mib_text(group.swap_bytes),
        mib_text(group.limit_bytes),
        UNKNOWN if group.cpu_cores is None else f"{group.cpu_cores:.2f}",
        _percent(group.memory_stall_share),
        _percent(group.io_stall_share),
        UNKNOWN if group.refaults_per_s is None else f"{group.refaults_per_s:.0f}",
        f"{'yes' if group.paused else 'no'}{share}",
        printable(", ".join(group.levers)),
    )


def change_line(change: Change, *, details: bool = False) -> str:
    """One change, with its time of day, its reason and, for ``details``, what the guard said."""
    at = time.strftime("%H:%M:%S", time.localtime(change.wall_time_s))
    why = f" ({change.controller}: {change.reason})" if change.reason else ""
    notes = "".join(f"; guard: {note}" for note in change.notes) if details else ""
    return printable(f"{at}  {change.treated}{why}{notes}")


def whole(view: View, changes: int = 10) -> str:
    """Everything as plain text, for what is not a terminal."""
    rows = [COLUMNS, *group_rows(view)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    table = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    lines = [headline(view), decider(view), "", *table, ""]
    return "\n".join([*lines, *map(change_line, view.changes[:changes])]).rstrip()


def _percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{100 * share:.0f} %"
