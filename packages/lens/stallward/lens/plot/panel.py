"""One panel of a picture: which columns it shows, and how. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from stallward.lens.plot.series import Array, Series

_MIB: Final = float(1 << 20)

Values = Callable[[Series, str], Array]


def size_mib(series: Series, name: str) -> Array:
    """A size in MiB."""
    return series.columns[name] / _MIB


def growth(series: Series, name: str) -> Array:
    """Events a second."""
    return series.rate(name)


def growth_mib(series: Series, name: str) -> Array:
    """MiB a second."""
    return series.rate(name) / _MIB


def busy_percent(series: Series, name: str) -> Array:
    """The share of the time, of a counter in microseconds."""
    return series.rate(name) / 1e4


def as_is(series: Series, name: str) -> Array:
    """The values as they were read."""
    return series.columns[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line, with NaN where nothing is known."""

    label: str
    seconds: Array
    values: Array
    faint: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One set of axes."""

    title: str
    unit: str
    lines: tuple[Line, ...]
    stacked: bool = False
    """Whether the lines are parts of a whole, drawn one on the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelSpec:
    """A panel of some columns of one series."""

    title: str
    unit: str
    values: Values
    columns: Mapping[str, str]
    """Column -> label."""
    stacked: bool = False
    faint: Mapping[str, str] | None = None
    """Columns that are drawn as they are, faintly."""
