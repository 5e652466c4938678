"""An assessment in words: one screen, or the parts of a page. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from stallward.actuator.cli import output
from stallward.agent.desired import MIB
from stallward.evaluation.assess.assessment import (
    Advice,
    Assessment,
    Cause,
    Reason,
    ReasonKind,
    Verdict,
    causes_of,
    free_seconds,
)
from stallward.evaluation.assess.readings import Readings
from stallward.evaluation.report.drawing import axes, draw, hue, rule, svg_of
from stallward.evaluation.report.experiment_page import (
    ExperimentPage,
    PageChart,
    PageSection,
    PageTable,
)
from stallward.evaluation.results.interval import Interval

CAUSES: Final = {
    Cause.MEMORY: "memory",
    Cause.DISK: "disk, not memory",
    Cause.CPU: "processors",
    Cause.LOAD: "more requests than usual",
    Cause.UNKNOWN: "none of these",
}
_VERDICTS: Final = {
    Verdict.HELPS_LIKELY: "likely",
    Verdict.MAY_HELP: "perhaps",
    Verdict.TOO_EARLY: "too early to say",
    Verdict.NO: "no",
}
_ADVICE_ALONE: Final = (
    "What that does to latencies, and what is advised then, advice alone cannot say."
)
_MOST_SHOWN: Final = 4
"""So many applications are listed, so that everything is one screen."""
_EXPERIMENT: Final = (
    "stallward ab start --baseline controller:none --treatment controller:partition"
)
_REASONS: Final[dict[ReasonKind, Callable[[Reason], str]]] = {
    ReasonKind.NO_REQUESTS: lambda _: (
        "No request latency is recorded. Configure [latency]: docs/reference/latency.md."
    ),
    ReasonKind.TOO_LITTLE: lambda r: (
        f"{r.found:.0f} s with requests are recorded, and {r.bound:.0f} s are needed."
    ),
    ReasonKind.ACTED: lambda r: (
        f"The daemon acted for {100 * r.found:.0f} % of the time, which is left out. Record with "
        "dry_run = true."
    ),
    ReasonKind.NOTHING_MISSED: lambda r: (
        f"None of {r.bound:.0f} s with requests missed the target."
    ),
    ReasonKind.NO_PRESSURE: lambda r: (
        f"The application waited for memory in {100 * r.found:.0f} % of the missed seconds. Memory "
        "is not why they miss."
    ),
    ReasonKind.AS_USUAL: lambda r: (
        "Missed seconds do not certainly show more signs of memory than the others: more by at "
        f"least {100 * r.found:.0f} points, and {100 * r.bound:.0f} are needed."
    ),
    ReasonKind.NOTHING_HELD: lambda r: (
        f"The background holds {r.found / MIB:.0f} MiB in missed seconds. There is nothing to take."
    ),
    ReasonKind.COARSE: lambda r: (
        f"The target of {r.found:g} ms is below {r.bound:g} ms, ten steps of the latencies' source. "
        "Use one with finer times."
    ),
    ReasonKind.NO_SWAP: lambda r: (
        f"Without swap on cgroup v1, limits can take {r.found / MIB:.0f} of {r.bound / MIB:.0f} MiB "
        "from what runs. Only pauses protect."
    ),
    ReasonKind.SLOW_SWAP: lambda r: (
        f"A page from swap costs {r.found:.0f} us; on fast disks it is under {r.bound:.0f}. What a "
        "limit takes comes back slowly, so that `partition` only pauses while that is enough."
    ),
    ReasonKind.RARELY_HELD: lambda r: (
        f"The controller would have held something back in {100 * r.found:.0f} % of the missed "
        "seconds only."
    ),
}


def answer(found: Assessment) -> str:
    """The answer in a line."""
    return f"Would it help here? {_VERDICTS[found.verdict]}"


def reasons(found: Assessment) -> list[str]:
    """Why the answer is not better; a sentence or two each."""
    return [_REASONS[reason.kind](reason) for reason in found.reasons]


def lines_of(found: Assessment) -> list[str]:
    """The whole screen."""
    lines = [*record_lines(found)]
    if found.applications:
        lines += _table_lines(application_table(found))
    lines.append("")
    if found.missed_s:
        lines += [*_table_lines(cause_table(found)), signs_line(found), ""]
    lines.append(advice_line(found.advice))
    if found.advice is not None:
        lines += [*_table_lines(slot_table(found.advice)), _ADVICE_ALONE]
    lines += ["", answer(found)]
    for reason in reasons(found):
        lines += textwrap.wrap(reason, 98, initial_indent="  - ", subsequent_indent="    ")
    if found.verdict in (Verdict.HELPS_LIKELY, Verdict.MAY_HELP):
        lines += ["By how much, an experiment on the node says:", f"  {_EXPERIMENT}"]
    return lines


def _table_lines(table: PageTable) -> list[str]:
    return output.table_lines(table.headers, table.rows)


def record_lines(found: Assessment) -> tuple[str, str]:
    """What was recorded, and how much of it missed the target."""
    recorded = f"recorded: {found.recorded_s} s, {found.judged_s} with requests"
    share = found.missed
    known = "" if share.low is None or share.high is None else f" [{_range(share)}]"
    missed = f"{found.missed_s} s, {_percent(share.value)}{known}"
    if found.applications:
        worst, met_s = found.applications[0], found.judged_s - found.missed_s
        most = f"; {worst.name} missed most" if worst.missed_s else ""
        return recorded, f"all met their targets: {met_s} s; not all: {missed}{most}"
    target = "" if found.target_ms is None else f", target p95 {found.target_ms:.3g} ms"
    return f"{recorded}{target}", f"missed the target: {missed}"


def application_table(found: Assessment) -> PageTable:
    """How often each of several applications missed its target; the worst of them."""
    rows = [
        (
            one.name,
            "-" if one.target_ms is None else f"{one.target_ms:.3g}",
            f"{one.judged_s}",
            f"{one.missed_s}",
            _percent(one.missed.value),
        )
        for one in found.applications[:_MOST_SHOWN]
    ]
    headers = ("application", "target ms", "s with requests", "missed s", "missed")
    return PageTable(headers=headers, rows=rows)


def cause_table(found: Assessment) -> PageTable:
    """What the missed seconds show signs of."""
    rows = []
    for one in found.causes:
        share = one.of_missed
        interval = "-" if share.low is None or share.high is None else _range(share)
        figures = (_percent(share.value), interval, _percent(one.of_met))
        rows.append((CAUSES[one.cause], f"{one.missed_s}", *figures))
    headers = ("sign of", "missed s", "of missed", "95 %", "of met")
    return PageTable(headers=headers, rows=rows)


def signs_line(found: Assessment) -> str:
    """How the table is to be read."""
    met = "" if found.short_of_met is None else f", {_percent(found.short_of_met)} of the others"
    missed = _percent(found.short_of_missed.value)
    return f"A second may show several. Memory was short in {missed} of the missed{met}."


def advice_line(advice: Advice | None) -> str:
    """How often something would have been held back."""
    if advice is None:
        return 'No controller was asked. Set controller = "partition" with dry_run = true.'
    return (
        f"{', '.join(advice.controllers)} would hold something back in {advice.held_missed_s} of "
        f"{advice.missed_s} missed seconds, {advice.held_s} of {advice.asked_s} in all."
    )


def slot_table(advice: Advice) -> PageTable:
    """What would have been done to each slot, and what that costs it."""
    rows = [
        (
            slot.name,
            _mib(slot.held_bytes),
            f"{_percent(slot.paused_of_missed)} / {_percent(slot.paused)}",
            f"{_percent(slot.limited_of_missed)} / {_percent(slot.limited)}",
            _mib(slot.taken_bytes),
        )
        for slot in advice.slots
    ]
    headers = ("slot", "MiB", "paused: missed / all", "limited: missed / all", "MiB taken")
    return PageTable(headers=headers, rows=rows)


def _range(share: Interval) -> str:
    return f"{100 * (share.low or 0.0):.3g}..{100 * (share.high or 0.0):.3g}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.3g} %"


def _mib(value: float | None) -> str:
    return "-" if value is None else f"{value / MIB:.0f}"


# ---------- The page of an assessment: the screen, and the p95 over time. Pure

_COLOURS: Final = {
    Cause.MEMORY: "var(--c0)",
    Cause.DISK: "var(--c1)",
    Cause.CPU: "var(--c2)",
    Cause.LOAD: "var(--c3)",
    Cause.UNKNOWN: "var(--c4)",
}
_OF_SEVERAL: Final = " It is that of the application that is farthest from its target, times the node's over its own."
_MOST_DOTS: Final = 1500
"""Of each cause, so that the page of a week stays small."""


def assessment_page(found: Assessment, parts: Sequence[Readings]) -> ExperimentPage:
    """The whole page."""
    record, missed = record_lines(found)
    several = application_table(found) if found.applications else None
    sections = [
        PageSection(
            title="The p95 of each second",
            what="The dashed line is the target. A second that missed it has the colour of the "
            "first cause that it shows a sign of." + (_OF_SEVERAL if several else ""),
            key={CAUSES[cause]: colour for cause, colour in _COLOURS.items()},
            charts=_timeline(parts),
            table=several,
            notes=(missed,),
        ),
        PageSection(
            title="What missed seconds show",
            table=cause_table(found),
            notes=(signs_line(found),),
        ),
        PageSection(
            title="What would have been done",
            what=advice_line(found.advice),
            table=None if found.advice is None else slot_table(found.advice),
        ),
        PageSection(title=answer(found), notes=tuple(reasons(found))),
    ]
    return ExperimentPage(
        experiment="assess", source=record, headline=answer(found), sections=sections
    )


def _timeline(parts: Sequence[Readings]) -> tuple[PageChart, ...]:
    seconds = free_seconds(parts)
    judged = seconds.judged
    if not judged.any():
        return ()
    minutes = np.arange(judged.size) / 60.0  # gaps are left out
    p95_ms = np.maximum(seconds.p95_ms, 1e-3)
    target_ms = float(seconds.target_ms[judged][-1])
    low, high = (
        min(float(p95_ms[judged].min()), target_ms),
        max(float(p95_ms[judged].max()), target_ms),
    )
    drawn = axes(
        (0.0, 0.8 * low),
        (max(float(minutes[-1]), 1e-3), 1.3 * high),
        ("recorded time, minutes", "p95, ms"),
        log=(False, True),
        size=(1040.0, 330.0),
    )
    draw(drawn, minutes[judged], p95_ms[judged], "var(--line)")
    rule(drawn, y=target_ms)
    left = seconds.missed
    for cause, sign in causes_of(seconds).items():
        at = np.flatnonzero(sign & left)
        left = left & ~sign
        at = at[:: max(-(-at.size // _MOST_DOTS), 1)]
        colour = hue(_COLOURS[cause])
        drawn.plot(minutes[at], p95_ms[at], ".", color=colour, markersize=8, markeredgewidth=0)
    label = "The p95 of each second, with what missed the target"
    return (PageChart(svg=svg_of(drawn, label)),)
