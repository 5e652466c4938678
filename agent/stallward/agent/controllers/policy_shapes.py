"""How large the tensors of a policy are, found before anything runs it.

A file of some kilobytes can ask for any amount of memory: by repeating a constant, or by a shape
that it computes from the observation. So every tensor must have a shape that follows from the
file alone, and all of them together a bounded size. The rules are those of the operators
(https://onnx.ai/onnx/operators).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from stallward.agent.controllers.policy_graph import (
    LARGEST_BYTES,
    Constant,
    Node,
    PolicyGraph,
    Shape,
    read_graph,
)
from stallward.agent.errors import PolicyError

MOST_BYTES: Final = 64 << 20
"""The largest size of all tensors of a policy together. Those of the shipped one have 0.4 MB."""
_MOST_DIMENSIONS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A node with what is known of its inputs."""

    node: Node
    shapes: tuple[Shape, ...]
    """The shapes of the inputs; ``()`` for one that is left out."""
    constants: Mapping[str, Constant]

    @property
    def first(self) -> Shape:
        """The shape of the first input."""
        if not self.shapes:
            raise ValueError("it has no input")
        return self.shapes[0]

    def number(self, name: str, default: int) -> int:
        """An attribute."""
        return self.node.numbers.get(name, default)

    def ints(self, place: int, name: str = "") -> tuple[int, ...] | None:
        """The integers of an input, or of an attribute; ``None`` if there is neither."""
        inputs = self.node.inputs
        if len(inputs) > place and inputs[place]:
            constant = self.constants.get(inputs[place])
            if constant is None or constant.values is None:
                raise ValueError("its shape is no constant")
            return constant.values
        return self.node.lists.get(name) or None

    def axis(self, axis: int, *, more: int = 0) -> int:
        """The number of an axis of the first input, from its front."""
        rank = len(self.first) + more
        if not -rank <= axis < max(rank, 1):
            raise ValueError(f"it has no axis {axis}")
        return axis % rank if rank else 0


_Rule = Callable[[_Step], Sequence[Shape]]


def check_shapes(path: Path, model: bytes) -> None:
    """Refuse a network whose tensors are not of known and bounded size.

    Args:
        path: The policy's file, for messages.
        model: Its content, which is the message of a model.

    Raises:
        PolicyError: If it has such a tensor.
    """
    try:
        size_bytes = tensor_bytes(read_graph(model))
    except (ValueError, ArithmeticError, IndexError) as error:
        raise PolicyError(
            f"It cannot be known how much memory the policy {path} takes: {error}.",
            next_step="Export it with `stallward export`, or with fixed sizes and no operators "
            "that depend on a computed shape.",
        ) from error
    if size_bytes > MOST_BYTES:
        raise PolicyError(
            f"The tensors of the policy {path} take {size_bytes} bytes or more, and at most "
            f"{MOST_BYTES} are allowed.",
            next_step="Train a smaller network.",
        )


def tensor_bytes(graph: PolicyGraph) -> int:
    """How many bytes all tensors take, constants and results; it stops beyond the bound.

    Raises:
        ValueError: If the size of a tensor does not follow from the file.
    """
    constants = dict(graph.constants)
    shapes = {name: constant.shape for name, constant in constants.items()}
    shapes |= {name: _observed(shape) for name, shape in graph.inputs.items()}
    size_bytes = sum(constant.size_bytes for constant in constants.values())
    size_bytes += sum(_bytes(shapes[name]) for name in graph.inputs)
    for node in graph.nodes:
        if size_bytes > MOST_BYTES:
            break
        try:
            results = _results(node, shapes, constants)
        except (ValueError, ArithmeticError, IndexError) as error:
            raise ValueError(f"{node.operator} of {node.outputs[:1]}: {error}"[:200]) from error
        for name, shape in zip(node.outputs, results, strict=False):
            if name in shapes:
                raise ValueError(f"two tensors are named {name!r}"[:200])
            shapes[name] = shape
            size_bytes += _bytes(shape)
    return size_bytes


