"""One tick of a trace, and its rows as they are written."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from stallward.lens.trace.columns import Table, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """What was read at one tick."""

    number: int
    time_us: int
    """CLOCK_MONOTONIC."""
    wall_us: int
    """CLOCK_REALTIME."""
    rows: Sequence[Mapping[str, Value]]
    """Without the columns of the tick; a column that is not there is empty."""

    @property
    def wall_time(self) -> str:
        """Date and time, UTC, to the microsecond."""
        when = datetime.fromtimestamp(self.wall_us // 1_000_000, UTC)
        return f"{when:%Y-%m-%dT%H:%M:%S}.{self.wall_us % 1_000_000:06d}Z"

    @property
    def clock(self) -> str:
        """The local time of day to the microsecond, as ``date +%T.%6N`` prints it."""
        seconds, rest = divmod(self.wall_us, 1_000_000)
        return f"{time.strftime('%H:%M:%S', time.localtime(seconds))}.{rest:06d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Which columns are written, and how they are called."""

    table: Table
    thesis: bool = False
    """Whether these are the columns of the thesis's script, in its units."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        if self.thesis:
            return ("x", "time1", *(column.name for column in self.table.thesis))
        return self.table.names

    def lines(self, tick: Tick) -> Iterator[list[Value]]:
        """The values of each row of a tick, in the order of the columns."""
        if self.thesis:
            names = [column.name for column in self.table.columns]
            for row in tick.rows:
                whole = {name: row.get(name) for name in names}
                values = (column.value(whole) for column in self.table.thesis)
                yield [tick.number, tick.clock, *values]
            return
        names = list(self.table.names[3:])
        for row in tick.rows:
            yield [tick.number, tick.time_us, tick.wall_time, *map(row.get, names)]
