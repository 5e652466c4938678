"""The table and the headline of a comparison as text, for the terminal and the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal

from stallward.evaluation.arms import ALONE, AMPLE
from stallward.evaluation.results.comparison import (
    ArmResult,
    ComparisonResult,
    Metrics,
    Table,
)
from stallward.evaluation.results.interval import Interval

Kind = Literal["ms", "ratio", "share", "number"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of the table: one measure."""

    title: str
    """The header of the column."""
    of: Callable[[Metrics], Interval]
    """Returns the measure of a condition."""
    kind: Kind
    """How the numbers are written."""
    meaning: str
    """An explanation of the measure."""
    alone: bool = True
    """Whether the measure is shown for the reference ``alone``."""
    ample: bool = True
    """Whether the measure is shown for the reference ``ample``."""


COLUMNS: Final = (
    Column(title="p50 ms", of=lambda m: m.p50_ms, kind="ms", meaning="median sojourn time"),
    Column(title="p95 ms", of=lambda m: m.p95_ms, kind="ms", meaning="95th percentile"),
    Column(title="p99 ms", of=lambda m: m.p99_ms, kind="ms", meaning="99th percentile"),
    Column(
        title="impact p95",
        of=lambda m: m.impact_p95,
        kind="ratio",
        meaning="(p95 - p95 alone) / p95 alone",
        alone=False,
    ),
    Column(
        title="vs ample",
        of=lambda m: m.impact_ample_p95,
        kind="ratio",
        meaning="(p95 - p95 with ample memory) / p95 with ample memory",
        alone=False,
        ample=False,
    ),
    Column(
        title="SLO met",
        of=lambda m: m.slo_attainment,
        kind="share",
        meaning="share of windows in which the target was met",
    ),
    Column(
        title="background",
        of=lambda m: m.background_work,
        kind="share",
        meaning="work done / work with the node to itself",
        alone=False,
    ),
    Column(
        title="stalled",
        of=lambda m: m.psi_some_share,
        kind="share",
        meaning="share of time with a protected task stalled for memory (PSI some)",
    ),
    Column(
        title="paused",
        of=lambda m: m.paused_share,
        kind="share",
        meaning="share of group time spent paused",
        alone=False,
        ample=False,
    ),
)


_LONGEST: Final = 26
"""The longest name that a label is shortened to, in characters."""
_HUGE: Final = 1e6
"""From this value on, numbers are written with an exponent."""


def short_names(labels: Iterable[str]) -> dict[str, str]:
    """Label of an arm -> its name in narrow places, where paths lose their folders.

    A label stays whole where it would look like another one.
    """
    names = {label: _short(label) for label in labels}
    times = Counter(names.values())
    return {label: name if times[name] == 1 else label for label, name in names.items()}


def _short(label: str) -> str:
    name, _, rest = label.partition(":")
    parts = [part.rpartition("/")[2] if "/" in part else part for part in rest.split(",")]
    text = f"{name}:{','.join(parts)}" if rest else label
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def number(value: float | None, kind: Kind) -> str:
    """A value as short text; ``-`` if it is unknown."""
    if value is None:
        return "-"
    if kind == "share":
        return f"{100 * value:.0f} %" if abs(value) >= 0.0995 else f"{100 * value:.1f} %"
    if value >= _HUGE:  # the end of an interval from too few blocks
        return f"{value:.0e}".replace("e+0", "e").replace("e+", "e") + "x" * (kind == "ratio")
    if kind == "number":
        return f"{value:.2f}"
    if kind == "ratio":
        return f"{value:+.0f}x" if abs(value) >= 9.95 else f"{value:+.2f}x"
    return f"{value:.0f}" if value >= 99.5 else f"{value:.1f}" if value >= 9.95 else f"{value:.2f}"


def short_count(value: float) -> str:
    """A count of things or of time in few characters: 1.5 M."""
    for size, name in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{name}"
    return f"{value:.3g}"


def seconds(value: float) -> str:
    """A duration to a tenth of a second, such as ``7.6 s`` or ``30 s``."""
    return f"{round(value, 1):g} s"


def target(table: Table) -> str:
    """The target of a comparison, such as ``p95 at most 60.0 ms``."""
    return f"p{100 * table.slo_quantile:g} at most {number(table.slo_ms, 'ms')} ms"


def span(figure: Interval, kind: Kind) -> str:
    """The interval of a figure, ``low..high``; empty if there is none."""
    if figure.low is None or figure.high is None:
        return ""
    return f"{number(figure.low, kind)}..{number(figure.high, kind)}".replace(" %..", "..")


def cell(figure: Interval, kind: Kind) -> str:
    """A value with its interval."""
    interval = span(figure, kind)
    return number(figure.value, kind) + (f" [{interval}]" if interval else "")


def table_figures(table: Table) -> dict[str, tuple[Interval | None, ...]]:
    """Label of a condition, references first -> its figure of each of :data:`COLUMNS`.

    A figure is ``None`` where it makes no sense.
    """
    alone, ample = table.references.alone, table.references.ample
    return {
        ALONE: tuple(column.of(alone) if column.alone else None for column in COLUMNS),
        AMPLE: tuple(column.of(ample) if column.ample else None for column in COLUMNS),
        **{
            label: tuple(column.of(arm.metrics) for column in COLUMNS)
            for label, arm in table.arms.items()
        },
    }


