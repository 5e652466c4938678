"""A node's state by name where numbers are vectors: see :mod:`stallward.env.twin.simd.records`."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable
from typing import Any, Final, TypeVar

import numpy as np
from numba.extending import (
    infer_getattr,
    intrinsic,
    lower_getattr_generic,
    lower_setattr_generic,
    models,
    register_model,
)
from numpy.typing import NDArray

from stallward.env.twin.simd.layout import Layout, Rows
from stallward.env.twin.simd.numba_internals import AttributeTemplate, cgutils, ir, types
from stallward.env.twin.simd.vectors import NUMBERS, VECTOR, compiled_as, splat

Array = NDArray[np.float64]
Record = TypeVar("Record")
_BYTES: Final = 8


class _RowsType(types.Type):
    def __init__(self) -> None:
        super().__init__(name="Rows")


class _RecordType(types.Type):
    def __init__(self, name: str, fields: tuple[tuple[str, int, tuple[int, ...]], ...]) -> None:
        super().__init__(
            name=f"Record({name}, {hashlib.sha256(repr(fields).encode()).hexdigest()})"
        )
        self.fields = {field: (first, shape) for field, first, shape in fields}


_ROWS: Final = _RowsType()


@register_model(_RowsType)
@register_model(_RecordType)
class _PointerModel(models.PrimitiveModel):  # type: ignore[misc]
    """A pointer to the first row; each row is the next vector."""

    def __init__(self, manager: Any, frontend: Any) -> None:
        super().__init__(manager, frontend, VECTOR.as_pointer())


def _load(builder: Any, pointer: Any) -> Any:
    return builder.load(pointer, align=_BYTES)


def _store(builder: Any, pointer: Any, value: Any) -> None:
    builder.store(value, pointer, align=_BYTES)


@infer_getattr
class _RecordAttributes(AttributeTemplate):  # type: ignore[misc]
    key = _RecordType

    def generic_resolve(self, record: Any, name: str) -> Any:
        """Return the type of an attribute, to read or to set."""
        if name not in record.fields:
            return None
        return _ROWS if record.fields[name][1] else NUMBERS


def _field(builder: Any, kind: Any, value: Any, name: str) -> Any:
    return builder.gep(value, [ir.Constant(ir.IntType(64), kind.fields[name][0])])


@lower_getattr_generic(_RecordType)  # type: ignore[untyped-decorator]
def _get_attribute(_context: Any, builder: Any, kind: Any, value: Any, name: str) -> Any:
    pointer = _field(builder, kind, value, name)
    return pointer if kind.fields[name][1] else _load(builder, pointer)


@lower_setattr_generic(_RecordType)  # type: ignore[untyped-decorator]
def _set_attribute(context: Any, builder: Any, signature: Any, values: Any, name: str) -> None:
    pointer = _field(builder, signature.args[0], values[0], name)
    _store(builder, pointer, splat(context, builder, signature.args[1], values[1]))


def argument_index(context: Any, builder: Any, signature: Any, values: Any, k: int) -> Any:
    """Return the ``k``-th argument as an index."""
    return context.cast(builder, values[k], signature.args[k], types.intp)


@intrinsic  # type: ignore[untyped-decorator]
def _row(_context: Any, rows: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        index = argument_index(context, builder, signature, values, 1)
        return _load(builder, builder.gep(values[0], [index]))

    return NUMBERS(rows, index), generate


@intrinsic  # type: ignore[untyped-decorator]
def _set_row(_context: Any, rows: Any, index: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        pointer = builder.gep(values[0], [argument_index(context, builder, signature, values, 1)])
        _store(builder, pointer, splat(context, builder, signature.args[2], values[2]))
        return context.get_dummy_value()

    return types.void(rows, index, value), generate


@intrinsic  # type: ignore[untyped-decorator]
def _rows_from(_context: Any, rows: Any, first: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.gep(values[0], [argument_index(context, builder, signature, values, 1)])

    return _ROWS(rows, first), generate


def _on_stack(builder: Any, count: int) -> Any:
    return cgutils.alloca_once(builder, VECTOR, ir.Constant(ir.IntType(64), count))


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def _rows_on_stack(_context: Any, count: Any) -> Any:
    if not isinstance(count, types.IntegerLiteral):
        return None

    def generate(_context: Any, builder: Any, signature: Any, _values: Any) -> Any:
        return _on_stack(builder, signature.args[0].literal_value)

    return _ROWS(count), generate


@compiled_as(operator.getitem)
def _overload_getitem(rows: Any, index: Any) -> Any:
    return (lambda rows, index: _row(rows, index)) if isinstance(rows, _RowsType) else None


@compiled_as(operator.setitem)
def _overload_setitem(rows: Any, index: Any, value: Any) -> Any:
    if isinstance(rows, _RowsType):
        return lambda rows, index, value: _set_row(rows, index, value)
    return None


def from_row(rows: Rows, first: int) -> Rows:
    """Return the rows that begin at ``first``; only in compiled code."""
    raise NotImplementedError(first)


def local_rows(count: int) -> Rows:
    """Make temporary rows. In compiled code, ``count`` must be a constant."""
    return [0.0] * count


@compiled_as(from_row)
def _overload_from_row(rows: Any, first: Any) -> Any:
    return lambda rows, first: _rows_from(rows, first)


@compiled_as(local_rows, prefer_literal=True)
def _overload_local_rows(count: Any) -> Any:
    return lambda count: _rows_on_stack(count)


def _record_type(record: type, layout: Layout) -> _RecordType:
    fields = tuple((name, first, shape) for name, (first, shape) in layout.fields.items())
    return _RecordType(record.__name__, fields)


def reader(record: type[Record], layout: Layout) -> Callable[[Array, int], Record]:
    """Make a function for compiled code that reads records from an array of rows.

    It takes the array and a node, and returns the record of the eight nodes from that one on.
    """
    kind = _record_type(record, layout)

    @intrinsic  # type: ignore[untyped-decorator]
    def read(_context: Any, state: Any, node: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            node = argument_index(context, builder, signature, values, 1)
            array = context.make_array(signature.args[0])(context, builder, values[0])
            first = builder.mul(node, ir.Constant(ir.IntType(64), layout.rows))
            place = builder.gep(array.data, [first])
            return builder.bitcast(place, VECTOR.as_pointer())

        return kind(state, node), generate

    typed_read: Callable[[Array, int], Record] = read
    return typed_read


def local_reader(record: type[Record], layout: Layout) -> Callable[[], Record]:
    """Make a function for compiled code that returns a temporary record, not yet set."""
    kind = _record_type(record, layout)

    @intrinsic  # type: ignore[untyped-decorator]
    def make(_context: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, _values: Any) -> Any:
            return _on_stack(builder, layout.rows)

        return kind(), generate

    typed_make: Callable[[], Record] = make
    return typed_make


@intrinsic  # type: ignore[untyped-decorator]
def _rows_of(_context: Any, record: Any) -> Any:
    def generate(_context: Any, _builder: Any, _signature: Any, values: Any) -> Any:
        return values[0]

    return _ROWS(record), generate


def rows_of(record: Any) -> Rows:
    """Return all rows of a record; only in compiled code."""
    raise NotImplementedError(record)


@compiled_as(rows_of)
def _overload_rows_of(record: Any) -> Any:
    return lambda record: _rows_of(record)
