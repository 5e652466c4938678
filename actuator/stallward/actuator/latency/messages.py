"""The frames that bring latencies to the loop, each one message of a SOCK_SEQPACKET socket.

Standard library only: the processes that send them must stay small.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Final

from stallward.actuator.errors import FramesError

MAX_SPANS: Final = 4096
_VERSION: Final = 1
_DATA: Final = 0
_FAULT: Final = 1
_HEADER: Final = struct.Struct("<BB6xdQQQd")
_SPAN_BYTES: Final = 24
_REASON_BYTES: Final = 1000
MAX_MESSAGE_BYTES: Final = _HEADER.size + MAX_SPANS * _SPAN_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The fields that all frames have."""

    sent_s: float
    """When the frame was sent, by CLOCK_MONOTONIC."""
    malformed: int = 0
    """Lines, datagrams or series that could not be understood, since the sender started."""
    failed: int = 0
    """Requests that were not answered."""
    lost: int = 0
    """Requests or datagrams that were dropped because they were not read in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed(Frame):
    """The requests that completed since the last frame; a frame without any is a heartbeat."""

    spans: bytes = b""
    """Triples of float64: lowest latency and highest latency (ms), and number of requests."""
    total_ms: float = 0.0
    """The sum of the latencies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault(Frame):
    """The report that there are no latencies now, and why."""

    reason: str


def pack(frame: Completed | Fault) -> bytes:
    """Make the message of a frame, at most :data:`MAX_MESSAGE_BYTES` long."""
    if isinstance(frame, Fault):
        kind, total_ms, body = _FAULT, 0.0, frame.reason.encode("utf-8", "replace")[:_REASON_BYTES]
    else:
        kind, total_ms, body = _DATA, frame.total_ms, frame.spans
    counts = (frame.malformed, frame.failed, frame.lost)
    return _HEADER.pack(_VERSION, kind, frame.sent_s, *counts, total_ms) + body


def unpack(message: bytes) -> Completed | Fault:
    """Return the frame of a message.

    Raises:
        FramesError: If the message is not a valid frame.
    """
    if len(message) < _HEADER.size:
        raise FramesError(f"A latency frame of {len(message)} bytes is too short.")
    version, kind, sent_s, *counts, total_ms = _HEADER.unpack_from(message)
    malformed, failed, lost = counts
    body = message[_HEADER.size :]
    if version != _VERSION or not math.isfinite(sent_s):
        raise FramesError(f"A latency frame of version {version} cannot be read.")
    if kind == _FAULT:
        reason = body.decode("utf-8", "replace") or "no reason was given"
        return Fault(sent_s=sent_s, malformed=malformed, failed=failed, lost=lost, reason=reason)
    if kind != _DATA or len(body) % _SPAN_BYTES or not math.isfinite(total_ms):
        raise FramesError("A latency frame is damaged.")
    return Completed(
        sent_s=sent_s,
        malformed=malformed,
        failed=failed,
        lost=lost,
        spans=body,
        total_ms=total_ms,
    )
