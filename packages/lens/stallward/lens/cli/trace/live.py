"""The table of a running trace on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table as RichTable
from rich.text import Text

from stallward.agent.printable import printable
from stallward.lens.trace.columns import Column, ColumnType, Row, Table, Value

if TYPE_CHECKING:
    from stallward.lens.trace.tick import Tick

_PER_S: Final = 4
"""How often the table is drawn at most."""
_MIN_S: Final = 0.5
"""How long rates are measured at least: a counter of the kernel grows in steps."""

Rows = Mapping[tuple[Value, ...], Row]
"""Rows by what tells them apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What is known at one tick: of a sparse table, the latest row of each process."""

    number: int
    time_us: int
    rows: Rows


class LiveTable:
    """Shows the latest tick; counters as what they grew by in a second.

    Args:
        table: The columns.
        title: What is traced.
        console: Where it is shown; the terminal of stdout if not given.
    """

    def __init__(self, table: Table, title: str, console: Console | None = None) -> None:
        self._table = table
        self._title = title
        self._live = Live(console=console or Console(), refresh_per_second=_PER_S)
        self._rows: dict[tuple[Value, ...], Row] = {}
        self._before: Shown | None = None
        self._shown: Shown | None = None

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def take(self, tick: Tick) -> None:
        """Show a tick, unless one has been shown just now."""
        rows = {_key(self._table, row): row for row in tick.rows}
        if self._table.sparse:
            self._rows |= rows
        else:  # what is not read at every tick stays as it was
            self._rows = {key: _filled(row, self._rows.get(key)) for key, row in rows.items()}
        shown = self._shown
        if shown is not None and tick.time_us - shown.time_us < 1_000_000 // _PER_S:
            return
        if self._before is None or tick.time_us - self._before.time_us >= 2 * _MIN_S * 1e6:
            self._before = shown
        self._shown = Shown(number=tick.number, time_us=tick.time_us, rows=dict(self._rows))
        self._live.update(shown_table(self._table, self._shown, self._before, self._title))


def shown_table(table: Table, shown: Shown, before: Shown | None, title: str) -> RichTable:
    """The table of one tick.

    Args:
        table: The columns.
        shown: What is shown; of a sparse table, only what has changed.
        before: The tick from which counters are looked at; ``None`` if there is none.
        title: What is traced.
    """
    seconds = 0.0 if before is None else (shown.time_us - before.time_us) / 1e6
    columns = [column for column in table.columns if column.heading]
    title = f"{table.kind}: {title}, tick {shown.number:,}"
    past: Rows = {} if before is None else before.rows
    if not table.key:
        return _upright(columns, shown.rows[()], past.get(()), seconds, title)
    drawn = RichTable(title=title, title_justify="left")
    for column in columns:
        drawn.add_column(
            column.heading, justify="left" if column.type is ColumnType.TEXT else "right"
        )
    for key, row in shown.rows.items():
        earlier = past.get(key)
        if table.sparse and before is not None:
            if row is earlier:
                continue
            earlier = earlier or dict.fromkeys(table.names, 0)  # it had done nothing
        drawn.add_row(*(Text(_cell(column, row, earlier, seconds)) for column in columns))
    return drawn


def _upright(
    columns: list[Column], row: Row, earlier: Row | None, seconds: float, title: str
) -> RichTable:
    """A line for each column, where a tick has one row."""
    drawn = RichTable(title=title, title_justify="left", show_header=False)
    drawn.add_column()
    drawn.add_column(justify="right")
    for column in columns:
        if row.get(column.name) is not None:
            drawn.add_row(column.heading, Text(_cell(column, row, earlier, seconds)))
    return drawn


def _filled(row: Row, earlier: Row | None) -> Row:
    known = {name: value for name, value in row.items() if value is not None}
    return known if earlier is None else {**earlier, **known}


def _key(table: Table, row: Row) -> tuple[Value, ...]:
    return tuple(row.get(name) for name in table.key)


def _cell(column: Column, row: Row, earlier: Row | None, seconds: float) -> str:
    value = row.get(column.name)
    if value is None:
        return ""
    if column.type is ColumnType.TEXT or isinstance(value, str):
        return printable(str(value))  # a process calls itself what it likes
    if column.counter:
        return _rate(column, row, earlier, seconds)
    return _level(column, value)


def _rate(column: Column, row: Row, earlier: Row | None, seconds: float) -> str:
    growth = _growth(column.name, row, earlier)
    if growth is None or seconds <= 0.0:
        return ""
    if column.per:
        number = _growth(column.per, row, earlier)
        return f"{growth / number / 1000.0:.2f} ms" if number else ""
    if column.name.endswith("_us"):
        return f"{growth / seconds / 1e4:.1f} %"
    if column.name.endswith("_bytes"):
        return f"{mib(growth / seconds)}/s"
    return f"{growth / seconds:,.0f}"


def _growth(name: str, row: Row, earlier: Row | None) -> float | None:
    now, then = row.get(name), None if earlier is None else earlier.get(name)
    if isinstance(now, str) or isinstance(then, str) or now is None or then is None:
        return None
    return now - then if now >= then else None  # the pid is that of another process now


def _level(column: Column, value: float) -> str:
    if column.name.endswith("_bytes"):
        return mib(value)
    if column.name.endswith("_percent"):
        return f"{value:.2f} %"
    if column.name.endswith("_ratio"):
        return f"{100.0 * value:.1f} %"
    return f"{value:.0f}"


def mib(size: float) -> str:
    """A size for people: in MiB, or in GiB where it is large."""
    size /= 1 << 20
    return f"{size:,.1f} MiB" if size < 10_000.0 else f"{size / 1024.0:,.1f} GiB"
