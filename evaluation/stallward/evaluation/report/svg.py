"""Scales, ticks and elements of SVG, for small charts that need no network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

STYLE: Final = """
text{font:13px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:#37414d}
.h{font-size:15px;font-weight:600;fill:#111820}.s{font-size:12px;fill:#66717d}
.e{text-anchor:end}.m{text-anchor:middle}
"""
"""The style of a picture that stands alone: headings, small text, and where text ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Maps values to pixels."""

    low: float
    """The value at ``start``."""
    high: float
    """The value at ``end``."""
    start: float
    """The pixel of ``low``."""
    end: float
    """The pixel of ``high``."""
    warp: Callable[[Array], Array] = np.asarray
    """A function that is applied to values first, such as ``np.log10``."""

    def __call__(self, value: float) -> float:
        """The pixel of one value."""
        return float(self.many(np.array([value]))[0])

    def many(self, values: Array) -> Array:
        """The pixels of many values; values out of range are clipped."""
        low, high = self.warp(np.array([self.low, self.high], dtype=np.float64))
        clipped = np.clip(values, min(self.low, self.high), max(self.low, self.high))
        share = (self.warp(clipped) - low) / (high - low)
        return np.asarray(self.start + share * (self.end - self.start))


def log10(values: Array) -> Array:
    """The logarithm of positive values."""
    return np.asarray(np.log10(np.maximum(values, 1e-9)))


def nines(values: Array) -> Array:
    """Stretch the tail of a distribution, so that 0.9, 0.99 and 0.999 are equally far apart."""
    return np.asarray(-np.log10(np.maximum(1.0 - values, 1e-6)))


def log_ticks(low: float, high: float) -> list[float]:
    """The ticks 1, 2, 5, 10 ... within ``low..high``; only powers of ten over many decades."""
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    steps = (1.0,) if len(decades) > 4 else (1.0, 2.0, 5.0)
    return [s * 10.0**d for d in decades for s in steps if low <= s * 10.0**d <= high * 1.0001]


def linear_ticks(low: float, high: float, count: int = 6) -> list[float]:
    """Round values within ``low..high``, about ``count`` of them."""
    raw = (high - low) / max(count, 1)
    power = 10.0 ** np.floor(np.log10(raw))
    step = next(s * power for s in (1.0, 2.0, 5.0, 10.0) if s * power >= raw)
    first = np.ceil(low / step) * step
    return [float(v) + 0.0 for v in np.arange(first, high + step * 1e-6, step)]  # -0 becomes 0


def tag(name: str, *children: str, **attributes: object) -> str:
    """An element with attributes.

    In names of attributes ``_`` stands for ``-``, and ``class_`` for ``class``. An attribute that
    is ``None`` is left out.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_value(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if not children:
        return f"<{name}{written}/>"
    return f"<{name}{written}>{''.join(children)}</{name}>"


def _value(value: object) -> str:
    return pixels(value) if isinstance(value, float) else str(value)


def pixels(value: float) -> str:
    """A length or position in a picture as text, to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")


def text(x: float, y: float, content: str, **attributes: object) -> str:
    """A label."""
    return tag("text", escape(content), x=x, y=y, **attributes)


def title(content: str) -> str:
    """The tooltip of an element."""
    return tag("title", escape(content))


def line(x1: float, y1: float, x2: float, y2: float, **attributes: object) -> str:
    """A straight line."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, **attributes)


def polyline(x: Array, y: Array, **attributes: object) -> str:
    """A path through points in pixels."""
    return tag("path", d="M" + "L".join(_pairs(x, y)), fill="none", **attributes)


def area(x: Array, y: Array, base: float, **attributes: object) -> str:
    """The area between points and a base line."""
    if x.size == 0:
        return ""
    points = [f"{x[0]:.1f},{base:.1f}", *_pairs(x, y), f"{x[-1]:.1f},{base:.1f}"]
    return tag("path", d="M" + "L".join(points) + "Z", **attributes)


def dots(x: Array, y: Array, radius: float, **attributes: object) -> str:
    """Many small dots as one path: zero-length strokes with round caps."""
    path = "".join(f"M{pair}h0" for pair in _pairs(x, y))
    return tag(
        "path", d=path, stroke_width=2 * radius, stroke_linecap="round", fill="none", **attributes
    )


def _pairs(x: Array, y: Array) -> Iterable[str]:
    return (f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))


def svg(width: float, height: float, parts: Sequence[str], *, label: str) -> str:
    """A picture that scales to its column; ``label`` describes it for screen readers."""
    return tag(
        "svg",
        tag("title", escape(label)),
        *parts,
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        xmlns="http://www.w3.org/2000/svg",
    )
