"""The reference page of the columns of traces, generated from the tables."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from stallward.actuator.sensors.signal_table import GROUP_SIGNALS, NODE_SIGNALS
from stallward.lens.trace.columns import TICK_COLUMNS, Column, Table
from stallward.lens.trace.tables import TABLES

_INTRO: Final = """# The columns of `stallward trace`

Generated from the tables of the tracers by `stallward describe trace`. [Trace what
memory does](../how-to/trace-memory.md) shows the command.

A file of a trace has a row for each tick, or for each process at each tick. What could not be
read is empty in CSV and null in Parquet, never zero. A **counter** is in the file as it was read; the
table on the terminal and the pictures have its growth in a second. Signals are counters if their
names do not end in `_bytes`. The names are those of a [recording](recordings.md), where `group_` is
`zone_`, and end in their unit: `_ratio` is 0 to 1, and `_ticks` are 1/100 s.

Sources are below `/proc`: of a process below `/proc/PID`, and of a group in its cgroup directory
(named as in v2). `pressure/cpu` has no `full` for the whole machine. The kernel updates the averages
every 2 s. RESOURCE stands for `memory`, `cpu` and `io`, KIND for `some` (at least one task waited)
and `full` (all tasks that could have run did), and SECONDS for 10, 60 and 300.

`--columns thesis` writes the columns of the script in the appendix of the latd thesis instead, in
its order and its units, after the count `x` and the local time `time1`.

Every trace begins with:

"""

_ALIKE: Final = (
    (r"psi_(?:memory|cpu|io)_(?:some|full)", "psi_RESOURCE_KIND"),
    (r"avg\d+", "avgSECONDS"),
    (r"last \d+ s", "last SECONDS s"),
    (r"at least one task|all tasks that could have run", "tasks"),
    (r"waited for (?:memory|a processor|a disk)", "waited for RESOURCE"),
    (r"stalled on (?:memory|cpu|io)", "stalled on RESOURCE"),
    (r"pressure/(?:memory|cpu|io), (?:some|full)", "pressure/RESOURCE, KIND"),
    (r"(?:memory|cpu|io)\.pressure, (?:some|full)", "RESOURCE.pressure, KIND"),
)
"""What the columns of pressure differ in, and the words that stand for it."""
_SIGNALS: Final = {
    f"{place}_{signal.name}": f"[the signals of {what}](signals.md#{anchor})"
    for place, what, anchor, signals in (
        ("node", "the machine", "the-machine", NODE_SIGNALS),
        ("group", "a group", "groups", GROUP_SIGNALS),
    )
    for signal in signals
}
"""By the name of a column, where the signal is described that it has."""


def trace_page() -> str:
    """The page as Markdown."""
    parts = [_INTRO, *_columns(map(_row, TICK_COLUMNS))]
    said: dict[str, tuple[str, str]] = {}
    for table in TABLES:
        parts += ["\n", *_section(table, said)]
        for column in table.columns:
            said.setdefault(_row(column, of_any_smaps=True), (table.kind, column.source))
    return "".join(parts)


def _section(table: Table, said: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    """The section of a trace, whose table has the rows that no earlier one has.

    Args:
        table: The trace.
        said: The rows of the earlier ones, each with the trace that has it first and its source.
    """
    yield f"## `trace {table.kind}`\n\n"
    yield f"{table.what[0].upper()}{table.what[1:]}. {_rows(table)}.\n\n"
    elsewhere: dict[str, list[str]] = {}
    rows = []
    for column in table.columns:
        kind, source = said.get(_row(column, of_any_smaps=True), ("", ""))
        other = "" if column.source == source else f", read from {column.source.split(',')[0]}"
        if place := f"`trace {kind}`{other}" if kind else _SIGNALS.get(column.name):
            elsewhere.setdefault(place, []).append(f"`{column.name}`")
        else:
            rows.append(_row(column))
    for place, names in elsewhere.items():
        yield textwrap.fill(f"As in {place}: {', '.join(names)}.", 100) + "\n\n"
    yield from _columns(rows)
    if table.thesis:
        yield f"\nWith `--columns thesis` it has those of appendix {table.appendix}.\n"


def _rows(table: Table) -> str:
    if not table.key:
        return "A tick has one row"
    whose = "process" if table.key == ("pid",) else "process or disk, and direction"
    rows = f"A tick has a row for each {whose}"
    return f"{rows};\nof processes, for those that have done something" if table.sparse else rows


def _columns(rows: Iterable[str]) -> Iterator[str]:
    yield "| column | what it is | source |\n| --- | --- | --- |\n"
    yield from dict.fromkeys(rows)


def _row(column: Column, *, of_any_smaps: bool = False) -> str:
    """The row of a column; those of pressure that differ in name alone have the same one.

    Args:
        column: The column.
        of_any_smaps: Whether smaps and its sum, smaps_rollup, are one source.
    """
    kind = " (counter)" if column.counter else ""
    source = column.source.replace("smaps_rollup", "smaps") if of_any_smaps else column.source
    row = f"| `{column.name}` | {column.meaning}{kind} | {source} |\n"
    if "_psi_" in column.name:
        for differs, stands_for_it in _ALIKE:
            row = re.sub(differs, stands_for_it, row)
    return row
