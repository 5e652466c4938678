"""The messages that bring the work of slots to the loop, each one of a SOCK_SEQPACKET socket."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from stallward.actuator.errors import FramesError
from stallward.agent.sample import WorkFault

_VERSION: Final = 1
_HEADER: Final = struct.Struct("<BBHdddd")
_DETAIL_BYTES: Final = 500
MAX_MESSAGE_BYTES: Final = _HEADER.size + _DETAIL_BYTES
_FAULTS: Final = tuple(WorkFault)
_NEVER_S: Final = -1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkReport:
    """What is known of one slot's work."""

    slot: int
    sent_s: float
    """When it was sent, CLOCK_MONOTONIC."""
    units: float
    known_s: float
    read_s: float | None
    fault: WorkFault
    detail: str = ""
    """The fault in words, after the name of the source; empty if the fault says all."""


def pack(report: WorkReport) -> bytes:
    """Make the message of a report, at most :data:`MAX_MESSAGE_BYTES` long."""
    read_s = _NEVER_S if report.read_s is None else report.read_s
    header = _HEADER.pack(
        _VERSION,
        _FAULTS.index(report.fault),
        report.slot,
        report.sent_s,
        report.units,
        report.known_s,
        read_s,
    )
    return header + report.detail.encode("utf-8", "replace")[:_DETAIL_BYTES]


def unpack(message: bytes) -> WorkReport:
    """Read a message.

    Raises:
        FramesError: If it is not one of this version.
    """
    if len(message) < _HEADER.size or message[0] != _VERSION or message[1] >= len(_FAULTS):
        raise FramesError("A message about work is damaged.")
    _, fault, slot, sent_s, units, known_s, read_s = _HEADER.unpack_from(message)
    return WorkReport(
        slot=slot,
        sent_s=sent_s,
        units=units,
        known_s=known_s,
        read_s=None if read_s == _NEVER_S else read_s,
        fault=_FAULTS[fault],
        detail=message[_HEADER.size :].decode("utf-8", "replace"),
    )
