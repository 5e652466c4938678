"""Rules that nodes follow, compiled from the same functions that nodes call.

Such a function is plain Python on floats: assignments, and a ``return``. It chooses with ``x if
condition else y``, combines conditions with ``and``, ``or`` and ``not``, and calls ``min``,
``max``, ``math.exp``, ``math.log`` and ``math.isnan``; what is not known is NaN. Python has no such
expressions for the numbers of eight nodes, so here they are replaced by the operations of
:mod:`stallward.env.twin.simd.values` before they are compiled. These give the same results, also
of NaN, but they compute both sides of a choice.
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final

from numba.extending import overload

from stallward.env.twin.simd import elementary, values
from stallward.env.twin.simd.jit import INLINED

_OPERATIONS: Final[dict[str, Callable[..., Any]]] = {
    "where": values.where,
    "negate": values.negate,
    "min": values.minimum,
    "max": values.maximum,
    "isnan": values.is_nan,
    "exp": elementary.exp,
    "log": elementary.log,
}


@functools.cache
def law(function: Callable[..., Any]) -> None:
    """Let compiled code call a function of a node, and those that it calls.

    Called from Python, they stay as they are.
    """
    for name in function.__code__.co_names:
        if inspect.isfunction(called := function.__globals__.get(name)):
            law(called)
    tree = ast.increment_lineno(
        ast.parse(inspect.getsource(function)), function.__code__.co_firstlineno - 1
    )
    tree = ast.fix_missing_locations(_Rewriter().visit(tree))
    code = compile(tree, function.__code__.co_filename, "exec")
    names = function.__globals__ | {_name(word): one for word, one in _OPERATIONS.items()}
    exec(code, names)  # noqa: S102 - the source of an imported function
    compiled = names[function.__name__]

    @overload(function, jit_options=INLINED, strict=False)  # type: ignore[untyped-decorator]
    def _overload(*_arguments: Any) -> Any:
        return compiled


class _Rewriter(ast.NodeTransformer):
    """Replaces the expressions that only single numbers have."""

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        return _call("where", node.test, node.body, node.orelse)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        return _joined(ast.BitAnd() if isinstance(node.op, ast.And) else ast.BitOr(), node.values)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        return _call("negate", node.operand) if isinstance(node.op, ast.Not) else node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        sides = [node.left, *node.comparators]
        pairs = zip(sides, node.ops, sides[1:], strict=False)
        return _joined(ast.BitAnd(), [ast.Compare(x, [sign], [y]) for x, sign, y in pairs])

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        match node.func:
            case ast.Name(id="min" | "max" as word):
                # Python returns the first one unless the second is smaller, or larger.
                return functools.reduce(lambda x, y: _call(word, y, x), node.args)
            case ast.Attribute(value=ast.Name(id="math"), attr="exp" | "log" | "isnan" as word):
                return _call(word, *node.args)
        return node


def _joined(operator: ast.operator, conditions: Sequence[ast.expr]) -> ast.expr:
    return functools.reduce(lambda x, y: ast.BinOp(x, operator, y), conditions)


def _call(word: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(_name(word), ast.Load()), list(arguments), [])


def _name(word: str) -> str:
    """The name of an operation among those of the function's module."""
    return f"operation_{word}"
