"""A codec is refused where its dataclass and its message do not fit."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import pytest

from stallward.proto.codec import Codec, EnumCodec
from stallward.proto.v1 import stallward_pb2 as pb


@dataclass(frozen=True)
class Ref:
    pid: int
    start_time_ticks: int


@dataclass(frozen=True)
class Renamed:
    number: int
    start_time_ticks: int


@dataclass(frozen=True)
class WrongType:
    pid: str


@dataclass(frozen=True)
class NeverAbsent:
    pid: int | None


@dataclass(frozen=True)
class NoTuple:
    cpus: int


@dataclass(frozen=True)
class NoMessage:
    thread: int


class Mode(Enum):
    OFF = 1


@dataclass(frozen=True)
class NoEnumCodec:
    mode: Mode


class Further(Enum):
    OFF = 1
    FURTHER = 2


@pytest.mark.parametrize(
    ("domain", "wire"),
    [
        (Renamed, pb.ProcessRef),
        (WrongType, pb.ProcessRef),
        (NeverAbsent, pb.ProcessRef),
        (NoTuple, pb.ThreadDesire),
        (NoMessage, pb.ThreadDesire),
        (NoEnumCodec, pb.SetModeRequest),
    ],
)
def test_a_field_that_fits_no_field_is_refused(domain: type, wire: type) -> None:
    with pytest.raises(TypeError, match=f"{domain.__name__}.*fits no field of .*{wire.__name__}"):
        Codec(domain, wire)


def test_a_field_may_have_another_name_in_the_message() -> None:
    codec = Codec(Renamed, pb.ProcessRef, fields={"number": "pid"})
    value = Renamed(number=5, start_time_ticks=9)
    assert codec.to_wire(value) == pb.ProcessRef(pid=5, start_time_ticks=9)
    assert codec.from_wire(codec.to_wire(value)) == value


def test_a_number_that_does_not_fit_is_refused_or_becomes_the_nearest() -> None:
    value = Ref(pid=1 << 40, start_time_ticks=9)
    with pytest.raises(ValueError, match=str(1 << 40)):
        Codec(Ref, pb.ProcessRef).to_wire(value)
    assert Codec(Ref, pb.ProcessRef, fit=True).to_wire(value).pid == (1 << 31) - 1


def test_a_member_that_the_wire_lacks_is_refused() -> None:
    with pytest.raises(KeyError, match="MODE_FURTHER"):
        EnumCodec(Further, pb.Mode, unknown=lambda _: Further.OFF)
