"""Charts of pages by Matplotlib, in the colours of the page. Pure."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from stallward.evaluation.report.page import asset
from stallward.evaluation.report.svg import linear_ticks, log_ticks
from stallward.evaluation.report.text import short_count
from stallward.evaluation.results.interval import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

_LIGHT: Final[dict[str, str]] = dict(
    re.findall(r"--(\w+): (#[0-9a-f]{6})", asset("report.css").partition("@")[0])
)
"""Name of a colour of the page -> what it is on a light page."""
RULE: Final[dict[str, Any]] = {
    "color": _LIGHT["faint"], "linewidth": 1, "linestyle": (0, (4, 4)),
}  # fmt: skip
"""How a line is drawn that is no curve."""
_TEXT: Final = 12
_POINTS: Final = 800
"""A curve of many more is drawn as two points for each pixel, its lowest and its highest."""
_TIP: Final = "tip:"
_ROOT: Final = (
    'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" role="img" '
    'stroke-linejoin="round"'
)
_TO_PAGE: Final = (
    (r"^.*?<svg .*?(viewBox=\"[^\"]*\").*?>", rf"<svg {_ROOT} \1>"),
    (r"<defs>\s*<style.*?</style>\s*</defs>", ""),  # would hold for the whole page
    (rf'<g id="{_TIP}([^"]*)">', r"<g><title>\1</title>"),
    (r'<g id="[^"]*"/>', ""),
    (r'<g id="[^"]*">', "<g>"),
    (r' transform="rotate\(-0 [^"]*"', ""),
    (r"font: [^;\"]*?([\d.]+px) [^;\"]*", r"font-size: \1"),  # of Matplotlib before 3.11
    (r"font-family: [^;\"]*;? ?", ""),
    (r"\s*\n\s*", " "),
)
"""What turns a file of Matplotlib into a picture of a page."""


def hue(colour: str) -> str:
    """A colour of the page, such as ``var(--c1)``, for Matplotlib."""
    return _LIGHT[colour.removeprefix("var(--").removesuffix(")")]


def tip(what: str) -> str:
    """The ``gid`` of what has a tooltip."""
    return _TIP + what


def figure_of(width: float, height: float) -> Figure:
    """An empty picture of a size in pixels."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - pages only

    return Figure(figsize=(width / 72, height / 72), dpi=72, facecolor="none")


def axes(
    low: tuple[float, float],
    high: tuple[float, float],
    names: tuple[str, str],
    *,
    log: tuple[bool, bool] = (False, False),
    size: tuple[float, float] = (520.0, 330.0),
    left: float = 64.0,
) -> Axes:
    """Axes from ``low`` to ``high``, each as (x, y), with ticks; ``names`` are what they show."""
    width, height = size
    below, above = 46 if names[0] else 30, 20 if names[1] else 8
    place = (left / width, below / height, 1 - (left + 14) / width, 1 - (below + above) / height)
    return axes_in(figure_of(width, height), place, low, high, names, log=log)


def axes_in(
    figure: Figure,
    place: tuple[float, float, float, float],
    low: tuple[float, float],
    high: tuple[float, float],
    names: tuple[str, str],
    *,
    log: tuple[bool, bool],
) -> Axes:
    """Such axes at a place of a figure: left, bottom, width and height, as shares."""
    drawn = figure.add_axes(place, frameon=False, axisbelow=True)
    drawn.set_xlabel(names[0], fontsize=_TEXT)
    drawn.set_title(names[1], fontsize=_TEXT, loc="left")
    drawn.tick_params(which="both", length=0, labelsize=_TEXT)
    drawn.grid(color=_LIGHT["grid"], linewidth=1)
    for axis, begin, end, logarithmic in zip("xy", low, high, log, strict=True):
        ticks = log_ticks if logarithmic else linear_ticks
        scale = "log" if logarithmic else "linear"
        drawn.set(**{f"{axis}scale": scale, f"{axis}lim": (begin, end)})
        shown = drawn.xaxis if axis == "x" else drawn.yaxis
        shown.set_ticks(ticks(begin, end))
        shown.set_major_formatter(lambda value, _: short_count(value))
    drawn.minorticks_off()
    return drawn


