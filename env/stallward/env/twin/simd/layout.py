"""The layout of node numbers in numpy arrays, for :mod:`stallward.env.twin.simd.records`."""

from __future__ import annotations

import math
from typing import Annotated, Protocol, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from stallward.env.twin.simd.backend import WIDTH

Array = NDArray[np.float64]


class Rows(Protocol):
    """Several numbers of a node."""

    def __getitem__(self, index: int, /) -> float: ...

    def __setitem__(self, index: int, value: float, /) -> None: ...


class Layout:
    """The rows of the fields of a record.

    Args:
        record: A class with annotations: ``float`` for one row, ``Annotated[Rows, n]`` or
            ``Annotated[Rows, n, m]`` for ``n`` or ``n * m`` rows.

    Attributes:
        fields: The first row and the shape of each field by its name; the shape of one number is
            empty.
        rows: How many rows all fields have.
    """

    def __init__(self, record: type) -> None:
        self.fields: dict[str, tuple[int, tuple[int, ...]]] = {}
        self.rows = 0
        for name, hint in get_type_hints(record, include_extras=True).items():
            shape = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
            self.fields[name] = (self.rows, shape)
            self.rows += math.prod(shape)

    def add_group(self, name: str, first: str, shape: tuple[int, ...]) -> None:
        """Give consecutive fields, from ``first`` on, a common name in addition to their own."""
        self.fields[name] = (self.fields[first][0], shape)

    def empty(self, nodes: int) -> Array:
        """Return zeroed rows of ``nodes`` nodes, ``(tiles, rows, WIDTH)``.

        The numbers that compiled code uses together are next to each other in memory.
        """
        return np.zeros((tiles(nodes), self.rows, WIDTH))


def tiles(nodes: int) -> int:
    """Return how many tiles of eight nodes hold ``nodes`` nodes."""
    return -(-nodes // WIDTH)


def copy_tiles(into: Array, source: Array, rows: NDArray[np.int64]) -> None:
    """Copy the nodes ``rows`` of ``source`` to the first nodes of ``into``, of the same layout."""
    here = np.arange(len(rows))
    into[here // WIDTH, :, here % WIDTH] = source[rows // WIDTH, :, rows % WIDTH]


class Arrays:
    """The fields of a layout as arrays over the nodes.

    Reading an attribute returns a read-only copy: the field's shape, then the nodes. Setting an
    attribute changes the state.

    Args:
        layout: The layout of the state.
        state: Rows like those from :meth:`Layout.empty`.
        index: The nodes, ``(n,)``.
    """

    __slots__ = ("_index", "_layout", "_state")
    _index: NDArray[np.int64]
    _layout: Layout
    _state: Array

    def __init__(self, layout: Layout, state: Array, index: NDArray[np.int64]) -> None:
        object.__setattr__(self, "_layout", layout)
        object.__setattr__(self, "_state", state)
        object.__setattr__(self, "_index", index)

    def at(self, index: NDArray[np.int64]) -> Arrays:
        """Return the arrays of some of the nodes."""
        return Arrays(self._layout, self._state, self._index[index])

    def __getattr__(self, name: str) -> Array:
        rows, shape = self._rows_of(name)
        index = self._index
        # It is faster to take whole tiles and then some of their nodes than to take each node.
        low, high = int(index[0]) // WIDTH, int(index[-1]) // WIDTH + 1
        whole = self._state[low:high, rows].swapaxes(0, 1).reshape(rows.stop - rows.start, -1)
        values = whole[:, index - low * WIDTH].reshape(*shape, len(index))
        values.flags.writeable = False
        return values

    def __setattr__(self, name: str, value: Array | float) -> None:
        rows, shape = self._rows_of(name)
        index = self._index
        values = np.broadcast_to(value, (*shape, len(index))).reshape(-1, len(index))
        self._state[index // WIDTH, rows, index % WIDTH] = values.T

    def _rows_of(self, name: str) -> tuple[slice, tuple[int, ...]]:
        fields = object.__getattribute__(self, "_layout").fields
        if name not in fields:
            raise AttributeError(name)
        first, shape = fields[name]
        return slice(first, first + math.prod(shape)), shape


class Columns:
    """The fields of a layout in a matrix of nodes by rows. They can be changed in place.

    Args:
        layout: The layout of the rows.
        matrix: The numbers, ``(nodes, layout.rows)``.
    """

    def __init__(self, layout: Layout, matrix: Array) -> None:
        self.matrix = matrix
        self._layout = layout

    def __getitem__(self, name: str) -> Array:
        """The field's values, ``(nodes,)`` or ``(nodes, *shape)``."""
        first, shape = self._layout.fields[name]
        values = self.matrix[:, first : first + math.prod(shape)]
        return values.reshape(-1, *shape) if len(shape) > 1 else values if shape else values[:, 0]

    def __setitem__(self, name: str, value: Array | float) -> None:
        self[name][...] = value
