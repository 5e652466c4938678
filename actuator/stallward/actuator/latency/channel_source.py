"""The source that reads the frames in which another process of the daemon sends latencies."""

from __future__ import annotations

import socket
import time
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.actuator.errors import FramesError, SensorError
from stallward.actuator.latency.config import LatencyConfig, PrometheusLatency, describe
from stallward.actuator.latency.counts import LatencyCounts
from stallward.actuator.latency.feed import (
    MAX_LATENCY_MS,
    MAX_MESSAGE_BYTES,
    Completed,
    Fault,
    unpack,
)
from stallward.actuator.latency.window import WINDOW_S, LatencyWindow
from stallward.agent.sample import LatencySample

MAX_REQUESTS: Final = 2.0**48
"""The most requests in one span; the sum over all spans then still fits 64 bits."""
_TICK_FRAMES: Final = 256
"""The most frames that one tick reads; ten a second are sent."""
_SILENT_S: Final = 1.5
"""How long a feed may be silent: three of its heartbeats."""


class ChannelSource:
    """Reads the frames that another process of the daemon sends (see ``feed``).

    Args:
        connection: A SOCK_SEQPACKET socket.
        name: The source's name in messages, e.g. ``http://127.0.0.1:9100/metrics``.
        silent_s: Without a frame for this long the source counts as gone.
        window_s: The time over which latencies are summed up.
    """

    def __init__(
        self, connection: socket.socket, *, name: str, silent_s: float, window_s: float
    ) -> None:
        self._connection = connection
        self._name = name
        self._silent_s = silent_s
        self._window = LatencyWindow(window_s)
        self._heard_s: float | None = None
        self._told = ""
        self.fault = ""
        self.counts = LatencyCounts()

    def read(self, now_s: float | None = None) -> LatencySample:
        """Return the latencies of the last second; see ``LatencySource``."""
        now_s = time.monotonic() if now_s is None else now_s
        brought = False
        for _ in range(_TICK_FRAMES):
            try:
                message = self._connection.recv(MAX_MESSAGE_BYTES, socket.MSG_DONTWAIT)
            except OSError:
                break
            if not message:
                break
            brought |= self._take(message, now_s)
        if self._heard_s is None:
            self.fault = "has not reported yet"
        elif now_s - self._heard_s > self._silent_s:
            self.fault = f"has been silent for {now_s - self._heard_s:.0f} s"
        elif brought and self._window.has_requests(now_s):
            self.fault = ""  # also if a client came and went between two ticks
        else:
            self.fault = self._told
        if self.fault:
            raise SensorError(self._name, self.fault)
        return self._window.sample(now_s)  # only now: requests of a failed read stay new

    def _take(self, message: bytes, now_s: float) -> bool:
        """Add a frame; returns whether it brought requests."""
        try:
            frame = unpack(message)
            spans = spans_of(frame)
        except FramesError:
            return False  # a source that sends only damaged frames will count as silent
        # A frame that waited in the socket while there was no loop keeps the time of sending.
        sent_s = min(frame.sent_s, now_s)
        self._heard_s = sent_s
        self.counts = frame.counts
        if isinstance(frame, Fault):
            self._told = frame.reason
            return False
        self._told = ""
        self._window.add_spans(sent_s, spans, frame.total_ms)
        return len(spans) > 0

    def close(self) -> None:
        """Close the socket."""
        self._connection.close()


def spans_of(frame: Completed | Fault) -> NDArray[np.float64]:
    """Return the spans of a frame, shape (n, 3).

    Raises:
        FramesError: If they are not valid latencies.
    """
    if isinstance(frame, Fault):
        return np.empty((0, 3))
    spans = np.frombuffer(frame.spans).reshape(-1, 3)
    low, high, count = spans.T
    ordered = (low >= 0) & (low <= high) & (high <= MAX_LATENCY_MS)
    usable = (ordered & (count > 0) & (count <= MAX_REQUESTS)).all()  # false for NaN
    if not (usable and 0.0 <= frame.total_ms <= MAX_LATENCY_MS * float(count.sum())):
        raise FramesError("The spans of a latency frame are damaged.")
    return spans


def open_channel(config: LatencyConfig, latencies: socket.socket) -> ChannelSource:
    """Open the source that a configuration names.

    Args:
        config: The ``[latency]`` table.
        latencies: The socket on which another process sends its latencies.
    """
    return ChannelSource(
        latencies,
        name=describe(config),
        silent_s=config.silent_s if isinstance(config, PrometheusLatency) else _SILENT_S,
        window_s=config.window_s if isinstance(config, PrometheusLatency) else WINDOW_S,
    )
