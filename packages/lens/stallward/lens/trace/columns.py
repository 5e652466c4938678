"""The columns of a trace: names with units, where each comes from, and what it means."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

Value = int | float | str | None
Row = Mapping[str, Value]
"""One row of a trace: the value of each column; ``None`` for what could not be read."""


class ColumnType(StrEnum):
    """What the values of a column are."""

    COUNT = "count"
    """A whole number: bytes, pages, microseconds, events."""
    NUMBER = "number"
    TEXT = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column."""

    name: str
    """Ends in the unit; a plain noun is a number of those things."""
    source: str
    """The file, and the key in it, that the value comes from."""
    meaning: str
    type: ColumnType = ColumnType.COUNT
    counter: bool = False
    """Whether it only grows, so that its growth is what is looked at."""
    per: str = ""
    """The column by whose growth its growth is divided where it is shown; time if empty."""
    heading: str = ""
    """How the table on a terminal calls it; empty if it is not shown there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThesisColumn:
    """A column as the scripts of the latd thesis print it."""

    name: str
    """The script's name for it."""
    of: str
    """The columns that it is made of."""
    unit: str = ""
    value: Callable[[Row], Value]
    """Makes it of a row, in the script's unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The table of one kind of trace."""

    kind: str
    what: str
    """What it shows, as a phrase."""
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    """The columns that tell the rows of a tick apart; empty if a tick has one row."""
    sparse: bool = False
    """Whether a process has a row only at ticks at which it has done something."""
    thesis: tuple[ThesisColumn, ...] = ()
    """The columns of the thesis's script in its order, after the count and the time."""
    appendix: str = ""
    """Where the thesis has that script."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns, those of the tick first."""
        return tuple(column.name for column in (*TICK_COLUMNS, *self.columns))


TICK_COLUMNS: Final = (
    Column(
        name="tick",
        source="the schedule",
        meaning="number of the tick, from 1; a gap is a tick that was lost",
    ),
    Column(
        name="time_us",
        source="CLOCK_MONOTONIC",
        meaning="when the tick was read, as in recordings",
    ),
    Column(
        name="wall_time",
        source="CLOCK_REALTIME",
        meaning="the same as date and time, UTC",
        type=ColumnType.TEXT,
    ),
)
"""The first columns of every trace."""


def kib(name: str, column: str) -> ThesisColumn:
    """Make a thesis column of a size: in kB, which are 1024 bytes there as in /proc."""

    def value(row: Row) -> Value:
        size = row[column]
        return size // 1024 if isinstance(size, int) else None

    return ThesisColumn(name=name, of=f"`{column}`", unit="kB", value=value)


def percent(name: str, column: str, total: str) -> ThesisColumn:
    """Make a thesis column of one size's share in another: in percent, to two decimals."""

    def value(row: Row) -> Value:
        part, whole = row[column], row[total]
        if not isinstance(part, int) or not isinstance(whole, int) or whole == 0:
            return None
        return f"{100.0 * part / whole:.2f}"

    return ThesisColumn(name=name, of=f"`{column}` by `{total}`", unit="%", value=value)
