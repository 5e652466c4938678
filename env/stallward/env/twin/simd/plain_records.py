"""A node's state by name where each node is computed by itself: records of numpy.

The functions are those of :mod:`stallward.env.twin.simd.vector_records`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, TypeVar

import numpy as np
from numba import from_dtype
from numba.extending import intrinsic
from numpy.typing import NDArray

from stallward.env.twin.simd.jit import operation
from stallward.env.twin.simd.layout import Layout, Rows

Array = NDArray[np.float64]
Record = TypeVar("Record")
_BYTES: Final = 8


def _dtype(layout: Layout) -> np.dtype[np.void]:
    """Return the type of a node's rows, of which groups of fields are parts as well."""
    fields = {**layout.fields, "all_rows": (0, (layout.rows,))}
    shapes = [(math.prod(shape),) if shape else () for _, shape in fields.values()]
    return np.dtype(
        {
            "names": list(fields),
            "formats": [(np.float64, shape) for shape in shapes],
            "offsets": [_BYTES * first for first, _ in fields.values()],
            "itemsize": _BYTES * layout.rows,
        }
    )


def reader(record: type[Record], layout: Layout) -> Callable[[Array, int], Record]:
    """Make a function for compiled code that reads records from an array of rows.

    It takes the array and a node, and returns the record of that node.
    """
    dtype = _dtype(layout)

    @operation
    def read(state: Any, node: int) -> Any:
        return state.reshape(-1).view(dtype)[node]

    typed_read: Callable[[Array, int], Record] = read
    return typed_read


def local_reader(record: type[Record], layout: Layout) -> Callable[[], Record]:
    """Make a function for compiled code that returns a temporary record, not yet set."""
    kind = from_dtype(_dtype(layout))

    @intrinsic  # type: ignore[untyped-decorator]
    def make(_context: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, _values: Any) -> Any:
            with builder.goto_entry_block():
                return builder.alloca(context.get_data_type(kind))

        return kind(), generate

    typed_make: Callable[[], Record] = make
    return typed_make


@operation
def rows_of(record: Any) -> Rows:
    """Return all rows of a record."""
    return record.all_rows  # type: ignore[no-any-return]


@operation
def from_row(rows: Any, first: int) -> Rows:
    """Return the rows that begin at ``first``."""
    return rows[first:]  # type: ignore[no-any-return]


@operation
def local_rows(count: int) -> Rows:
    """Make temporary rows."""
    return np.zeros(count)
