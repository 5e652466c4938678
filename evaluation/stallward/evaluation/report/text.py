"""The table of a comparison as text: for the terminal and for the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

Kind = Literal["ms", "ratio", "share", "number"]
REFERENCES: Final = ("alone", "ample")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One measure of the table."""

    metric: str
    title: str
    kind: Kind
    meaning: str


COLUMNS: Final = (
    Column(metric="p50_ms", title="p50 ms", kind="ms", meaning="median sojourn time"),
    Column(metric="p95_ms", title="p95 ms", kind="ms", meaning="95th percentile"),
    Column(metric="p99_ms", title="p99 ms", kind="ms", meaning="99th percentile"),
    Column(
        metric="impact_p95",
        title="impact p95",
        kind="ratio",
        meaning="(p95 - p95 alone) / p95 alone",
    ),
    Column(
        metric="impact_ample_p95",
        title="vs ample",
        kind="ratio",
        meaning="the same against ample memory",
    ),
    Column(
        metric="slo_attainment",
        title="SLO met",
        kind="share",
        meaning="share of windows in which the target was met",
    ),
    Column(
        metric="background_work",
        title="background",
        kind="share",
        meaning="work done / work with the node to itself",
    ),
    Column(
        metric="psi_some_share",
        title="stalled",
        kind="share",
        meaning="share of time with a protected task stalled for memory (PSI some)",
    ),
    Column(
        metric="paused_share",
        title="paused",
        kind="share",
        meaning="share of group time spent paused",
    ),
)


_LONGEST: Final = 26
_HUGE: Final = 1e6


def short(label: str) -> str:
    """An arm's label for where there is little room: paths lose their folders."""
    name, _, rest = label.partition(":")
    parts = [part.rpartition("/")[2] if "/" in part else part for part in rest.split(",")]
    text = f"{name}:{','.join(parts)}" if rest else label
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def number(value: float | None, kind: Kind) -> str:
    """A value, as short as its meaning allows; ``-`` where it is unknown."""
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


def seconds(value: float) -> str:
    """A length of time to a tenth, as ``7.6 s`` or ``30 s``."""
    return f"{round(value, 1):g} s"


def target(result: Mapping[str, Any]) -> str:
    """The target of a comparison, as ``p95 at most 60.0 ms``."""
    percent = 100 * result.get("slo_quantile", 0.95)  # older results judge p95
    return f"p{percent:g} at most {number(result['slo_ms'], 'ms')} ms"


def span(metric: Mapping[str, float | None], kind: Kind) -> str:
    """The interval of a metric, ``low..high``; empty where there is none."""
    low, high = metric["low"], metric["high"]
    if low is None or high is None:
        return ""
    return f"{number(low, kind)}..{number(high, kind)}".replace(" %..", "..")


def cell(metric: Mapping[str, float | None], kind: Kind) -> str:
    """A value with its interval."""
    interval = span(metric, kind)
    return number(metric["value"], kind) + (f" [{interval}]" if interval else "")


def reference_cell(
    name: str,
    metrics: Mapping[str, Mapping[str, float | None]],
    column: Column,
    render: Callable[[Mapping[str, float | None], Kind], str],
) -> str:
    """A cell of alone or ample; empty where the measure says nothing about it."""
    empty = {"paused_share", "impact_ample_p95" if name == "ample" else "impact_p95"}
    if name == "alone":
        empty |= {"background_work", "impact_ample_p95"}
    return "" if column.metric in empty else render(metrics[column.metric], column.kind)


def result_rows(result: Mapping[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headers and rows of a comparison's table, references first.

    Where an arm ended background processes, a last column says how many in all its blocks.
    """
    ended = {label: arm.get("terminated_processes", 0) for label, arm in result["arms"].items()}
    extra = ("terminated",) if any(ended.values()) else ()
    headers = ("arm", *(column.title for column in COLUMNS), *extra)
    rows = []
    for name in REFERENCES:
        metrics = result["references"][name]
        rows.append(
            (name, *(reference_cell(name, metrics, c, cell) for c in COLUMNS), *[""] * len(extra))
        )
    for label, arm in result["arms"].items():
        counts = [str(ended[label])] if extra else []
        rows.append((label, *(cell(arm[c.metric], c.kind) for c in COLUMNS), *counts))
    return headers, rows


def headline(result: Mapping[str, Any]) -> str:
    """The comparison in one or two sentences, with its numbers."""
    arms = result["arms"]
    alone = result["alone"]["protected"]["p95_ms"]
    where = "On the twin, " if result["mode"] == "twin" else ""
    text = f"{where}p95 is {number(alone, 'ms')} ms alone"
    if "none" in arms:
        text += f" and {number(arms['none']['p95_ms']['value'], 'ms')} ms beside the background"
    text += "."
    acting = {label: arm for label, arm in arms.items() if label.partition("#")[0] != "none"}
    if not acting:
        return text
    best = min(acting, key=lambda label: _loss(acting[label]))
    text += f" {_effect(best, acting[best], arms.get('none'))}"
    others = [
        f"{short(label)} {number(other['p95_ms']['value'], 'ms')} ms at "
        f"{number(other['background_work']['value'], 'share')}{_ended(other)}"
        for label, other in acting.items()
        if label != best
    ]
    return text + (f"; {', '.join(others)}." if others else ".")


def _effect(label: str, arm: Mapping[str, Any], none: Mapping[str, Any] | None) -> str:
    """What an arm did to p95, and what that cost."""
    p95, work = arm["p95_ms"]["value"], arm["background_work"]["value"]
    price = (
        "" if work is None else f" while the background does {number(work, 'share')} of its work"
    ) + _ended(arm)
    if none is not None and p95 is not None and p95 >= 0.95 * none["p95_ms"]["value"]:
        return f"No arm helps: {short(label)} has {number(p95, 'ms')} ms{price}"
    return f"{short(label)} brings it to {number(p95, 'ms')} ms{price}"


def _ended(arm: Mapping[str, Any]) -> str:
    """That an arm ended processes, which the other figures do not show."""
    count = arm.get("terminated_processes", 0)
    return f" ({count} process{'es' if count != 1 else ''} terminated)" if count else ""


def _loss(arm: Mapping[str, Any]) -> tuple[float, float]:
    """Orders arms: first by target met (in tenths), then by background work."""
    met = arm["slo_attainment"]["value"] or 0.0
    return (-round(10 * met), -(arm["background_work"]["value"] or 0.0))
