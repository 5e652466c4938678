"""Operations on one of the nodes that compiled code computes together.

They are for steps that cannot be vector operations, such as a table look-up by a number of the
node. Done for all eight nodes of a vector, they take about eight times as long. Where each node is
computed by itself, the lane is always 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stallward.env.twin.simd.jit import operation
from stallward.env.twin.simd.layout import Rows


@operation
def value_of_lane(number: float, lane: int) -> float:
    """Return the number of one of the nodes."""
    return number


@operation
def set_lane(rows: Rows, index: int, lane: int, value: float) -> None:
    """Set a row of one of the nodes."""
    rows[index] = value


@operation
def add_to_lane(rows: Rows, index: int, lane: int, value: float) -> None:
    """Add to a row of one of the nodes."""
    rows[index] += value


@operation
def raise_lane(rows: Rows, index: int, lane: int, value: float) -> None:
    """Raise a row of one of the nodes to a larger value."""
    rows[index] = max(rows[index], value)


@operation
def exchange(row: NDArray[np.uint8], node: int, value: float) -> float:
    """Set the small whole numbers of the nodes from ``node`` on; return the old ones."""
    before = float(row[node])
    row[node] = int(value)
    return before
