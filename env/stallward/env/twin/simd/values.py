"""The numbers of nodes and their operations.

In compiled code, a number is a vector of the numbers of eight nodes, and a condition is a vector
of their conditions. Called from Python, these are functions of floats. ``+ - * / < <= > >= ==``
work in both; ``& |`` combine conditions.
"""

from __future__ import annotations

import math
import operator
from typing import Any, Final

from numba.extending import intrinsic

from stallward.env.twin.simd.numba_internals import cgutils, ir, types
from stallward.env.twin.simd.vectors import (
    CONDITIONS,
    NUMBERS,
    VECTOR,
    WIDTH,
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


def where(condition: bool, one: float, other: float) -> float:
    """Return ``one`` where the condition holds, else ``other``; both are computed."""
    return one if condition else other


def minimum(x: float, y: float) -> float:
    """Return the smaller number; ``y`` if one is NaN."""
    return min(y, x)


def maximum(x: float, y: float) -> float:
    """Return the larger number; ``y`` if one is NaN."""
    return max(y, x)


def floor(x: float) -> float:
    """Return the largest whole number that is not above ``x``."""
    return float(math.floor(x)) if math.isfinite(x) else x


def square_root(x: float) -> float:
    """Return the square root of a number that is not negative."""
    return math.sqrt(x)


def is_nan(x: float) -> bool:
    """Return whether ``x`` is NaN."""
    return math.isnan(x)


def negate(condition: bool) -> bool:
    """Return the opposite of the condition."""
    return not condition


def anywhere(condition: bool) -> bool:
    """Return whether the condition holds for any of the eight nodes."""
    return condition


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


@compiled_as(where)
def _overload_where(condition: Any, one: Any, other: Any) -> Any:
    if isinstance(condition, ConditionsType) and is_number(one) and is_number(other):
        return lambda condition, one, other: _where(condition, one, other)
    if isinstance(condition, types.Boolean) and is_scalar(one) and is_scalar(other):
        return lambda condition, one, other: one if condition else other
    if isinstance(condition, types.Boolean) and is_number(one) and is_number(other):
        return lambda condition, one, other: _where_all(condition, one, other)
    return None


@compiled_as(minimum)
def _overload_minimum(x: Any, y: Any) -> Any:
    if is_scalar(x) and is_scalar(y):
        return lambda x, y: x if x < y else y  # noqa: FURB136 - NaN
    return lambda x, y: _minimum(x, y)


@compiled_as(maximum)
def _overload_maximum(x: Any, y: Any) -> Any:
    if is_scalar(x) and is_scalar(y):
        return lambda x, y: x if x > y else y  # noqa: FURB136 - NaN
    return lambda x, y: _maximum(x, y)


@compiled_as(floor)
def _overload_floor(x: Any) -> Any:
    return (lambda x: math.floor(x) * 1.0) if is_scalar(x) else (lambda x: _floor(x))


@compiled_as(square_root)
def _overload_square_root(x: Any) -> Any:
    return (lambda x: math.sqrt(x)) if is_scalar(x) else (lambda x: _square_root(x))


@compiled_as(is_nan)
def _overload_is_nan(x: Any) -> Any:
    return (lambda x: math.isnan(x)) if is_scalar(x) else (lambda x: _is_nan(x))


@compiled_as(negate)
def _overload_negate(condition: Any) -> Any:
    if isinstance(condition, ConditionsType):
        return lambda condition: _negate(condition)
    return lambda condition: not condition


@compiled_as(anywhere)
def _overload_anywhere(condition: Any) -> Any:
    if isinstance(condition, ConditionsType):
        return lambda condition: _anywhere(condition)
    return lambda condition: condition
