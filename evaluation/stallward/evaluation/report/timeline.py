"""The timeline of one block: its requests, the stall of the protected group, and all levers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from stallward.evaluation.measures.block_measures import paused_share
from stallward.evaluation.report.charts import Style
from stallward.evaluation.report.svg import (
    Scale,
    area,
    dots,
    line,
    linear_ticks,
    log10,
    log_ticks,
    svg,
    tag,
    text,
    title,
)
from stallward.evaluation.report.text import number

if TYPE_CHECKING:
    from stallward.env.recording.recording import Recording

Array = NDArray[np.float64]
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
