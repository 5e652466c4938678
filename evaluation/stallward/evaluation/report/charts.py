"""The charts that compare arms: latency distributions, background work, and the trade-off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from stallward.evaluation.measures.block_measures import paused_share
from stallward.evaluation.report.svg import (
    Scale,
    area,
    dots,
    line,
    linear_ticks,
    log10,
    log_ticks,
    nines,
    polyline,
    svg,
    tag,
    text,
    title,
)
from stallward.evaluation.report.text import cell, number, short_names
from stallward.evaluation.results.comparison import Table
from stallward.evaluation.results.interval import Interval

if TYPE_CHECKING:
    from stallward.env.recording.recording import Recording

Array = NDArray[np.float64]
COLOURS: Final = 8
_DASHES: Final = (None, "7 3", "2 3", "9 3 2 3")
_MARKED: Final = (0.5, 0.95, 0.99)
_CURVE_POINTS: Final = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How a condition is drawn in all charts: a colour, and a dash for those who cannot see it."""

    label: str
    colour: str
    dash: str | None = None
    reference: bool = False


def styles(arms: Sequence[str]) -> dict[str, Style]:
    """Label -> style, of alone, ample and every arm; styles depend only on the order of arms."""
    by_label = {
        "alone": Style(label="alone", colour="var(--ref0)", dash="2 3", reference=True),
        "ample": Style(label="ample", colour="var(--ref1)", dash="7 3", reference=True),
    }
    for i, arm in enumerate(arms):
        dash = _DASHES[(i // COLOURS) % len(_DASHES)]
        by_label[arm] = Style(label=arm, colour=f"var(--c{i % COLOURS})", dash=dash)
    return by_label


def cdf_chart(
    latencies_ms: Mapping[str, Array],
    style: Mapping[str, Style],
    slo_ms: float | None = None,
    *,
    axis: str = "latency from the scheduled arrival, ms",
    marked: Sequence[float] = _MARKED,
) -> str:
    """The latency distributions: log time by a probability axis that stretches the tail.

    ``axis`` says what the latency is, and quantiles in ``marked`` have a dot on every curve.
    """
    width, height = 1040.0, 430.0
    pooled_ms = np.concatenate([v for v in latencies_ms.values() if v.size])
    low, high = float(np.quantile(pooled_ms, 0.001)) * 0.8, float(pooled_ms.max()) * 1.1
    if slo_ms is not None:
        low, high = min(low, slo_ms * 0.8), max(high, slo_ms * 1.3)
    x = Scale(low=max(low, 1e-3), high=high, start=52, end=width - 12, warp=log10)
    y = Scale(low=0.0, high=0.9995, start=height - 40, end=14, warp=nines)
    parts = [_log_axis(x, 14, height - 40, axis)]
    for share in (0.0, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999):
        parts.append(line(52, y(share), width - 12, y(share), class_="grid"))
        parts.append(text(46, y(share) + 4, f"{100 * share:g} %", class_="end"))
    for share in marked:
        parts.append(line(52, y(share), width - 12, y(share), class_="rule"))
        parts.append(text(56, y(share) - 4, f"p{100 * share:g}"))
    if slo_ms is not None:
        parts.append(line(x(slo_ms), 14, x(slo_ms), height - 40, class_="slo"))
        parts.append(text(x(slo_ms) + 5, 24, f"SLO {number(slo_ms, 'ms')} ms"))
    for name, values in latencies_ms.items():
        parts.append(_curve(values, x, y, style[name], marked))
    return svg(width, height, parts, label="Latency distributions per arm")


def _curve(values: Array, x: Scale, y: Scale, style: Style, marked: Sequence[float]) -> str:
    if values.size == 0:
        return ""
    shares = 1.0 - 10.0 ** -np.linspace(0.0, 3.3, _CURVE_POINTS)
    shares = shares[shares <= 1.0 - 1.0 / values.size]  # no more nines than the requests allow
    quantiles = np.quantile(values, shares)
    parts = [
        polyline(
            x.many(quantiles),
            y.many(shares),
            stroke=style.colour,
            stroke_width=2.2,
            stroke_dasharray=style.dash,
            stroke_linejoin="round",
        )
    ]
    for share in marked:
        value = float(np.quantile(values, share))
        parts.append(
            tag(
                "circle",
                title(f"{style.label} p{100 * share:g} {number(value, 'ms')} ms"),
                cx=x(value),
                cy=y(share),
                r=4.5,
                fill=style.colour,
                stroke="var(--card)",
                stroke_width=1.5,
            )
        )
    return tag("g", *parts, data_arm=style.label)


def _log_axis(x: Scale, top: float, bottom: float, label: str) -> str:
    parts = [line(x.start, bottom, x.end, bottom, class_="axis")]
    for value in log_ticks(x.low, x.high):
        parts.append(line(x(value), top, x(value), bottom, class_="grid"))
        parts.append(text(x(value), bottom + 16, f"{value:g}", class_="mid"))
    parts.append(text((x.start + x.end) / 2, bottom + 34, label, class_="mid"))
    return tag("g", *parts)


def work_chart(table: Table, style: Mapping[str, Style]) -> str:
    """The background work of each arm, as bars with intervals."""
    works = {label: arm.metrics.background_work for label, arm in table.arms.items()}
    names = short_names(works)
    row, width = 46.0, 500.0
    height = row * len(works) + 44
    ends = [work.high or work.value or 0.0 for work in works.values()]
    values = [work.value or 0.0 for work in works.values()]
    top = min(max(1.0, *ends), max(1.5, 1.6 * max(values)))
    x = Scale(low=0.0, high=top, start=6, end=width - 20)
    parts = []
    for value in linear_ticks(0.0, top, 5):
        parts.append(line(x(value), 4, x(value), height - 36, class_="grid"))
        parts.append(text(x(value), height - 20, f"{100 * value:.0f} %", class_="mid"))
    parts.append(line(x(1.0), 4, x(1.0), height - 36, class_="rule"))
    for i, (label, work) in enumerate(works.items()):
        base = 6 + row * i
        bar = [
            text(8, base + 12, names[label], class_="name"),
            text(width - 22, base + 12, cell(work, "share"), class_="end value"),
        ]
        if work.value is not None:
            bar.append(
                tag(
                    "rect",
                    x=x(0.0),
                    y=base + 18,
                    width=max(x(work.value) - x(0.0), 1.0),
                    height=14,
                    rx=3,
                    fill=style[label].colour,
                )
            )
            bar.append(_whisker(x, work, base + 25))
        parts.append(tag("g", *bar, data_arm=label))
    parts.append(text(width / 2, height - 2, "work / work with the node to itself", class_="mid"))
    return svg(width, height, parts, label="Background work per arm with 95 % intervals")


def _whisker(x: Scale, figure: Interval, y: float) -> str:
    if figure.low is None or figure.high is None:
        return ""
    ink = {"stroke": "var(--ink)", "stroke_width": 1.6}
    low, high = x(figure.low), x(figure.high)
    return tag(
        "g",
        line(low, y, high, y, **ink),
        line(low, y - 4, low, y + 4, **ink),
        line(high, y - 4, high, y + 4, **ink),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _TradeOff:
    """The p95 and the background work of an arm, with known values."""

    p95_ms: Interval
    work: Interval
    at_ms: float
    """The value of ``p95_ms``."""
    at_work: float
    """The value of ``work``."""


def _trade_offs(table: Table) -> dict[str, _TradeOff]:
    """Label -> both figures, for the arms whose values are known."""
    trade_offs = {}
    for label, arm in table.arms.items():
        p95_ms, work = arm.metrics.p95_ms, arm.metrics.background_work
        if p95_ms.value is not None and work.value is not None:
            trade_offs[label] = _TradeOff(
                p95_ms=p95_ms, work=work, at_ms=p95_ms.value, at_work=work.value
            )
    return trade_offs


def trade_chart(table: Table, style: Mapping[str, Style]) -> str:
    """p95 against background work: to the right and down is better."""
    trade_offs = _trade_offs(table)
    width, height = 500.0, 330.0
    # The p95 alone is known: without answers there is no comparison.
    alone_ms = table.alone.protected.p95_ms or table.slo_ms
    p95_ms = [arm.at_ms for arm in trade_offs.values()]
    most_work = max((arm.at_work for arm in trade_offs.values()), default=1.0)
    x = Scale(low=0.0, high=max(1.05, 1.15 * most_work), start=50, end=width - 16)
    y = Scale(
        low=0.6 * min([alone_ms, *p95_ms]),
        high=1.8 * max([table.slo_ms, *p95_ms]),
        start=height - 40,
        end=10,
        warp=log10,
    )
    parts = [line(50, height - 40, width - 16, height - 40, class_="axis")]
    for value in log_ticks(y.low, y.high):
        parts.append(line(50, y(value), width - 16, y(value), class_="grid"))
        parts.append(text(44, y(value) + 4, f"{value:g}", class_="end"))
    parts += [
        text(x(value), height - 24, f"{100 * value:.0f} %", class_="mid")
        for value in linear_ticks(0.0, x.high, 5)
    ]
    for value, name in ((alone_ms, "alone"), (table.slo_ms, "SLO")):
        parts.append(line(50, y(value), width - 16, y(value), class_="rule"))
        parts.append(text(54, y(value) - 4, name))
    labels: list[tuple[float, float]] = []
    dots = [(x(arm.at_work), y(arm.at_ms)) for arm in trade_offs.values()]
    names = short_names(table.arms)
    for label, arm in trade_offs.items():
        parts.append(_cross(names[label], arm, x, y, style[label], labels, dots))
    parts.append(text((50 + width) / 2, height - 6, "background work", class_="mid"))
    parts.append(
        text(
            0,
            0,
            "p95 latency, ms",
            class_="mid",
            transform=f"translate(11 {height / 2 - 20:.0f}) rotate(-90)",
        )
    )
    return svg(width, height, parts, label="p95 latency against background work per arm")


def _cross(
    name: str,
    arm: _TradeOff,
    x: Scale,
    y: Scale,
    style: Style,
    labels: list[tuple[float, float]],
    dots: Sequence[tuple[float, float]],
) -> str:
    """Draw one arm with its intervals.

    Its name avoids the ``labels`` so far, to which its position is added, and all ``dots``.
    """
    p95_ms, work = arm.p95_ms, arm.work
    px, py = x(arm.at_work), y(arm.at_ms)
    parts = []
    ink = {"stroke": style.colour, "stroke_width": 1.6, "opacity": 0.75}
    if p95_ms.low is not None and p95_ms.high is not None:
        parts.append(line(px, y(max(p95_ms.low, y.low)), px, y(p95_ms.high), **ink))
    if work.low is not None and work.high is not None:
        parts.append(line(x(work.low), py, x(work.high), py, **ink))
    tooltip = f"{style.label}: p95 {cell(p95_ms, 'ms')} ms, background {cell(work, 'share')}"
    parts.append(
        tag(
            "circle",
            title(tooltip),
            cx=px,
            cy=py,
            r=6.5,
            fill=style.colour,
            stroke="var(--card)",
            stroke_width=2,
        )
    )
    left = px > x.end - 90
    label_y = py - 8
    reach = 11 + 7 * len(name)
    dots_beside = [oy for ox, oy in dots if 0.0 < (px - ox if left else ox - px) < reach]
    while any(abs(px - ox) < 90 and abs(label_y - oy) < 14 for ox, oy in labels) or any(
        abs(label_y - 4 - oy) < 12 for oy in dots_beside
    ):
        label_y += 14
    labels.append((px, label_y))
    label_x, css_class = (px - 11, "name end") if left else (px + 11, "name")
    parts.append(text(label_x, label_y, name, class_=css_class))
    return tag("g", *parts, data_arm=style.label)


# ---------- The timeline of one block: its requests, the stall of the protected group, and all levers

_MAX_DOTS: Final = 2500
_LEFT: Final = 92.0
_WIDTH: Final = 1040.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A time during which a lever was set."""

    start_s: float
    end_s: float
    description: str
    strength: float = 1.0
    """0..1, drawn as opacity: the share of a group that is paused, or how tight a limit is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """The marks of one kind of lever, for one group or for the node."""

    name: str
    kind: str
    """``pause``, ``limit`` or ``tune``: the CSS class of the marks."""
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timeline:
    """The data that is drawn for one block; times count from the start of the measured part."""

    label: str
    burn_in_s: float
    end_s: float
    request_s: Array
    latency_ms: Array
    psi_s: Array
    psi_share: Array
    lanes: tuple[Lane, ...]


def timeline_of(recording: Recording, label: str) -> Timeline:
    """The timeline of a recorded block."""
    run = recording.run
    zero_s = run.measured_from_s
    tick_s = np.asarray(recording.ticks["time_s"], dtype=np.float64) - zero_s
    stall = recording.tick("protected_psi_memory_some_us") * 1e-6
    share = np.clip(np.diff(stall) / np.maximum(np.diff(tick_s), 1e-6), 0.0, 1.0)
    lanes: list[Lane] = []
    for slot, name in enumerate(run.slot_names if run.condition != "alone" else ()):
        paused = paused_share(recording, slot)
        limit = recording.tick(f"slot{slot}_state_limit_bytes")
        reference = recording.tick(f"slot{slot}_state_reference_bytes")
        lanes.append(
            Lane(name=f"{name} paused", kind="pause", marks=_pause_marks(tick_s, paused, name))
        )
        lanes.append(
            Lane(
                name=f"{name} limited",
                kind="limit",
                marks=_limit_marks(tick_s, limit, reference, name),
            )
        )
    profile = recording.ticks.get("profile")
    names = ["default"] * tick_s.size if profile is None else [str(p) for p in profile]
    lanes.append(Lane(name="tuned", kind="tune", marks=_profile_marks(tick_s, names)))
    return Timeline(
        label=label,
        burn_in_s=run.burn_in_s,
        end_s=run.end_s - zero_s,
        request_s=recording.requests.scheduled_s - zero_s,
        latency_ms=recording.requests.sojourn_ms,
        psi_s=tick_s[1:],
        psi_share=np.nan_to_num(share),
        lanes=tuple(lane for lane in lanes if lane.marks),
    )


def _runs(keys: Sequence[object]) -> list[tuple[int, int]]:
    """The start and end of every run of equal keys that are not ``None``."""
    runs, start = [], 0
    for i in range(1, len(keys) + 1):
        if i == len(keys) or keys[i] != keys[start]:
            if keys[start] is not None:
                runs.append((start, i))
            start = i
    return runs


def _span(tick_s: Array, start: int, end: int) -> tuple[float, float]:
    return float(tick_s[start]), float(tick_s[min(end, tick_s.size - 1)])


def _pause_marks(tick_s: Array, paused: Array, name: str) -> tuple[Mark, ...]:
    keys = [round(float(p), 2) or None for p in paused]
    marks = []
    for start, end in _runs(keys):
        start_s, end_s = _span(tick_s, start, end)
        share = float(paused[start])
        part = "" if share >= 1.0 else f" ({number(share, 'share')} of its processes)"
        description = f"{name} paused for {end_s - start_s:.1f} s at {start_s:.1f} s{part}"
        strength = 0.35 + 0.65 * share
        marks.append(
            Mark(start_s=start_s, end_s=end_s, description=description, strength=strength)
        )
    return tuple(marks)


def _limit_marks(tick_s: Array, limit: Array, reference: Array, name: str) -> tuple[Mark, ...]:
    keys = [int(v) if np.isfinite(v) else None for v in limit]
    marks = []
    for start, end in _runs(keys):
        start_s, end_s = _span(tick_s, start, end)
        ratio = limit[start] / reference[start] if reference[start] > 0 else 1.0
        description = (
            f"{name} limited to {limit[start] / 2**20:.0f} MiB "
            f"for {end_s - start_s:.1f} s at {start_s:.1f} s"
        )
        strength = float(np.clip(1.15 - 0.8 * np.nan_to_num(ratio, nan=1.0), 0.3, 1.0))
        marks.append(
            Mark(start_s=start_s, end_s=end_s, description=description, strength=strength)
        )
    return tuple(marks)


def _profile_marks(tick_s: Array, names: Sequence[str]) -> tuple[Mark, ...]:
    keys = [None if name in ("", "default") else name for name in names]
    marks = []
    for start, end in _runs(keys):
        start_s, end_s = _span(tick_s, start, end)
        description = f"profile {keys[start]} for {end_s - start_s:.1f} s at {start_s:.1f} s"
        marks.append(Mark(start_s=start_s, end_s=end_s, description=description))
    return tuple(marks)


def timeline_chart(
    timeline: Timeline, style: Style, *, slo_ms: float, low_ms: float, high_ms: float
) -> str:
    """Draw one block: latency on a log axis, the stall, and a lane for each lever in use."""
    top, middle, psi_height, lane_height = 8.0, 168.0, 44.0, 17.0
    lanes_at = middle + psi_height + 20
    bottom = lanes_at + lane_height * len(timeline.lanes) + 4
    x = Scale(low=-timeline.burn_in_s, high=timeline.end_s, start=_LEFT, end=_WIDTH - 8)
    y = Scale(low=low_ms, high=high_ms, start=middle, end=top, warp=log10)
    parts = [
        tag(
            "rect",
            title("burn-in, not measured"),
            x=_LEFT,
            y=top,
            width=max(x(0.0) - _LEFT, 0.0),
            height=bottom - top,
            class_="burn",
        ),
        *_latency(timeline, style, x, y, slo_ms),
        *_stall(timeline, x, middle + psi_height + 10, psi_height),
    ]
    for i, lane in enumerate(timeline.lanes):
        parts.extend(_lane(lane, x, lanes_at + lane_height * i, lane_height - 4))
    parts += [
        text(x(value), bottom + 14, f"{value:g} s", class_="mid")
        for value in linear_ticks(0.0, timeline.end_s, 10)
    ]
    label = f"Latency, stall and levers over one block of {timeline.label}"
    return svg(_WIDTH, bottom + 20, parts, label=label)


def _latency(timeline: Timeline, style: Style, x: Scale, y: Scale, slo_ms: float) -> list[str]:
    parts = []
    for value in log_ticks(y.low, y.high):
        parts.append(line(_LEFT, y(value), _WIDTH - 8, y(value), class_="grid"))
        parts.append(text(_LEFT - 6, y(value) + 4, f"{value:g}", class_="end"))
    parts.append(text(0, 14, "ms"))
    parts.append(line(_LEFT, y(slo_ms), _WIDTH - 8, y(slo_ms), class_="slo"))
    drawn = _drawn_requests(timeline.latency_ms)
    seconds, latency = timeline.request_s[drawn], timeline.latency_ms[drawn]
    parts.append(dots(x.many(seconds), y.many(latency), 1.7, stroke=style.colour, opacity=0.7))
    return parts


def _drawn_requests(latency_ms: Array) -> NDArray[np.int64]:
    """The indices of the drawn requests: all, or the slowest twentieth and every n-th other."""
    if latency_ms.size <= _MAX_DOTS:
        return np.arange(latency_ms.size)
    slow = np.flatnonzero(latency_ms >= np.quantile(latency_ms, 0.95))
    step = -(-latency_ms.size // (_MAX_DOTS - min(slow.size, _MAX_DOTS // 2)))
    return np.unique(np.concatenate([slow, np.arange(0, latency_ms.size, step)]))


def _stall(timeline: Timeline, x: Scale, base: float, height: float) -> list[str]:
    y = Scale(low=0.0, high=1.0, start=base, end=base - height)
    return [
        line(_LEFT, base, _WIDTH - 8, base, class_="axis"),
        area(x.many(timeline.psi_s), y.many(timeline.psi_share), base, class_="psi"),
        text(0, base - height / 2 + 4, "stalled"),
        text(_LEFT - 6, base - height + 9, "100 %", class_="end"),
        text(_LEFT - 6, base + 3, "0", class_="end"),
    ]


def _lane(lane: Lane, x: Scale, y: float, height: float) -> list[str]:
    parts = [
        text(_LEFT - 6, y + height - 2, lane.name, class_="end"),
        tag("rect", x=_LEFT, y=y, width=_WIDTH - 8 - _LEFT, height=height, class_="lane"),
    ]
    for mark in lane.marks:
        left, right = x(mark.start_s), x(mark.end_s)
        parts.append(
            tag(
                "rect",
                title(mark.description),
                x=left,
                y=y,
                width=max(right - left, 1.5),
                height=height,
                class_=lane.kind,
                opacity=mark.strength,
            )
        )
    return parts
