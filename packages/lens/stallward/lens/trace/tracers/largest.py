"""The largest processes, by memory or processor time, as Memball orders them."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from stallward.lens.trace.columns import Column, ColumnType, Table, Value
from stallward.lens.trace.kinds import Key
from stallward.lens.trace.process_reader import ProcessReader
from stallward.lens.trace.targets import Target
from stallward.lens.trace.tracers.process import CPU, FAULTS, IDENTITY, RESIDENT, process_row

COLUMN_OF_KEY: Final = {
    Key.RSS: "rss_bytes",
    Key.PSS: "pss_bytes",
    Key.USS: "private_bytes",
    Key.ANON: "anon_bytes",
    Key.FILE: "file_bytes",
    Key.SWAP: "swap_bytes",
    Key.VIRTUAL: "virtual_bytes",
    Key.CPU: "cpu_usage_us",
}
_IN_STAT: Final = {Key.RSS: (21,), Key.VIRTUAL: (20,), Key.CPU: (11, 12)}
"""Orders that stat alone tells: its fields from the third on."""
_MARGIN: Final = 2
"""How many times as many processes as are wanted are read whole: sizes change meanwhile."""
_IN_MAPS: Final = frozenset({Key.PSS, Key.USS})

TABLE: Final = Table(
    kind="largest",
    what="the largest processes by memory or processor time",
    key=("pid",),
    columns=(
        Column(name="rank", source="the order", meaning="1 for the largest", heading="rank"),
        Column(
            name="ordered_by",
            source="`--by`",
            meaning="what the order is",
            type=ColumnType.TEXT,
        ),
        *IDENTITY,
        Column(name="parent_pid", source="stat, field 4", meaning="its parent"),
        Column(
            name="rss_bytes", source="status, VmRSS", meaning="resident set size", heading="RSS"
        ),
        Column(
            name="pss_bytes",
            source="smaps_rollup, Pss",
            meaning="proportional set size; read where it, or the USS, is the order",
            heading="PSS",
        ),
        Column(
            name="private_bytes",
            source="smaps_rollup, Private_*",
            meaning="what no other process maps (USS); read as the PSS is",
            heading="USS",
        ),
        *RESIDENT,
        Column(name="swap_bytes", source="status, VmSwap", meaning="in swap", heading="swap"),
        Column(
            name="virtual_bytes",
            source="stat, field 23",
            meaning="address space",
            heading="virtual",
        ),
        CPU,
        *FAULTS,
    ),
)
_COPIED: Final = frozenset(column.name for column in TABLE.columns) - {
    "rank",
    "ordered_by",
    "parent_pid",
}


class LargestTracer:
    """Traces the largest processes.

    Args:
        proc: The /proc directory.
        target: Which processes are looked at.
        key: What they are ordered by.
        count: How many are kept; all if 0.
    """

    table = TABLE

    def __init__(self, proc: Path, target: Target, *, key: Key, count: int) -> None:
        self._reader = ProcessReader(proc)
        self._target = target
        self._key = key
        self._count = count

    @property
    def missing(self) -> tuple[str, ...]:
        """What could not be read so far, and why."""
        return tuple(self._reader.missing.values())

    def read(self) -> list[dict[str, Value]]:
        """Read all processes; returns rows of the largest, the largest first."""
        by = COLUMN_OF_KEY[self._key]
        rows = []
        for pid in self._candidates():
            reading = self._reader.read(pid, maps=self._key in _IN_MAPS, use=False)
            if reading is None:
                continue
            row = process_row(reading)
            if isinstance(row[by], int):
                kept = {name: row[name] for name in _COPIED}
                rows.append(kept | {"parent_pid": reading.seen.parent})
        rows.sort(key=lambda row: (-int(row[by] or 0), int(row["pid"] or 0)))
        largest = rows[: self._count or None]
        for rank, row in enumerate(largest, start=1):
            row |= {"rank": rank, "ordered_by": str(self._key)}
        return largest

    def _candidates(self) -> Iterable[int]:
        """The processes that may be among the largest: reading all of all would take long."""
        pids = list(self._target.pids())
        places, most = _IN_STAT.get(self._key), _MARGIN * self._count
        if places is None or not 0 < most < len(pids):
            return pids
        return heapq.nlargest(most, pids, key=lambda pid: self._reader.sum_of_stat(pid, places))

    def close(self) -> None:
        """Do nothing: no file is kept open."""
