"""The operations of vectors: the functions on numbers in compiled code for eight nodes."""

from __future__ import annotations

import operator
from typing import Any, Final

from numba.extending import intrinsic

from stallward.env.twin.simd import elementary, one_lane, values
from stallward.env.twin.simd.backend import WIDTH
from stallward.env.twin.simd.numba_internals import cgutils, ir, types
from stallward.env.twin.simd.vector_records import argument_index
from stallward.env.twin.simd.vectors import (
    BITS,
    CONDITIONS,
    NUMBERS,
    VECTOR,
    ConditionsType,
    NumbersType,
    binary,
    compiled_as,
    constant,
    is_number,
    is_scalar,
    overload_condition_operator,
    overload_operator,
    splat,
    ternary,
    unary,
)

_COMPARISONS: Final = {
    operator.lt: "<",
    operator.le: "<=",
    operator.gt: ">",
    operator.ge: ">=",
    operator.eq: "==",
}
_NUMBER: Final = ir.DoubleType()
_SMALL: Final = ir.VectorType(ir.IntType(8), WIDTH)


def _intrinsic_name(name: str) -> Any:
    def build(builder: Any, x: Any) -> Any:
        kind = ir.FunctionType(VECTOR, [VECTOR])
        whole_name = f"llvm.{name}.v{WIDTH}f64"
        function = cgutils.get_or_insert_function(builder.module, kind, whole_name)
        return builder.call(function, [x])

    return build


_FUSED: Final = ("contract",)
"""Allows a product and a sum to be one instruction, which rounds once."""
overload_operator(operator.add, NUMBERS, lambda b, x, y: b.fadd(x, y, flags=_FUSED))
overload_operator(operator.sub, NUMBERS, lambda b, x, y: b.fsub(x, y, flags=_FUSED))
overload_operator(operator.mul, NUMBERS, lambda b, x, y: b.fmul(x, y, flags=_FUSED))
overload_operator(operator.truediv, NUMBERS, lambda b, x, y: b.fdiv(x, y))
for _operator, _sign in _COMPARISONS.items():
    overload_operator(_operator, CONDITIONS, lambda b, x, y, s=_sign: b.fcmp_ordered(s, x, y))
overload_condition_operator(operator.and_, lambda b, x, y: b.and_(x, y))
overload_condition_operator(operator.or_, lambda b, x, y: b.or_(x, y))

_where = ternary(NUMBERS, lambda b, c, x, y: b.select(c, x, y))
_minimum = binary(NUMBERS, lambda b, x, y: b.select(b.fcmp_ordered("<", x, y), x, y))
_maximum = binary(NUMBERS, lambda b, x, y: b.select(b.fcmp_ordered(">", x, y), x, y))
_floor = unary(NUMBERS, _intrinsic_name("floor"))
_square_root = unary(NUMBERS, _intrinsic_name("sqrt"))
_negative = unary(NUMBERS, lambda b, x: b.fsub(constant(VECTOR, -0.0), x))
_is_nan = unary(CONDITIONS, lambda b, x: b.fcmp_unordered("uno", x, x))
_negate = unary(CONDITIONS, lambda b, c: b.not_(c))


