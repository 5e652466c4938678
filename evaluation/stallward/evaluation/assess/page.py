"""The page of an assessment: the screen, and the p95 over time. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from stallward.evaluation.assess import text
from stallward.evaluation.assess.assessment import Assessment, free_seconds
from stallward.evaluation.assess.causes import Cause, causes_of
from stallward.evaluation.assess.readings import Readings
from stallward.evaluation.report.axes import axes, draw
from stallward.evaluation.report.experiment_page import (
    ExperimentPage,
    PageCell,
    PageChart,
    PageSection,
    PageTable,
)
from stallward.evaluation.report.svg import dots, line

_COLOURS: Final = {
    Cause.MEMORY: "var(--c0)",
    Cause.DISK: "var(--c1)",
    Cause.CPU: "var(--c2)",
    Cause.LOAD: "var(--c3)",
    Cause.UNKNOWN: "var(--c4)",
}
_MOST_DOTS: Final = 1500
"""Of each cause, so that the page of a week stays small."""


def assessment_page(found: Assessment, parts: Sequence[Readings]) -> ExperimentPage:
    """The whole page."""
    record, missed = text.record_lines(found)
    sections = [
        PageSection(
            title="The p95 of each second",
            what="The dashed line is the target. A second that missed it has the colour of the "
            "first cause that it shows a sign of.",
            key={text.CAUSES[cause]: colour for cause, colour in _COLOURS.items()},
            charts=_timeline(parts),
            notes=(missed,),
        ),
        PageSection(
            title="What missed seconds show",
            table=_table(text.cause_table(found)),
            notes=(text.signs_line(found),),
        ),
        PageSection(
            title="What would have been done",
            what=text.advice_line(found.advice),
            table=None if found.advice is None else _table(text.slot_table(found.advice)),
        ),
        PageSection(title=text.answer(found), notes=tuple(text.reasons(found))),
    ]
    return ExperimentPage(
        experiment="assess", source=record, headline=text.answer(found), sections=sections
    )


def _table(table: text.Table) -> PageTable:
    headers, rows = table
    return PageTable(headers=headers, rows=tuple(tuple(map(PageCell, row)) for row in rows))


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
    frame = axes(
        (0.0, 0.8 * low),
        (max(float(minutes[-1]), 1e-3), 1.3 * high),
        ("recorded time, minutes", "p95, ms"),
        log=(False, True),
        width=1040.0,
    )
    draw(frame, minutes[judged], p95_ms[judged], "var(--line)")
    frame.parts.append(
        line(frame.x.start, frame.y(target_ms), frame.x.end, frame.y(target_ms), class_="slo")
    )
    left = seconds.missed
    for cause, sign in causes_of(seconds).items():
        at = np.flatnonzero(sign & left)
        left = left & ~sign
        at = at[:: max(-(-at.size // _MOST_DOTS), 1)]
        x, y = frame.x.many(minutes[at]), frame.y.many(p95_ms[at])
        frame.parts.append(dots(x, y, 2.5, stroke=_COLOURS[cause]))
    label = "The p95 of each second, with what missed the target"
    return (PageChart(svg=frame.svg(label)),)
