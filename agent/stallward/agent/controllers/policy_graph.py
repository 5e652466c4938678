"""Reads the network of a policy: its nodes, its constants, and the shape of its input.

The messages are those of onnx.proto (https://github.com/onnx/onnx/blob/main/onnx/onnx.proto),
with the fields that shapes depend on. The package ``onnx`` is too large for a node; protobuf reads
the file as ONNX Runtime does, also where a field is there twice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np

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
    from google.protobuf.message import DecodeError  # noqa: PLC0415 - as in _model_class

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
    attributes = {_text(attribute.name): attribute for attribute in message.attribute}
    return Node(
        operator=_text(message.op_type),
        inputs=tuple(map(_text, message.input)),
        outputs=tuple(map(_text, message.output)),
        numbers={name: one.i for name, one in attributes.items() if one.HasField("i")},
        lists={name: tuple(one.ints) for name, one in attributes.items()},
        constant=_given(attributes) if _text(message.op_type) == "Constant" else None,
    )


def _given(attributes: Mapping[str, Any]) -> Constant:
    """The tensor of a ``Constant``, which one of several attributes gives."""
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
    # Only policies need it, and processes that restore settings are to stay light.
    from google.protobuf import (  # noqa: PLC0415
        descriptor_pb2,
        descriptor_pool,
        message_factory,
    )

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
