"""A node's state by name.

A record class lists the fields of a node. A :class:`~stallward.env.twin.simd.layout.Layout` gives
each field one or more rows of a float64 array. Python reads and sets a field of all nodes with
:class:`~stallward.env.twin.simd.layout.Arrays`. Compiled code gets a record from :func:`reader`,
whose attributes are numbers, or rows of numbers, that can be read and set.
"""

from __future__ import annotations

from stallward.env.twin.simd.backend import VECTORS

if VECTORS:
    from stallward.env.twin.simd.vector_records import (
        from_row,
        local_reader,
        local_rows,
        reader,
        rows_of,
    )
else:
    from stallward.env.twin.simd.plain_records import (
        from_row,
        local_reader,
        local_rows,
        reader,
        rows_of,
    )

__all__ = ["from_row", "local_reader", "local_rows", "reader", "rows_of"]
