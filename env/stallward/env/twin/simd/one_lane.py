"""Operations on one of the eight nodes that compiled code computes together.

They are for steps that cannot be vector operations, such as a table look-up by a number of the
node. Done for all eight nodes, they take about eight times as long.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba.extending import intrinsic
from numpy.typing import NDArray

from stallward.env.twin.simd.layout import Rows
from stallward.env.twin.simd.numba_internals import ir, types
from stallward.env.twin.simd.records import argument_index
from stallward.env.twin.simd.vectors import NUMBERS, VECTOR, WIDTH, compiled_as, splat

_NUMBER: Final = ir.DoubleType()
_SMALL: Final = ir.VectorType(ir.IntType(8), WIDTH)


@intrinsic  # type: ignore[untyped-decorator]
def _lane(_context: Any, value: Any, lane: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        lane = argument_index(context, builder, signature, values, 1)
        return builder.extract_element(values[0], lane)

    return types.float64(value, lane), generate


def _lane_pointer(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    """Return a pointer to one node's number; the arguments are rows, index, lane."""
    row, lane = (argument_index(context, builder, signature, values, k) for k in (1, 2))
    numbers = builder.bitcast(builder.gep(values[0], [row]), _NUMBER.as_pointer())
    return builder.gep(numbers, [lane])


@intrinsic  # type: ignore[untyped-decorator]
def _set_lane(_context: Any, rows: Any, index: Any, lane: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        value = context.cast(builder, values[3], signature.args[3], types.float64)
        builder.store(value, _lane_pointer(context, builder, signature, values))
        return context.get_dummy_value()

    return types.void(rows, index, lane, value), generate


def value_of_lane(number: float, lane: int) -> float:
    """Return the number of one of the eight nodes; only in compiled code."""
    raise NotImplementedError((number, lane))


def set_lane(rows: Rows, index: int, lane: int, value: float) -> None:
    """Set a row of one of the eight nodes; only in compiled code."""
    raise NotImplementedError((rows, index, lane, value))


@compiled_as(value_of_lane)
def _overload_value_of_lane(number: Any, lane: Any) -> Any:
    return lambda number, lane: _lane(number, lane)


@compiled_as(set_lane)
def _overload_set_lane(rows: Any, index: Any, lane: Any, value: Any) -> Any:
    return lambda rows, index, lane, value: _set_lane(rows, index, lane, value)


@intrinsic  # type: ignore[untyped-decorator]
def _add_to_lane(_context: Any, rows: Any, index: Any, lane: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        place = _lane_pointer(context, builder, signature, values)
        value = context.cast(builder, values[3], signature.args[3], types.float64)
        builder.store(builder.fadd(builder.load(place), value), place)
        return context.get_dummy_value()

    return types.void(rows, index, lane, value), generate


@intrinsic  # type: ignore[untyped-decorator]
def _raise_lane(_context: Any, rows: Any, index: Any, lane: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        place = _lane_pointer(context, builder, signature, values)
        value = context.cast(builder, values[3], signature.args[3], types.float64)
        before = builder.load(place)
        more = builder.fcmp_ordered(">", value, before)
        builder.store(builder.select(more, value, before), place)
        return context.get_dummy_value()

    return types.void(rows, index, lane, value), generate


def add_to_lane(rows: Rows, index: int, lane: int, value: float) -> None:
    """Add to a row of one of the eight nodes; only in compiled code."""
    raise NotImplementedError((rows, index, lane, value))


def raise_lane(rows: Rows, index: int, lane: int, value: float) -> None:
    """Raise a row of one of the eight nodes to a larger value; only in compiled code."""
    raise NotImplementedError((rows, index, lane, value))


@compiled_as(add_to_lane)
def _overload_add_to_lane(rows: Any, index: Any, lane: Any, value: Any) -> Any:
    return lambda rows, index, lane, value: _add_to_lane(rows, index, lane, value)


@compiled_as(raise_lane)
def _overload_raise_lane(rows: Any, index: Any, lane: Any, value: Any) -> Any:
    return lambda rows, index, lane, value: _raise_lane(rows, index, lane, value)


@intrinsic  # type: ignore[untyped-decorator]
def _exchange(_context: Any, row: Any, node: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, values[0])
        place = builder.gep(array.data, [argument_index(context, builder, signature, values, 1)])
        place = builder.bitcast(place, _SMALL.as_pointer())
        before = builder.uitofp(builder.load(place, align=1), VECTOR)
        number = splat(context, builder, signature.args[2], values[2])
        builder.store(builder.fptoui(number, _SMALL), place, align=1)
        return before

    return NUMBERS(row, node, value), generate


def exchange(row: NDArray[np.uint8], node: int, value: float) -> float:
    """Set the small whole numbers of the eight nodes from ``node`` on; return the old ones."""
    before = float(row[node])
    row[node] = int(value)
    return before


@compiled_as(exchange)
def _overload_exchange(row: Any, node: Any, value: Any) -> Any:
    return lambda row, node, value: _exchange(row, node, value)
