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
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)
from google.protobuf.message import DecodeError

from stallward.agent.errors import PolicyError

# ---------- Reads the network of a policy: its nodes, its constants, and the shape of its input
# The messages are those of onnx.proto (https://github.com/onnx/onnx/blob/main/onnx/onnx.proto),
# with the fields that shapes depend on. The package ``onnx`` is too large for a node; protobuf reads
# the file as ONNX Runtime does, also where a field is there twice.

Shape = tuple[int, ...]

_INTEGERS: Final = {6: "<i4", 7: "<i8"}
_SIZES: Final = {1: 4, 2: 1, 3: 1, 4: 2, 5: 2, 6: 4, 7: 8, 9: 1, 10: 2, 11: 8, 12: 4, 13: 8, 16: 2}
"""Bytes of an element, by its type (TensorProto.DataType)."""
LARGEST_BYTES: Final = 8
"""The largest element that a policy may compute with."""
_MOST_NODES: Final = 10_000
_MOST_VALUES: Final = 256
"""Constants with more elements give no shape."""

# Each field: its number and kind; "*" stands for a repeated one.
_MESSAGES: Final[dict[str, dict[str, tuple[int, str]]]] = {
    "Dim": {"value": (1, "int")},
    "TensorShape": {"dim": (1, "Dim*")},
    "TensorType": {"shape": (2, "TensorShape")},
    "Type": {"tensor": (1, "TensorType")},
    "ValueInfo": {"name": (1, "bytes"), "type": (2, "Type")},
    "Tensor": {
        "dims": (1, "int*"),
        "data_type": (2, "int"),
        "int32_data": (5, "int*"),
        "int64_data": (7, "int*"),
        "name": (8, "bytes"),
        "raw_data": (9, "bytes"),
    },
    "Attribute": {
        "name": (1, "bytes"),
        "i": (3, "int"),
        "t": (5, "Tensor"),
        "floats": (7, "float*"),
        "ints": (8, "int*"),
    },
    "Node": {
        "input": (1, "bytes*"),
        "output": (2, "bytes*"),
        "op_type": (4, "bytes"),
        "attribute": (5, "Attribute*"),
    },
    "Graph": {
        "node": (1, "Node*"),
        "initializer": (5, "Tensor*"),
        "input": (11, "ValueInfo*"),
        "sparse_initializer": (15, "Tensor*"),
    },
    "Model": {"graph": (7, "Graph")},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A tensor whose content is in the file."""

    shape: Shape
    size_bytes: int
    values: tuple[int, ...] | None
    """Its elements, where they are few integers, which may name a shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One step of the network."""

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    numbers: Mapping[str, int]
    """Attributes that are one integer."""
    lists: Mapping[str, tuple[int, ...]]
    """Attributes that are several."""
    constant: Constant | None
    """What a ``Constant`` gives; ``None`` for any other operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyGraph:
    """The network of a policy, in the order of its steps."""

    inputs: Mapping[str, Shape]
    """Sizes that the file leaves open are 0."""
    constants: Mapping[str, Constant]
    nodes: tuple[Node, ...]


def read_graph(model: bytes) -> PolicyGraph:
    """Read the network from the message of a model.

    Raises:
        ValueError: If it is no such message, or has constants that take more than they hold.
    """
    try:
        graph = _model_class().FromString(model).graph
    except DecodeError as error:
        raise ValueError("it is no message of a model") from error
    if len(graph.node) > _MOST_NODES:
        raise ValueError(f"it has {len(graph.node)} operators, and at most {_MOST_NODES} are read")
    if graph.sparse_initializer:
        raise ValueError("it has sparse weights")
    constants = {_text(tensor.name): _constant(tensor) for tensor in graph.initializer}
    return PolicyGraph(
        inputs={
            _text(value.name): tuple(dim.value for dim in value.type.tensor.shape.dim)
            for value in graph.input
            if _text(value.name) not in constants
        },
        constants=constants,
        nodes=tuple(map(_node, graph.node)),
    )


def _node(message: Any) -> Node:
    operator = _text(message.op_type)
    attributes = {_text(attribute.name): attribute for attribute in message.attribute}
    if len(attributes) != len(message.attribute):
        raise ValueError(f"{operator} has two attributes of one name"[:200])
    return Node(
        operator=operator,
        inputs=tuple(map(_text, message.input)),
        outputs=tuple(map(_text, message.output)),
        numbers={name: one.i for name, one in attributes.items() if one.HasField("i")},
        lists={name: tuple(one.ints) for name, one in attributes.items()},
        constant=_given(attributes) if operator == "Constant" else None,
    )


def _given(attributes: Mapping[str, Any]) -> Constant:
    """The tensor of a ``Constant``, which one of several attributes gives; the runtime takes any."""
    if len(attributes) != 1:
        raise ValueError(f"it has a constant with {len(attributes)} attributes")
    if "value" in attributes:
        return _constant(attributes["value"].t)
    if "value_ints" in attributes:
        ints = tuple(attributes["value_ints"].ints)
        return Constant(shape=(len(ints),), size_bytes=8 * len(ints), values=ints)
    if "value_floats" in attributes:
        count = len(attributes["value_floats"].floats)
        return Constant(shape=(count,), size_bytes=4 * count, values=None)
    if "value_int" in attributes:
        return Constant(shape=(), size_bytes=8, values=(attributes["value_int"].i,))
    if "value_float" in attributes:
        return Constant(shape=(), size_bytes=4, values=None)
    raise ValueError("it has a constant of a kind that no policy needs")


def _constant(tensor: Any) -> Constant:
    shape = tuple(tensor.dims)
    size = _SIZES.get(tensor.data_type)
    if size is None or any(dim < 0 for dim in shape):
        raise ValueError(f"it has a tensor of type {tensor.data_type} and shape {shape}"[:200])
    count = math.prod(shape)
    values = None
    integers = _INTEGERS.get(tensor.data_type)
    if integers is not None and count <= _MOST_VALUES:
        given: Any = tensor.int64_data or tensor.int32_data
        if not given and len(tensor.raw_data) == count * size:
            given = np.frombuffer(tensor.raw_data, integers).tolist()
        values = tuple(given) if len(given) == count else None
    return Constant(shape=shape, size_bytes=count * size, values=values)


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")


@cache
def _model_class() -> Any:
    """The class that reads the message of a model."""
    file = descriptor_pb2.FileDescriptorProto(name="policy.proto", package="policy")
    kinds: dict[str, Any] = {"int": 3, "float": 2, "bytes": 12}  # FieldDescriptorProto.Type
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            of, repeated = kind.removesuffix("*"), kind.endswith("*")
            added = message.field.add(name=field, number=number, label=3 if repeated else 1)
            added.type = kinds.get(of, 11)
            if of not in kinds:
                added.type_name = f".policy.{of}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("policy.Model"))


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
