"""The reference page of traces has each column, those of pressure under words that stand for them.

A column that several traces have in the same way has its row once.
"""

from __future__ import annotations

import re

import pytest

from stallward.lens.trace.columns import Table
from stallward.lens.trace.reference_page import trace_page
from stallward.lens.trace.tables import TABLES

STANDS_FOR = {
    "RESOURCE": "(?:memory|cpu|io)",
    "KIND": "(?:some|full)",
    "SECONDS": "(?:10|60|300)",
}


def rows(table: Table) -> list[str]:
    """The names in the section of a table, as patterns: of its rows, and of those elsewhere."""
    section = trace_page().partition(f"\n## `trace {table.kind}`\n")[2].partition("\n## ")[0]
    names = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    for elsewhere in re.findall(r"^As in [^:]+: ([^.]+)\.", section, re.MULTILINE):
        names += re.findall(r"`(\w+)`", elsewhere)
    return [
        re.sub("|".join(STANDS_FOR), lambda found: STANDS_FOR[found.group()], name)
        for name in names
    ]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: str(table.kind))
def test_each_column_has_one_row_and_each_row_a_column(table: Table) -> None:
    names = [column.name for column in table.columns]
    found = {name: [row for row in rows(table) if re.fullmatch(row, name)] for name in names}
    assert {name for name, ones in found.items() if len(ones) != 1} == set()
    assert {row for ones in found.values() for row in ones} == set(rows(table))
    assert len(rows(table)) == len(set(rows(table)))


def test_no_row_stands_twice() -> None:
    rows_of_page = [line for line in trace_page().splitlines() if line.startswith("| `")]
    assert len(rows_of_page) == len(set(rows_of_page))
