"""The tables of all kinds of traces."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from stallward.lens.trace.columns import Table
from stallward.lens.trace.tracers import (
    blockio,
    largest,
    node,
    pagecache,
    pagetype,
    process,
    psi,
)

TABLES: Final = (
    node.TABLE,
    psi.TABLE,
    process.TABLE,
    pagetype.TABLE,
    pagecache.TABLE,
    blockio.TABLE,
    largest.TABLE,
)


def table_of(names: Iterable[str]) -> Table | None:
    """The table that has exactly these columns; ``None`` if there is none."""
    wanted = tuple(names)
    return next((table for table in TABLES if table.names == wanted), None)