def _results(
    node: Node, shapes: Mapping[str, Shape], constants: dict[str, Constant]
) -> Sequence[Shape]:
    """The shapes of a node's outputs."""
    if node.constant is not None:
        constants.update(dict.fromkeys(node.outputs, node.constant))
        return [node.constant.shape]
    unknown = [name for name in node.inputs if name and name not in shapes]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is used before it is made")
    step = _Step(
        node=node,
        shapes=tuple(shapes[name] if name else () for name in node.inputs),
        constants=constants,
    )
    rule = RULES.get(node.operator)
    if rule is None:
        raise ValueError("it is no operator of a policy")
    results = rule(step)
    if len(node.outputs) > len(results):
        raise ValueError("it has more results than are known")
    if any(len(shape) > _MOST_DIMENSIONS for shape in results):
        raise ValueError(f"it has more than {_MOST_DIMENSIONS} dimensions")
    return results


def _observed(shape: Shape) -> Shape:
    """The shape of an input: there is one observation, also where the file leaves that open."""
    if len(shape) != 2 or shape[0] not in {0, 1} or shape[1] <= 0:
        raise ValueError(f"its input has the shape {shape}, not [1, N]"[:200])
    return (1, shape[1])


def _bytes(shape: Shape) -> int:
    return LARGEST_BYTES * math.prod(shape)


def _same(step: _Step) -> Sequence[Shape]:
    return [step.first]


def _broadcast(step: _Step) -> Sequence[Shape]:
    return [np.broadcast_shapes(*step.shapes)]


def _gemm(step: _Step) -> Sequence[Shape]:
    (rows, inner), second = step.first, step.shapes[1]
    if step.number("transA", 0):
        rows, inner = inner, rows
    other, columns = reversed(second) if step.number("transB", 0) else second
    if inner != other:
        raise ValueError(f"{step.shapes[:2]} do not fit")
    return [(rows, columns)]


def _matmul(step: _Step) -> Sequence[Shape]:
    first, second = step.shapes
    left, right = first if len(first) > 1 else (1, *first), second
    if len(second) == 1:
        right = (*second, 1)
    if left[-1] != right[-2]:
        raise ValueError(f"{step.shapes} do not fit")
    batch = np.broadcast_shapes(left[:-2], right[:-2])
    rows = left[-2:-1] if len(first) > 1 else ()
    columns = right[-1:] if len(second) > 1 else ()
    return [(*batch, *rows, *columns)]


def _reduce(step: _Step) -> Sequence[Shape]:
    axes = step.ints(1, "axes")
    if not axes and step.number("noop_with_empty_axes", 0):
        return [step.first]
    return [_without(step, axes or tuple(range(len(step.first))))]


def _arg(step: _Step) -> Sequence[Shape]:
    return [_without(step, (step.number("axis", 0),))]


def _without(step: _Step, axes: tuple[int, ...]) -> Shape:
    taken, keep = {step.axis(axis) for axis in axes}, step.number("keepdims", 1)
    sizes = enumerate(step.first)
    return tuple(1 if i in taken else size for i, size in sizes if keep or i not in taken)


def _concat(step: _Step) -> Sequence[Shape]:
    axis = step.axis(step.number("axis", 0))
    rest = {(*shape[:axis], *shape[axis + 1 :]) for shape in step.shapes}
    if len(rest) != 1:
        raise ValueError(f"{step.shapes} do not fit")
    total = sum(shape[axis] for shape in step.shapes)
    return [(*step.first[:axis], total, *step.first[axis + 1 :])]


def _expand(step: _Step) -> Sequence[Shape]:
    return [np.broadcast_shapes(step.first, _sizes(step.ints(1)))]


def _tile(step: _Step) -> Sequence[Shape]:
    repeats = _sizes(step.ints(1))
    return [tuple(size * times for size, times in zip(step.first, repeats, strict=True))]


def _sizes(values: tuple[int, ...] | None) -> Shape:
    if values is None or any(value < 0 for value in values):
        raise ValueError("its shape is no constant")
    return values


