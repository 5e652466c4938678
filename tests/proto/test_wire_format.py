"""The wire format keeps its promises: names by buf's rules, and nothing that breaks a client."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from stallward.proto.v1 import stallward_pb2 as pb

ACCEPTED = Path(__file__).with_name("accepted.binpb")
NOW = FileDescriptorProto.FromString(pb.DESCRIPTOR.serialized_pb)
UPDATE = (
    "If this is meant, and no version with it was published, write the descriptor anew: "
    "Path('tests/proto/accepted.binpb').write_bytes(pb.DESCRIPTOR.serialized_pb)."
)


def messages(file: FileDescriptorProto) -> Iterator[tuple[str, DescriptorProto]]:
    """Every message with its whole name, the nested ones too."""
    left = [(message.name, message) for message in file.message_type]
    while left:
        name, message = left.pop()
        yield name, message
        left += [(f"{name}.{inner.name}", inner) for inner in message.nested_type]


def enums(file: FileDescriptorProto) -> Iterator[tuple[str, EnumDescriptorProto]]:
    yield from ((enum.name, enum) for enum in file.enum_type)
    for name, message in messages(file):
        yield from ((f"{name}.{enum.name}", enum) for enum in message.enum_type)


def broken(before: FileDescriptorProto, now: FileDescriptorProto) -> list[str]:
    """What clients of ``before`` cannot do with ``now`` any more."""
    found = []
    present = dict(messages(now))
    for name, message in messages(before):
        if name not in present:
            found.append(f"message {name} is gone")
            continue
        found += _broken_fields(name, message, present[name])
    values = {name: {v.number: v.name for v in enum.value} for name, enum in enums(now)}
    for name, enum in enums(before):
        found += [
            f"{value.name} of {name} is gone or renamed"
            for value in enum.value
            if values.get(name, {}).get(value.number) != value.name
        ]
    calls = {(s.name, m.name): m for s in now.service for m in s.method}
    found += [
        f"call {method.name} is gone or changed"
        for service in before.service
        for method in service.method
        if calls.get((service.name, method.name)) != method
    ]
    return found


def _broken_fields(name: str, before: DescriptorProto, now: DescriptorProto) -> list[str]:
    def kept(message: DescriptorProto, field: FieldDescriptorProto) -> tuple[object, ...]:
        of = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else ""
        return field.name, field.type, field.type_name, field.label, field.proto3_optional, of

    present = {field.number: field for field in now.field}
    reserved = [range(span.start, span.end) for span in now.reserved_range]
    gone = [number for span in before.reserved_range for number in range(span.start, span.end)]
    found = [
        f"{name} has number {number} again, or does not reserve it any more"
        for number in gone
        if number in present or not any(number in span for span in reserved)
    ]
    for field in before.field:
        if field.number in present:
            if kept(now, present[field.number]) != kept(before, field):
                found.append(f"{name}.{field.name} has changed")
        elif not any(field.number in span for span in reserved):
            found.append(f"{name}.{field.name} is gone, and its number is not reserved")
    return found


def test_nothing_that_was_accepted_is_broken() -> None:
    assert broken(FileDescriptorProto.FromString(ACCEPTED.read_bytes()), NOW) == [], UPDATE


def _of(file: FileDescriptorProto, name: str) -> DescriptorProto:
    return dict(messages(file))[name]


def _reserving(file: FileDescriptorProto) -> DescriptorProto:
    return next(message for _, message in messages(file) if message.reserved_range)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda f: f.message_type.remove(f.message_type[0]), r"message \w+ is gone"),
        (lambda f: f.message_type[0].field.remove(f.message_type[0].field[0]), "not reserved"),
        (lambda f: setattr(f.message_type[0].field[0], "type", 9), "has changed"),
        (lambda f: setattr(f.message_type[0].field[0], "name", "other"), "has changed"),
        (lambda f: f.enum_type[0].value.remove(f.enum_type[0].value[1]), "gone or renamed"),
        (lambda f: f.service[0].method.remove(f.service[0].method[0]), "gone or changed"),
        (lambda f: _of(f, "Command").field[1].ClearField("oneof_index"), "has changed"),
        (lambda f: _reserving(f).ClearField("reserved_range"), "does not reserve it any more"),
    ],
)
def test_a_breaking_change_is_found(change: object, complaint: str) -> None:
    changed = FileDescriptorProto()
    changed.CopyFrom(NOW)
    change(changed)  # type: ignore[operator]
    assert re.search(complaint, "\n".join(broken(NOW, changed)))


def test_what_is_added_or_reserved_breaks_nothing() -> None:
    changed = FileDescriptorProto()
    changed.CopyFrom(NOW)
    message = changed.message_type[0]
    gone = message.field[0].number
    message.field.remove(message.field[0])
    message.reserved_range.add(start=gone, end=gone + 1)
    message.field.add(name="more", number=1000, type=9, label=1)
    assert broken(NOW, changed) == []


def test_names_are_as_buf_wants_them() -> None:
    """The rules of ``buf lint`` (STANDARD) that a descriptor can show."""
    assert re.fullmatch(r"stallward\.proto\.v\d+", NOW.package)
    for name, enum in enums(NOW):
        prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", name.rpartition(".")[2]).upper()
        assert enum.value[0].name == f"{prefix}_UNSPECIFIED"
        assert enum.value[0].number == 0
        assert all(value.name.startswith(f"{prefix}_") for value in enum.value), name
    for name, message in messages(NOW):
        assert re.fullmatch(r"[A-Z][A-Za-z0-9]*", message.name), name
        assert all(re.fullmatch(r"[a-z][a-z0-9_]*", field.name) for field in message.field), name
    used: list[str] = []
    for service in NOW.service:
        assert service.name.endswith("Service")
        for method in service.method:
            names = [t.rpartition(".")[2] for t in (method.input_type, method.output_type)]
            assert names == [f"{method.name}Request", f"{method.name}Response"]
            used += names
    assert len(used) == len(set(used))
