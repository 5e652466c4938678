"""The frames that bring latencies to the loop, each one message of a SOCK_SEQPACKET socket.

Standard library only: the processes that send them must stay small.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from typing import Final

from stallward.actuator.errors import FramesError
from stallward.actuator.latency.counts import COUNTS, LatencyCounts

MAX_SPANS: Final = 4096
_VERSION: Final = 2
_DATA: Final = 0
_FAULT: Final = 1
_HEADER: Final = struct.Struct(f"<BBHH2xdd{len(COUNTS)}Q")
_SPAN_BYTES: Final = 24
_REASON_BYTES: Final = 1000
_TEXT_BYTES: Final = 1000
"""The most bytes of the first malformed input, and of the names together."""
MAX_MESSAGE_BYTES: Final = _HEADER.size + 2 * _TEXT_BYTES + MAX_SPANS * _SPAN_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The fields that all frames have."""

    sent_s: float
    """When the frame was sent, by CLOCK_MONOTONIC."""
    counts: LatencyCounts = field(default_factory=LatencyCounts)
    """What became of the input since the sender started."""


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
        kind, total_ms, body = _FAULT, 0.0, _cut(frame.reason, _REASON_BYTES)
    else:
        kind, total_ms, body = _DATA, frame.total_ms, frame.spans
    counts = frame.counts
    first = _cut(counts.first_malformed, _TEXT_BYTES)
    names = _cut("\n".join(counts.names), _TEXT_BYTES)
    numbers = (getattr(counts, name) for name in COUNTS)
    header = _HEADER.pack(_VERSION, kind, len(first), len(names), frame.sent_s, total_ms, *numbers)
    return b"".join((header, first, names, body))


def unpack(message: bytes) -> Completed | Fault:
    """Return the frame of a message.

    Raises:
        FramesError: If the message is not a valid frame.
    """
    if len(message) < _HEADER.size:
        raise FramesError(f"A latency frame of {len(message)} bytes is too short.")
    version, kind, first_bytes, names_bytes, sent_s, total_ms, *numbers = _HEADER.unpack_from(
        message
    )
    if version != _VERSION or not math.isfinite(sent_s):
        raise FramesError(f"A latency frame of version {version} cannot be read.")
    names_at = _HEADER.size + first_bytes
    body_at = names_at + names_bytes
    if max(first_bytes, names_bytes) > _TEXT_BYTES or body_at > len(message):
        raise FramesError("The texts of a latency frame are damaged.")
    names = _text(message[names_at:body_at])
    body = message[body_at:]
    counts = LatencyCounts(
        **dict(zip(COUNTS, numbers, strict=True)),
        first_malformed=_text(message[_HEADER.size : names_at]),
        names=tuple(names.split("\n")) if names else (),
    )
    if kind == _FAULT:
        reason = _text(body) or "no reason was given"
        return Fault(sent_s=sent_s, counts=counts, reason=reason)
    if kind != _DATA or len(body) % _SPAN_BYTES or not math.isfinite(total_ms):
        raise FramesError("A latency frame is damaged.")
    return Completed(sent_s=sent_s, counts=counts, spans=body, total_ms=total_ms)


def _cut(text: str, most_bytes: int) -> bytes:
    return text.encode("utf-8", "replace")[:most_bytes]


def _text(content: bytes) -> str:
    return content.decode("utf-8", "ignore")  # a character may have been cut in two