def _reshape(step: _Step) -> Sequence[Shape]:
    wanted, total = step.ints(1, "shape") or (), math.prod(step.first)
    if not step.number("allowzero", 0):
        wanted = tuple(step.first[i] if size == 0 else size for i, size in enumerate(wanted))
    if wanted.count(-1) == 1:
        known = -math.prod(wanted)
        wanted = tuple(total // known if size == -1 else size for size in wanted)
    if math.prod(_sizes(wanted)) != total:
        raise ValueError(f"{step.first} cannot get the shape {wanted}")
    return [wanted]


def _flatten(step: _Step) -> Sequence[Shape]:
    axis = step.number("axis", 1)
    axis = axis + len(step.first) if axis < 0 else axis
    return [(math.prod(step.first[:axis]), math.prod(step.first[axis:]))]


def _gather(step: _Step) -> Sequence[Shape]:
    axis = step.axis(step.number("axis", 0))
    return [(*step.first[:axis], *step.shapes[1], *step.first[axis + 1 :])]


def _slice(step: _Step) -> Sequence[Shape]:
    starts, ends = step.ints(1, "starts"), step.ints(2, "ends")
    if starts is None or ends is None:
        raise ValueError("its shape is no constant")
    axes = step.ints(3, "axes") or tuple(range(len(starts)))
    steps = step.ints(4) or (1,) * len(starts)
    shape = list(step.first)
    for start, end, axis, by in zip(starts, ends, axes, steps, strict=True):
        place = step.axis(axis)
        shape[place] = len(range(step.first[place])[start:end:by])
    return [tuple(shape)]


def _split(step: _Step) -> Sequence[Shape]:
    axis, parts = step.axis(step.number("axis", 0)), len(step.node.outputs)
    whole = step.first[axis]
    sizes = step.ints(1, "split")
    if sizes is None:
        each = -(-whole // max(parts, 1))
        sizes = tuple(max(min(each, whole - i * each), 0) for i in range(parts))
    if sum(_sizes(sizes)) != whole:
        raise ValueError(f"{whole} is not split into {sizes}")
    return [(*step.first[:axis], size, *step.first[axis + 1 :]) for size in sizes]


def _squeeze(step: _Step) -> Sequence[Shape]:
    axes = step.ints(1, "axes")
    ones = tuple(i for i, size in enumerate(step.first) if size == 1)
    taken = {step.axis(axis) for axis in (ones if axes is None else axes)}
    return [tuple(size for i, size in enumerate(step.first) if i not in taken)]


def _unsqueeze(step: _Step) -> Sequence[Shape]:
    axes = step.ints(1, "axes") or ()
    added, rest = {step.axis(axis, more=len(axes)) for axis in axes}, iter(step.first)
    return [tuple(1 if i in added else next(rest) for i in range(len(step.first) + len(axes)))]


def _transpose(step: _Step) -> Sequence[Shape]:
    order = step.node.lists.get("perm") or tuple(reversed(range(len(step.first))))
    if sorted(order) != list(range(len(step.first))):
        raise ValueError(f"{order} is no order of its axes")
    return [tuple(step.first[i] for i in order)]


RULES: Final[Mapping[str, _Rule]] = {
    # arithmetic and activations, element by element
    **dict.fromkeys(
        (
            *("Abs", "BatchNormalization", "Cast", "Clip", "Elu", "Erf", "Exp", "Gelu"),
            *("HardSigmoid", "HardSwish", "Identity", "IsNaN", "LayerNormalization", "LeakyRelu"),
            *("Log", "LogSoftmax", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Selu", "Sigmoid"),
            *("Sign", "Softmax", "Softplus", "Softsign", "Sqrt", "Tanh"),
        ),
        _same,
    ),
    **dict.fromkeys(
        (
            *("Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"),
            *("Max", "Mean", "Min", "Mul", "Or", "PRelu", "Pow", "Sub", "Sum", "Where"),
        ),
        _broadcast,
    ),
    "Gemm": _gemm,
    "MatMul": _matmul,
    **dict.fromkeys(("ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum"), _reduce),
    **dict.fromkeys(("ArgMax", "ArgMin"), _arg),
    # shapes
    "Concat": _concat,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
"""The shapes of the results, by operator."""