def result_rows(result: ComparisonResult) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headers and rows of a comparison's table, references first.

    If an arm ended background processes, the last column has their number in all its blocks.
    """
    table = result.table
    counts = {label: (str(arm.facts.ended_processes),) for label, arm in table.arms.items()}
    ends = any(arm.facts.ended_processes for arm in table.arms.values())
    rows = [
        (
            label,
            *("" if f is None else cell(f, c.kind) for f, c in zip(figures, COLUMNS, strict=True)),
            *(counts.get(label, ("",)) if ends else ()),
        )
        for label, figures in table_figures(table).items()
    ]
    return ("arm", *(column.title for column in COLUMNS), *(("ended",) if ends else ())), rows


APPLICATION_HEADERS: Final = ("arm", "application", "target ms", "SLO met", "p95 ms", "p99 ms")
"""The headers of the table of each application."""


def application_rows(result: ComparisonResult) -> list[tuple[str, ...]]:
    """Rows of the table of each application, for :data:`APPLICATION_HEADERS`; empty for one."""
    return [
        (
            condition,
            one.application,
            number(one.slo_ms, "ms"),
            cell(one.slo_attainment, "share"),
            cell(one.p95_ms, "ms"),
            cell(one.p99_ms, "ms"),
        )
        for condition, applications in (result.table.applications or {}).items()
        for one in applications
    ]


def about_applications(result: ComparisonResult) -> str:
    """What the table of a comparison says of several applications; empty for one."""
    if result.table.applications is None:
        return ""
    first = result.table.applications[AMPLE][0].application
    return (
        "SLO met above: seconds in which all applications met their targets. "
        f"The latencies there are those of {first}."
        + (" The twin is composed and not fitted." if result.mode == "twin" else "")
    )


def headline(result: ComparisonResult) -> str:
    """The result of a comparison in one or two sentences, with its numbers."""
    arms = result.table.arms
    none = arms.get("none")
    where = "On the twin, " if result.mode == "twin" else ""
    text = f"{where}p95 is {number(result.table.alone.protected.p95_ms, 'ms')} ms alone"
    if none is not None:
        text += f" and {number(none.metrics.p95_ms.value, 'ms')} ms beside the background"
    text += "."
    acting = {label: arm for label, arm in arms.items() if label.partition("#")[0] != "none"}
    if not acting:
        return text
    # An arm that meets the target no more often than others must not hide one that lowers p95.
    helping = {label: arm for label, arm in acting.items() if _lowers_p95(arm, none)} or acting
    best = min(helping, key=lambda label: _loss(helping[label].metrics))
    names = short_names(arms)
    text += f" {_effect(names[best], acting[best], none)}"
    others = [
        f"{names[label]} {number(other.metrics.p95_ms.value, 'ms')} ms at "
        f"{number(other.metrics.background_work.value, 'share')}{_ended(other)}"
        for label, other in acting.items()
        if label != best
    ]
    return text + (f"; {', '.join(others)}." if others else ".")


def _effect(name: str, arm: ArmResult, none: ArmResult | None) -> str:
    """A sentence about an arm's p95 and its background work."""
    p95, work = arm.metrics.p95_ms.value, arm.metrics.background_work.value
    price = (
        "" if work is None else f" while the background does {number(work, 'share')} of its work"
    ) + _ended(arm)
    if _lowers_p95(arm, none) is False:
        return f"No arm helps: {name} has {number(p95, 'ms')} ms{price}"
    return f"{name} brings it to {number(p95, 'ms')} ms{price}"


def _lowers_p95(arm: ArmResult, none: ArmResult | None) -> bool | None:
    """Whether an arm's p95 is noticeably below that without control; ``None`` if unknown."""
    p95 = arm.metrics.p95_ms.value
    untouched = None if none is None else none.metrics.p95_ms.value
    return None if p95 is None or untouched is None else p95 < 0.95 * untouched


def _ended(arm: ArmResult) -> str:
    """How many processes an arm ended, which other figures do not show; empty for none."""
    counts = {
        "terminated": arm.facts.terminated_processes,
        "killed under its limits": arm.facts.limit_kills,
    }
    words = [
        f"{count} process{'es' if count != 1 else ''} {how}"
        for how, count in counts.items()
        if count
    ]
    return f" ({', '.join(words)})" if words else ""


def _loss(arm: Metrics) -> tuple[float, float]:
    """The key that orders arms: first by target met (in tenths), then by background work."""
    met = arm.slo_attainment.value or 0.0
    return (-round(10 * met), -(arm.background_work.value or 0.0))


# ---------- How a report may open: with a small table and what it means, before all figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """The first thing that a reader sees of a comparison."""

    headline: str
    """What the figures mean, in one sentence."""
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    """Cells of a row, one for each of ``headers``; the first is the name of a condition."""
    target: str
    """The target that the table speaks of."""
    notes: tuple[str, ...] = ()
    """Further sentences, one a line."""