@intrinsic  # type: ignore[untyped-decorator]
def _anywhere(_context: Any, condition: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        bits = builder.bitcast(values[0], ir.IntType(WIDTH))
        return builder.icmp_unsigned("!=", bits, ir.Constant(ir.IntType(WIDTH), 0))

    return types.boolean(condition), generate


@intrinsic  # type: ignore[untyped-decorator]
def _where_all(_context: Any, condition: Any, one: Any, other: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kinds = signature.args
        one, other = (splat(context, builder, kinds[k], values[k]) for k in (1, 2))
        return builder.select(values[0], one, other)

    return NUMBERS(condition, one, other), generate


@compiled_as(operator.neg)
def _overload_neg(x: Any) -> Any:
    return (lambda x: _negative(x)) if isinstance(x, NumbersType) else None


@compiled_as(values.where)
def _overload_where(condition: Any, one: Any, other: Any) -> Any:
    if isinstance(condition, ConditionsType) and is_number(one) and is_number(other):
        return lambda condition, one, other: _where(condition, one, other)
    if isinstance(condition, types.Boolean) and is_scalar(one) and is_scalar(other):
        return values.where
    if isinstance(condition, types.Boolean) and is_number(one) and is_number(other):
        return lambda condition, one, other: _where_all(condition, one, other)
    return None


@compiled_as(values.minimum)
def _overload_minimum(x: Any, y: Any) -> Any:
    if is_scalar(x) and is_scalar(y):
        return values.minimum
    return lambda x, y: _minimum(x, y)


@compiled_as(values.maximum)
def _overload_maximum(x: Any, y: Any) -> Any:
    if is_scalar(x) and is_scalar(y):
        return values.maximum
    return lambda x, y: _maximum(x, y)


@compiled_as(values.floor)
def _overload_floor(x: Any) -> Any:
    return values.floor if is_scalar(x) else (lambda x: _floor(x))


@compiled_as(values.square_root)
def _overload_square_root(x: Any) -> Any:
    return values.square_root if is_scalar(x) else (lambda x: _square_root(x))


@compiled_as(values.is_nan)
def _overload_is_nan(x: Any) -> Any:
    return values.is_nan if is_scalar(x) else (lambda x: _is_nan(x))


@compiled_as(values.negate)
def _overload_negate(condition: Any) -> Any:
    if isinstance(condition, ConditionsType):
        return lambda condition: _negate(condition)
    return values.negate


@compiled_as(values.anywhere)
def _overload_anywhere(condition: Any) -> Any:
    if isinstance(condition, ConditionsType):
        return lambda condition: _anywhere(condition)
    return values.anywhere


def _build_times_two_to(b: Any, x: Any, power: Any) -> Any:
    bits = b.bitcast(b.fadd(power, constant(VECTOR, elementary.SHIFT)), BITS)
    return b.bitcast(b.add(b.bitcast(x, BITS), b.shl(bits, constant(BITS, 52))), VECTOR)


def _build_mantissa(b: Any, x: Any) -> Any:
    bits = b.bitcast(x, BITS)
    more = b.sub(bits, constant(BITS, elementary.ROOT_HALF_BITS))
    over = b.and_(more, constant(BITS, -(1 << 52)))
    return b.bitcast(b.sub(bits, over), VECTOR)


def _build_exponent(b: Any, x: Any) -> Any:
    over = b.sub(b.bitcast(x, BITS), constant(BITS, elementary.ROOT_HALF_BITS))
    whole = b.add(b.ashr(over, constant(BITS, 52)), constant(BITS, elementary.SHIFT_BITS))
    return b.fsub(b.bitcast(whole, VECTOR), constant(VECTOR, elementary.SHIFT))


_lanes_times_two_to = binary(NUMBERS, _build_times_two_to)
_lanes_mantissa = unary(NUMBERS, _build_mantissa)
_lanes_exponent = unary(NUMBERS, _build_exponent)


@compiled_as(elementary.times_two_to)
def _overload_times_two_to(x: Any, power: Any) -> Any:
    if isinstance(x, NumbersType):
        return lambda x, power: _lanes_times_two_to(x, power)
    return elementary.times_two_to


@compiled_as(elementary.mantissa)
def _overload_mantissa(x: Any) -> Any:
    return (lambda x: _lanes_mantissa(x)) if isinstance(x, NumbersType) else elementary.mantissa


@compiled_as(elementary.exponent)
def _overload_exponent(x: Any) -> Any:
    return (lambda x: _lanes_exponent(x)) if isinstance(x, NumbersType) else elementary.exponent


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


@compiled_as(one_lane.value_of_lane)
def _overload_value_of_lane(number: Any, lane: Any) -> Any:
    return lambda number, lane: _lane(number, lane)


@compiled_as(one_lane.set_lane)
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


@compiled_as(one_lane.add_to_lane)
def _overload_add_to_lane(rows: Any, index: Any, lane: Any, value: Any) -> Any:
    return lambda rows, index, lane, value: _add_to_lane(rows, index, lane, value)


@compiled_as(one_lane.raise_lane)
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


@compiled_as(one_lane.exchange)
def _overload_exchange(row: Any, node: Any, value: Any) -> Any:
    return lambda row, node, value: _exchange(row, node, value)
