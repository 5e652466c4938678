"""The sender of latencies: gathers them and sends them to the loop without waiting for it."""

from __future__ import annotations

import math
import socket
import struct
import time
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from stallward.actuator.errors import FramesError
from stallward.actuator.latency.counts import COUNTS, LatencyCounts, Tally

# ---------- The frames that bring latencies to the loop, each one message of a SOCK_SEQPACKET socket
# Standard library only: the processes that send them must stay small.

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


FLUSH_S: Final = 0.1
"""How often the gathered latencies are sent: in time for the loop's next tick."""
HEARTBEAT_S: Final = 0.5
"""How often a message is sent although no request completed."""
EXACT: Final = 512
"""At most this many latencies are sent exactly; further ones are sent as spans 2 % wide."""
MAX_LATENCY_MS: Final = 1e9
_LOWEST_MS: Final = 1e-3
_LOG_WIDTH: Final = math.log(1.02)

Span = tuple[float, float, float]
"""The lowest and highest latency in ms, and the number of requests between them."""


class LatencyFeed(Tally):
    """Gathers latencies and sends them as frames, with the counts of what came.

    Memory is bounded: after the first :data:`EXACT` latencies each further one is only counted in
    the span of its size, and there are some thousand spans.

    Args:
        connection: A SOCK_SEQPACKET socket; the loop reads its other end.
    """

    def __init__(self, connection: socket.socket) -> None:
        super().__init__()
        self._connection = connection
        connection.setblocking(False)
        self._points: list[tuple[float, float]] = []
        self._folded: dict[int, list[float]] = {}
        self._total_ms = 0.0
        self._sent_s = -math.inf

    def add(self, latency_ms: float, weight: float = 1.0) -> bool:
        """Add ``weight`` requests of one latency; False if it is not a valid latency."""
        if not (0.0 <= latency_ms < MAX_LATENCY_MS and 0.0 < weight < math.inf):
            return False
        self.accepted += weight
        self._total_ms += latency_ms * weight
        if len(self._points) < EXACT:
            self._points.append((latency_ms, weight))
            return True
        key = int(math.log(max(latency_ms, _LOWEST_MS)) / _LOG_WIDTH)
        span = self._folded.setdefault(key, [latency_ms, latency_ms, 0.0])
        span[0], span[1] = min(span[0], latency_ms), max(span[1], latency_ms)
        span[2] += weight
        return True

    def flush(self) -> None:
        """Send the gathered latencies; if there are none, a heartbeat when it is due."""
        now_s = time.monotonic()
        if not self._points and now_s - self._sent_s < HEARTBEAT_S:
            return
        spans = [(value, value, weight) for value, weight in self._points]
        spans += [(low, high, count) for low, high, count in self._folded.values()]
        self._send_flat(_flattened(spans), self._total_ms)
        self._points.clear()
        self._folded.clear()
        self._total_ms = 0.0

    def send_spans(self, spans: Iterable[Span], total_ms: float) -> None:
        """Send requests whose latencies are known only by bounds; there may be none."""
        flat = _flattened(spans)
        self.accepted += sum(flat[2::3])
        self._send_flat(flat, total_ms)

    def _send_flat(self, flat: array[float], total_ms: float) -> None:
        frame = Completed(
            sent_s=time.monotonic(), spans=flat.tobytes(), total_ms=total_ms, counts=self.counts()
        )
        if not self._send(pack(frame)):
            requests = sum(flat[2::3])
            self.accepted -= requests
            self.lost += round(requests)

    def fault(self, reason: str) -> None:
        """Report why there are no latencies; the gathered ones are dropped."""
        self._points.clear()
        self._folded.clear()
        self._total_ms = 0.0
        self._send(pack(Fault(sent_s=time.monotonic(), reason=reason, counts=self.counts())))
        self._sent_s = -math.inf  # the end of the fault is reported at once

    def _send(self, message: bytes) -> bool:
        self._sent_s = time.monotonic()
        try:
            self._connection.send(message)
        except OSError:  # the socket is full, or there is no loop: the sender need not care
            return False
        return True


def _flattened(spans: Iterable[Span]) -> array[float]:
    """Return the numbers of at most as many spans as fit a frame."""
    flat = array("d")
    for span in spans:
        flat.extend(span)
    del flat[3 * MAX_SPANS :]
    return flat
