"""The rows of a trace as series: one for the node, or one for each process. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.lens.plot.file import TraceFile
from stallward.lens.trace.columns import ColumnType

Array = NDArray[np.float64]

_WINDOW_S: Final = 0.5
"""Over how long growth is measured: counters grow in steps, and single ticks would be noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The values of one process, disk or node over time; NaN where nothing is known."""

    label: str
    seconds: Array
    """Since the begin of the trace."""
    columns: Mapping[str, Array] = field(repr=False)

    def rate(self, name: str) -> Array:
        """What a counter grew by in a second, over a window that ends at each tick.

        Where it fell, it began anew, and nothing is known.
        """
        values = self.columns[name]
        before = np.searchsorted(self.seconds, self.seconds - _WINDOW_S)
        before = np.minimum(before, np.maximum(np.arange(values.size) - 1, 0))
        passed = self.seconds - self.seconds[before]
        growth = values - values[before]
        out = np.full(values.size, np.nan)
        return np.asarray(
            np.divide(growth, passed, out=out, where=(passed > 0.0) & ~(growth < 0.0))
        )

    def known(self, name: str) -> bool:
        """Whether a column has any value."""
        return name in self.columns and bool(np.isfinite(self.columns[name]).any())


def ticks_of(trace: TraceFile) -> Array:
    """The times of the ticks in seconds since the first."""
    times = np.unique(trace.numbers("time_us"))
    return np.asarray((times - times[:1]) / 1e6)


def series_of(trace: TraceFile) -> tuple[Series, ...]:
    """Take a trace apart by its key: one series for each process, or for disk and direction.

    Where a process has a row only when a counter has grown, the counter is filled in between.
    """
    times = trace.numbers("time_us")
    seconds = (times - times[:1]) / 1e6
    columns = {
        column.name: trace.numbers(column.name)
        for column in trace.table.columns
        if column.type is not ColumnType.TEXT
    }
    key = trace.table.key
    if not key:
        return (Series(label="", seconds=seconds, columns=columns),)
    texts = {name: trace.texts(name) for name in ("name", *key) if name not in columns}
    pids = trace.numbers("pid")
    rows_of: dict[tuple[str, ...], list[int]] = {}
    for index, pid in enumerate(pids):
        own = "" if np.isnan(pid) else f"{pid:.0f}"
        rows_of.setdefault((own, *(texts[name][index] for name in texts)), []).append(index)
    ticks = ticks_of(trace)
    found = []
    for (own, *parts), rows in rows_of.items():
        one = Series(
            label=" ".join(part for part in (parts[0], own, *parts[1:]) if part),
            seconds=seconds[rows],
            columns={name: values[rows] for name, values in columns.items()},
        )
        found.append(
            _filled(one, ticks, since_begin=_IO not in parts) if trace.table.sparse else one
        )
    return tuple(found)


_IO: Final = "io"
"""The source whose counters began with the process, not with the trace."""


def _filled(series: Series, ticks: Array, *, since_begin: bool) -> Series:
    """Hold each value until the next.

    Args:
        series: The values at some of the ticks.
        ticks: All ticks.
        since_begin: Whether the counters were zero when the trace began; else nothing is known
            before the first value.
    """
    last = np.searchsorted(series.seconds, ticks, side="right") - 1
    before = 0.0 if since_begin else np.nan
    columns = {
        name: np.where(last >= 0, values[np.maximum(last, 0)], before)
        for name, values in series.columns.items()
    }
    return Series(label=series.label, seconds=ticks, columns=columns)