def row_axes(
    names: Sequence[str],
    low: float,
    high: float,
    written: str | Callable[[float, float], str],
    *,
    log: bool = False,
    width: float = 500.0,
    row: float = 34.0,
    left: float = 96.0,
) -> Axes:
    """Axes with a row for each name, the first one on top.

    Args:
        names: The names of rows 0, 1 ...
        low: The value at the left end.
        high: The value at the right end.
        written: How values are written, such as ``{x:g} s``, or a function that writes them.
        log: Whether the axis is logarithmic.
        width: The width of the picture.
        row: The height of a row.
        left: The width of the names.
    """
    last = len(names) - 0.5
    size = (width, row * len(names) + 38)
    drawn = axes((low, -0.5), (high, last), ("", ""), log=(log, False), size=size, left=left)
    drawn.invert_yaxis()
    drawn.set_yticks(
        range(len(names)), names, color=_LIGHT["ink"], fontweight="bold", parse_math=False
    )
    drawn.grid(visible=False, axis="y")
    drawn.xaxis.set_major_formatter(written)
    return drawn


def draw(drawn: Axes, x: Array, y: Array, colour: str) -> None:
    """Draw a curve."""
    if x.size > 2 * _POINTS:
        pixels = np.floor(drawn.transData.transform(np.column_stack([x, y]))[:, 0])
        starts = np.flatnonzero(np.diff(pixels, prepend=pixels[0] - 1))
        lows, highs = np.minimum.reduceat(y, starts), np.maximum.reduceat(y, starts)
        x, y = np.repeat(x[starts], 2), np.column_stack([lows, highs]).ravel()
    drawn.plot(x, y, color=hue(colour), linewidth=1.8)


def mark(drawn: Axes, at: tuple[float, float], colour: str, what: str, *, hollow: bool) -> None:
    """Draw a circle with a tooltip, at the edge if it is beyond."""
    (left, right), (bottom, top) = drawn.get_xlim(), sorted(drawn.get_ylim())
    x, y = min(max(at[0], left), right), min(max(at[1], bottom), top)
    fill, edge = (_LIGHT["card"], hue(colour)) if hollow else (hue(colour), _LIGHT["card"])
    drawn.plot(
        x, y, "o", markersize=9, markerfacecolor=fill, markeredgecolor=edge, markeredgewidth=1.8,
        gid=tip(what), clip_on=False,
    )  # fmt: skip


def whisker(
    drawn: Axes, at: float, figure: Interval, colour: str, *, across: bool = False
) -> None:
    """Draw the interval of a figure, if it has one: at an x, or across at a y."""
    if figure.low is not None and figure.high is not None:
        place, ends = (at, at), (figure.low, figure.high)
        points = (ends, place) if across else (place, ends)
        drawn.plot(*points, color=hue(colour), linewidth=1.6)


def rule(drawn: Axes, text: str = "", *, x: float | None = None, y: float | None = None) -> None:
    """Draw a dashed line at an x or a y, and say what it is."""
    if x is not None:
        drawn.axvline(x, **RULE)
        drawn.annotate(
            text, (x, 1), (-6, -12), xycoords=("data", "axes fraction"),
            textcoords="offset points", ha="right", fontsize=_TEXT,
        )  # fmt: skip
    if y is not None:
        drawn.axhline(y, **RULE)
        drawn.annotate(
            text, (1, y), (0, 4), xycoords=("axes fraction", "data"),
            textcoords="offset points", ha="right", fontsize=_TEXT,
        )  # fmt: skip


def svg_of(drawn: Axes | Figure, label: str) -> str:
    """The picture, which scales to its column; ``label`` describes it for screen readers."""
    from matplotlib import rc_context  # noqa: PLC0415 - pages only

    file, figure = io.StringIO(), drawn.get_figure(root=True)
    assert figure is not None
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "stallward"}):
        figure.savefig(file, format="svg", facecolor=figure.get_facecolor(), metadata=nothing)
    svg = file.getvalue()
    for pattern, replacement in _TO_PAGE:
        svg = re.sub(pattern, replacement, svg, flags=re.DOTALL)
    svg = re.sub(r' (?:d|x|y)="[^"]*"', _rounded, svg)
    svg = re.sub(r"<g([^>]*)> ((?:<use [^>]*> )+)</g>", _styled_once, svg)
    for name, value in reversed(_LIGHT.items()):
        svg = svg.replace(value, f"var(--{name})")
    return svg.replace(">", f"><title>{escape(label)}</title>", 1).rstrip()


def _rounded(attribute: re.Match[str]) -> str:
    return re.sub(r"(\.\d\d)\d+", r"\1", attribute[0])


def _styled_once(markers: re.Match[str]) -> str:
    """The markers of a line, which are all alike."""
    first = re.findall(r' style="[^"]*"', markers[2])[0]
    return f"<g{markers[1]}{first}> {markers[2].replace(first, '')}</g>"
