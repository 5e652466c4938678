"""Reads the file of a policy, before anything interprets what is in it.

A policy moves the levers of a node, and whoever can write its file decides what it does. So a
process of root takes a file only if it is guarded as well as the program itself. A policy is one
file, which its digest covers: one that keeps its weights in another file is refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from stallward.agent.believed_file import read_believed
from stallward.agent.errors import PolicyError, UnbelievedFileError
from stallward.agent.schema.file_kinds import HEAD_BYTES, other_kind

MAX_POLICY_BYTES: Final = 64 << 20
"""The largest policy. The shipped one has a quarter of a megabyte."""
_MAX_PARTS: Final = 1_000_000
"""The most fields of a model; a real one has some hundreds."""
_MAX_DEPTH: Final = 32
_EXPORT: Final = "Export it with `stallward export`."
_ORT_FORMAT: Final = b"ORTM"
"""Bytes 4 to 8 of a model in the format of ONNX Runtime itself."""

# The messages of onnx.proto that may hold a tensor: the number of the field and its message.
_PARTS: Final[dict[str, dict[int, str]]] = {
    "ModelProto": {7: "GraphProto", 20: "TrainingInfoProto", 25: "FunctionProto"},
    "GraphProto": {1: "NodeProto", 5: "TensorProto", 15: "SparseTensorProto"},
    "NodeProto": {5: "AttributeProto"},
    "AttributeProto": {
        5: "TensorProto",
        6: "GraphProto",
        10: "TensorProto",
        11: "GraphProto",
        22: "SparseTensorProto",
        23: "SparseTensorProto",
    },
    "SparseTensorProto": {1: "TensorProto", 2: "TensorProto"},
    "FunctionProto": {7: "NodeProto", 11: "AttributeProto"},
    "TrainingInfoProto": {1: "GraphProto", 2: "GraphProto"},
    "TensorProto": {},
}
_LOCATION: Final = 14
"""The field of a tensor that says whether its data is in another file."""
_TOLD: Final = defaultdict(
    frozenset[int],
    ModelProto=frozenset({25}),
    NodeProto=frozenset({4, 7}),
    TensorProto=frozenset({13, _LOCATION}),
)
"""The fields that :func:`messages` yields: functions; operators and their domains; places."""
_LARGEST_TAG: Final = (1 << 32) - 1
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def read_policy(path: Path) -> bytes:
    """The content of a policy's file.

    Raises:
        PolicyError: If it cannot be read, others may have written it, it is too large, or it is
            something else than a whole ONNX model.
    """
    data = _read(path)
    check_policy(data, path)
    return data


def check_policy(data: bytes, path: Path) -> None:
    """Check that a content is a whole ONNX model; whether it may run is checked when it is loaded.

    Args:
        data: The content.
        path: Its file, for messages.

    Raises:
        PolicyError: If it is something else.
    """
    other = other_kind(data[:HEAD_BYTES])
    if other is not None:
        raise PolicyError(
            f"The policy {path} is {other.what}.", next_step=other.next_step or _EXPORT
        )
    if not data:
        raise PolicyError(f"The policy {path} is empty.", next_step="Copy or export it again.")
    if data[4:8] == _ORT_FORMAT:
        raise PolicyError(
            f"The policy {path} is in the format of ONNX Runtime, not ONNX.", next_step=_EXPORT
        )
    try:
        outside = external_files(data)
    except ValueError as error:
        raise PolicyError(f"{path} is not an ONNX model ({error}).", next_step=_EXPORT) from error
    if outside:
        names = ", ".join(map(repr, outside[:3]))
        whole = f"import onnx; onnx.save(onnx.load({str(path)!r}), {str(path)!r})"
        raise PolicyError(
            f"The weights of {path} are in other files ({names:.200}), which its digest does not "
            "cover.",
            next_step=f'Put them into it: python3 -c "{whole}"',
        )


def _read(path: Path) -> bytes:
    try:
        return read_believed(path, MAX_POLICY_BYTES)
    except UnbelievedFileError as error:
        raise PolicyError(f"The policy {error.cause}", next_step=error.next_step) from error
    except OSError as error:
        raise PolicyError(
            f"The policy {path} cannot be read ({error.strerror}).",
            next_step="`stallward arms` lists the shipped ones.",
        ) from error


def external_files(model: bytes) -> tuple[str, ...]:
    """The names of the files, besides its own, in which an ONNX model keeps tensors.

    Raises:
        ValueError: If this is not the message of a model.
    """
    names: dict[str, None] = {}
    for kind, fields in messages(model):
        if kind == "TensorProto":
            for number, value in fields:
                outside = isinstance(value, int) and value & _LARGEST_TAG == 1
                if number == 13 or (number == _LOCATION and outside):
                    names.setdefault(_location(value))
    named = tuple(name for name in names if name)
    return named or tuple(names)


Fields = tuple[tuple[int, memoryview | int], ...]
"""The numbers and values of the fields of a message."""


def messages(model: bytes) -> Iterator[tuple[str, Fields]]:
    """Yield the kind, and the fields of :data:`_TOLD`, of every message that may hold a tensor.

    Only the structure is read, so that this needs neither the package ``onnx`` nor much time.

    Raises:
        ValueError: If this is not the message of a model.
    """
    parts = 0
    left: list[tuple[str, memoryview, int]] = [("ModelProto", memoryview(model), 0)]
    while left:
        kind, message, depth = left.pop()
        if depth > _MAX_DEPTH:
            raise ValueError("its graphs are nested too deeply")
        known = _PARTS[kind]
        found: list[tuple[int, memoryview | int]] = []
        for number, value in _fields(message):
            parts += 1
            if parts > _MAX_PARTS:
                raise ValueError("it has too many parts")
            if number in _TOLD[kind]:
                found.append((number, value))
            if number in known and isinstance(value, memoryview):
                left.append((known[number], value, depth + 1))
        yield kind, tuple(found)


def _location(value: memoryview | int) -> str:
    """The file in one entry of a tensor's ``external_data``; empty if another entry has it."""
    if isinstance(value, int):
        return ""
    entry = {number: bytes(part) for number, part in _fields(value) if not isinstance(part, int)}
    return entry.get(2, b"").decode("utf-8", "replace") if entry.get(1) == b"location" else ""


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """Yield the number and the value of each field of a protobuf message."""
    at, end = 0, len(message)
    while at < end:
        tag, at = _varint(message, at)
        if tag > _LARGEST_TAG:  # other readers cut it off, and would see another field
            raise ValueError("it has a field with an impossible number")
        number, kind = tag >> 3, tag & 7
        value: memoryview | int = 0
        if kind == _VARINT:
            value, at = _varint(message, at)
        elif kind == _BYTES:
            length, at = _varint(message, at)
            value, at = message[at : at + length], at + length
        elif kind in {_FIXED32, _FIXED64}:
            at += 4 if kind == _FIXED32 else 8
        else:
            raise ValueError("it is no protobuf message")
        if at > end or not number:
            raise ValueError("it is cut short or damaged")
        yield number, value


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """A number, and where the next one begins."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            break
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("it is cut short or damaged")
