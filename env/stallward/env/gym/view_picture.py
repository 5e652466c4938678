"""A node's view as a picture, for ``render_mode="rgb_array"``. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from stallward.env.gym.node_view import SHOWN_S, GroupView, NodeView
from stallward.env.gym.view_text import mib_text, number_text

WIDTH: Final = 640
HEIGHT: Final = 400
_FINER: Final = 2
"""Pictures are drawn this many times as large and then made smaller, for smooth lines."""
_LEFT: Final = 112.0
_RIGHT: Final = 628.0
_LATENCY_TOP: Final = 52.0
_LATENCY_BOTTOM: Final = 204.0
_GROUPS_TOP: Final = 246.0
_ROW: Final = 30.0
_BAR: Final = 18.0
_LOW_RATIO: Final = 0.1
_HIGH_RATIO: Final = 32.0
"""The latencies shown, relative to the target."""
_NAME_LENGTH: Final = 14

_BACKGROUND: Final = "#ffffff"
_TEXT: Final = "#111820"
_FAINT: Final = "#66717d"
_GRID: Final = "#e3e7eb"
_MET: Final = "#1f5fbf"
_MISSED: Final = "#b3261e"
_APPLICATION: Final = ("#1f5fbf", "#a9c4ec")
_GROUP: Final = ("#c9741a", "#f1c99b")
_PAUSED: Final = ("#7d8590", "#cfd4da")
"""The colours of a group's memory and of its swap."""


def picture_of(view: NodeView) -> NDArray[np.uint8]:
    """Draw latency against the target over the last half a minute, and each group's memory.

    Returns:
        Red, green and blue of each pixel, ``(HEIGHT, WIDTH, 3)``.
    """
    canvas = _Canvas.empty()
    canvas.text(12, 10, f"{view.scene.title}, {view.elapsed_s:.1f} s", size=16)
    canvas.text(_RIGHT, 13, f"tuning {view.profile}", fill=_FAINT, anchor="ra")
    _draw_latency(canvas, view)
    memory = f"memory {mib_text(view.used_bytes)} of {mib_text(view.zone_bytes)} MiB"
    canvas.text(12, _GROUPS_TOP - 23, f"{memory} (pale: in swap, grey: paused, line: limit)")
    for row, group in enumerate((view.application, *view.slots)):
        colours = _APPLICATION if row == 0 else _PAUSED if group.paused else _GROUP
        _draw_group(canvas, group, view.zone_bytes, _GROUPS_TOP + _ROW * row, colours)
    return canvas.pixels()


@dataclass(frozen=True, slots=True)
class _Canvas:
    """A picture in units of pixels of the result."""

    image: Image.Image
    draw: ImageDraw.ImageDraw

    @classmethod
    def empty(cls) -> _Canvas:
        image = Image.new("RGB", (WIDTH * _FINER, HEIGHT * _FINER), _BACKGROUND)
        return cls(image, ImageDraw.Draw(image))

    def text(
        self, x: float, y: float, words: str, *, size: int = 13, fill: str = _TEXT,
        anchor: str = "la",
    ) -> None:  # fmt: skip
        place = (x * _FINER, y * _FINER)
        self.draw.text(place, words, fill=fill, font=_font(size), anchor=anchor)

    def line(self, points: list[tuple[float, float]], *, fill: str, width: float = 1.0) -> None:
        scaled = [(x * _FINER, y * _FINER) for x, y in points]
        self.draw.line(scaled, fill=fill, width=round(width * _FINER))

    def box(self, left: float, top: float, right: float, bottom: float, *, fill: str) -> None:
        if right > left:
            corners = [(left * _FINER, top * _FINER), (right * _FINER, bottom * _FINER)]
            self.draw.rectangle(corners, fill=fill)

    def pixels(self) -> NDArray[np.uint8]:
        return np.array(self.image.resize((WIDTH, HEIGHT), Image.Resampling.BOX))


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size * _FINER)


def _draw_latency(canvas: _Canvas, view: NodeView) -> None:
    target_ms, now_s = view.scene.target_ms, view.latencies[-1].time_s
    low, high = math.log(_LOW_RATIO), math.log(_HIGH_RATIO)

    def x(time_s: float) -> float:
        return _RIGHT - (now_s - time_s) / SHOWN_S * (_RIGHT - _LEFT)

    def y(ratio: float) -> float:
        share = (math.log(min(max(ratio, _LOW_RATIO), _HIGH_RATIO)) - low) / (high - low)
        return _LATENCY_BOTTOM - share * (_LATENCY_BOTTOM - _LATENCY_TOP)

    now_ms = view.latencies[-1].p95_ms
    missed = now_ms > target_ms
    canvas.text(
        12, 34, f"p95 {number_text(now_ms)} ms",
        fill=_MISSED if missed else _MET,
    )  # fmt: skip
    for ratio in (0.1, 0.3, 3.0, 10.0, 30.0):
        canvas.line([(_LEFT, y(ratio)), (_RIGHT, y(ratio))], fill=_GRID)
        label = f"{number_text(ratio * target_ms, 2)} ms"
        canvas.text(_LEFT - 8, y(ratio), label, fill=_FAINT, size=11, anchor="rm")
    canvas.line([(_LEFT, y(1.0)), (_RIGHT, y(1.0))], fill=_MISSED)
    label = f"target {number_text(target_ms)} ms"
    canvas.text(_LEFT - 8, y(1.0), label, fill=_MISSED, size=11, anchor="rm")
    for before, after in pairwise(view.latencies):
        if math.isnan(before.p95_ms + after.p95_ms):
            continue
        points = [(x(point.time_s), y(point.p95_ms / target_ms)) for point in (before, after)]
        canvas.line(points, fill=_MISSED if after.p95_ms > target_ms else _MET, width=2.0)
    for ago_s in (30, 20, 10, 0):
        label = f"-{ago_s} s" if ago_s else "now"
        at = x(now_s - ago_s)
        anchor = "ra" if ago_s == 0 else "ma"
        canvas.text(at, _LATENCY_BOTTOM + 4, label, fill=_FAINT, size=11, anchor=anchor)


def _draw_group(
    canvas: _Canvas, group: GroupView, zone_bytes: float, top: float, colours: tuple[str, str]
) -> None:
    bottom, scale = top + _BAR, (_RIGHT - _LEFT) / zone_bytes

    def x(value_bytes: float) -> float:
        return min(_LEFT + scale * value_bytes, _RIGHT)

    name = group.name if len(group.name) <= _NAME_LENGTH else f"{group.name[:_NAME_LENGTH]}…"
    canvas.text(_LEFT - 8, top + _BAR / 2, name, anchor="rm")
    canvas.box(_LEFT, top, _RIGHT, bottom, fill="#f4f6f8")
    memory, swap = (
        0.0 if math.isnan(value) else value for value in (group.memory_bytes, group.swap_bytes)
    )
    canvas.box(_LEFT, top, x(memory), bottom, fill=colours[0])
    canvas.box(x(memory), top, x(memory + swap), bottom, fill=colours[1])
    words = []
    if group.limited:
        at = x(group.limit_bytes)
        canvas.line([(at, top - 3), (at, bottom + 3)], fill=_TEXT, width=2.0)
        words.append(f"limit {mib_text(group.limit_bytes)} MiB")
    if group.paused:
        words.append("paused")
    canvas.text(_RIGHT - 6, top + _BAR / 2, ", ".join(words), size=12, anchor="rm")
