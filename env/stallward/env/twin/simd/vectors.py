"""The vector types of compiled code, which stand for numbers and conditions.

Only :mod:`stallward.env.twin.simd` uses this module. It relies on numba's extension interface and
on LLVM.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from numba.extending import intrinsic, lower_cast, models, overload, register_model

from stallward.env.twin.simd.backend import WIDTH
from stallward.env.twin.simd.numba_internals import Conversion, ir, types

VECTOR: Final = ir.VectorType(ir.DoubleType(), WIDTH)
MASK: Final = ir.VectorType(ir.IntType(1), WIDTH)
BITS: Final = ir.VectorType(ir.IntType(64), WIDTH)
_FIRST_LANE: Final = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
Build = Callable[..., Any]


class NumbersType(types.Type):
    """The type of a number of each of eight nodes."""

    def __init__(self) -> None:
        super().__init__(name="Numbers")

    def unify(self, _context: Any, other: Any) -> Any:
        """Give a variable this type if it is a shared number first and a vector later."""
        return self if is_scalar(other) else None

    def can_convert_from(self, _context: Any, other: Any) -> Any:
        """Accept a number that all nodes share where a vector is needed."""
        return Conversion.safe if is_scalar(other) else None


class ConditionsType(types.Type):
    """The type of a condition of each of eight nodes."""

    def __init__(self) -> None:
        super().__init__(name="Conditions")


NUMBERS: Final = NumbersType()
CONDITIONS: Final = ConditionsType()


@register_model(NumbersType)
class _NumbersModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, frontend: Any) -> None:
        super().__init__(manager, frontend, VECTOR)


@register_model(ConditionsType)
class _ConditionsModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, frontend: Any) -> None:
        super().__init__(manager, frontend, MASK)


def compiled_as(function: Callable[..., Any], **options: Any) -> Callable[[Build], Build]:
    """Decorate a function that returns the implementation of ``function`` in compiled code.

    The decorated function gets the types of the arguments. It returns None for types that it does
    not implement.
    """
    decorate: Callable[[Build], Build] = overload(function, strict=False, **options)
    return decorate


def is_scalar(kind: Any) -> bool:
    """Return whether the type is that of a value that all nodes share."""
    return isinstance(kind, types.Float | types.Integer | types.Boolean)


def is_number(kind: Any) -> bool:
    """Return whether the type is that of a number, shared or not."""
    return isinstance(kind, NumbersType) or is_scalar(kind)


def splat(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """Return a shared value as a vector; a vector is returned as it is."""
    if not is_scalar(kind):
        return value
    return _repeated(builder, VECTOR, context.cast(builder, value, kind, types.float64))


def _repeated(builder: Any, kind: ir.VectorType, value: Any) -> Any:
    undefined = ir.Constant(kind, ir.Undefined)
    one = builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, undefined, _FIRST_LANE)


def constant(kind: ir.VectorType, value: Any) -> ir.Constant:
    """Return a vector that has one constant in all lanes."""
    return ir.Constant(kind, [value] * WIDTH)


@lower_cast(types.Float, NumbersType)  # type: ignore[untyped-decorator]
@lower_cast(types.Integer, NumbersType)  # type: ignore[untyped-decorator]
@lower_cast(types.Boolean, NumbersType)  # type: ignore[untyped-decorator]
def _cast(context: Any, builder: Any, source: Any, _target: Any, value: Any) -> Any:
    return splat(context, builder, source, value)


def operation(result: Any, build: Build) -> Any:
    """Make the typing function of an intrinsic on numbers.

    Args:
        result: The type of the result.
        build: Builds the result from the builder and the vectors.
    """

    def typed(_context: Any, *arguments: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            vectors = [
                splat(context, builder, kind, value)
                for kind, value in zip(signature.args, values, strict=True)
            ]
            return build(builder, *vectors)

        return result(*arguments), generate

    return typed


def unary(result: Any, build: Build) -> Any:
    """Make an intrinsic of one number, see :func:`operation`."""
    typed = operation(result, build)

    @intrinsic  # type: ignore[untyped-decorator]
    def one(context: Any, x: Any) -> Any:
        return typed(context, x)

    return one


def binary(result: Any, build: Build) -> Any:
    """Make an intrinsic of two numbers, see :func:`operation`."""
    typed = operation(result, build)

    @intrinsic  # type: ignore[untyped-decorator]
    def two(context: Any, x: Any, y: Any) -> Any:
        return typed(context, x, y)

    return two


def ternary(result: Any, build: Build) -> Any:
    """Make an intrinsic of three numbers, see :func:`operation`."""
    typed = operation(result, build)

    @intrinsic  # type: ignore[untyped-decorator]
    def three(context: Any, x: Any, y: Any, z: Any) -> Any:
        return typed(context, x, y, z)

    return three


def overload_operator(operator: Any, result: Any, build: Build) -> None:
    """Implement a Python operator on two numbers, at least one of them a vector."""
    two = binary(result, build)

    @compiled_as(operator)
    def _operator(x: Any, y: Any) -> Any:
        vectors = isinstance(x, NumbersType) or isinstance(y, NumbersType)
        if vectors and is_number(x) and is_number(y):
            return lambda x, y: two(x, y)
        return None


def overload_condition_operator(operator: Any, build: Build) -> None:
    """Implement a Python operator on two conditions, at least one of them a vector."""

    @intrinsic  # type: ignore[untyped-decorator]
    def two(_context: Any, x: Any, y: Any) -> Any:
        def generate(_context: Any, builder: Any, signature: Any, values: Any) -> Any:
            masks = [
                _repeated(builder, MASK, value) if isinstance(kind, types.Boolean) else value
                for kind, value in zip(signature.args, values, strict=True)
            ]
            return build(builder, *masks)

        return CONDITIONS(x, y), generate

    @compiled_as(operator)
    def _operator(x: Any, y: Any) -> Any:
        kinds = ConditionsType | types.Boolean
        vectors = isinstance(x, ConditionsType) or isinstance(y, ConditionsType)
        if vectors and isinstance(x, kinds) and isinstance(y, kinds):
            return lambda x, y: two(x, y)
        return None
