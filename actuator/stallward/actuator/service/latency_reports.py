"""Collects the latencies that clients report to the service, and sends them to the loop."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from stallward.actuator.latency.feed import FLUSH_S, MAX_LATENCY_MS, LatencyFeed
from stallward.proto.v1 import stallward_pb2 as pb

MAX_STREAMS: Final = 16
MAX_REQUESTS: Final = 10_000
"""The most requests in one message; converting them occupies the service for about 10 ms."""
LATE_MS: Final = 1000.0
"""A request that ended longer ago is late: it says nothing about the present."""
_TURN_S: Final = 2e-3
"""How long a stream may occupy the service before the others, and all other calls, have a turn."""
_OTHERS: Final = 3.0
"""How many times as long they have then."""
_NO_STREAM: Final = "nobody reports: no client has a Report stream open"
_REPEAT_FLUSHES: Final = 5
"""The number of flushes after which the loop is told again that no client reports."""


class TooManyStreamsError(Exception):
    """Raised when there are too many streams to open another."""


@dataclass(slots=True)
class ReportStream:
    """One client's stream, which counts what became of the requests in it."""

    feed: LatencyFeed
    accepted: int = 0
    failed: int = 0
    malformed: int = 0
    late: int = 0
    busy_s: float = 0.0
    """How long it has occupied the service since it last waited."""

    def take(self, request: pb.ReportRequest) -> None:
        """Receive one message."""
        begin_s = time.monotonic()
        self._take(request)
        self.busy_s += time.monotonic() - begin_s

    def _take(self, request: pb.ReportRequest) -> None:
        for one in request.requests:
            usable = 0.0 <= one.latency_ms < MAX_LATENCY_MS and math.isfinite(one.ended_ago_ms)
            if one.failed:
                self.failed += 1
                self.feed.failed += 1
            elif not usable:
                self.malformed += 1
                numbers = f"latency_ms {one.latency_ms:g}, ended_ago_ms {one.ended_ago_ms:g}"
                self.feed.note_malformed(numbers.encode(), show=str)
            elif one.ended_ago_ms > LATE_MS:
                self.late += 1
                self.feed.lost += 1
            else:
                self.feed.add(one.latency_ms)
                self.accepted += 1

    def response(self) -> pb.ReportResponse:
        """The response to the client at the end of the stream."""
        return pb.ReportResponse(
            accepted=self.accepted, failed=self.failed, malformed=self.malformed, late=self.late
        )


@dataclass(slots=True)
class OpenStreams:
    """How many streams are open for all applications together."""

    count: int = 0


class LatencyReports:
    """Receives the reports about one application. It must be used in the event loop's thread.

    Args:
        feed: The connection to the loop.
        of_all: Counts the streams of all applications, where there are several.
    """

    def __init__(self, feed: LatencyFeed, of_all: OpenStreams | None = None) -> None:
        self._feed = feed
        self._of_all = of_all or OpenStreams()
        self.streams = 0
        """The number of open streams."""

    @contextlib.contextmanager
    def stream(self) -> Iterator[ReportStream]:
        """Open one more stream until the block ends.

        Raises:
            TooManyStreamsError: If :data:`MAX_STREAMS` are open.
        """
        if self.streams >= MAX_STREAMS:
            raise TooManyStreamsError
        self.streams += 1
        self._of_all.count += 1
        try:
            yield ReportStream(self._feed)
        finally:
            self.streams -= 1
            self._of_all.count -= 1
            if self.streams == 0:
                self._feed.flush()  # so that a client that reports only once counts, too

    async def give_way(self, stream: ReportStream) -> None:
        """Let the service do other things, if a stream has occupied it.

        The streams of all applications together occupy a third of it at most: whatever they send,
        an operator is answered. gRPC does not read on meanwhile, so the client waits.
        """
        if stream.busy_s >= _TURN_S:
            wait_s = _OTHERS * stream.busy_s * self._of_all.count
            stream.busy_s = 0.0
            await asyncio.sleep(wait_s)

    async def flush_for_ever(self) -> None:
        """Send the reports at every period, or that no client has a stream open."""
        idle_flushes = 0
        while True:
            if self.streams:
                self._feed.flush()
                idle_flushes = 0
            elif idle_flushes % _REPEAT_FLUSHES == 0:
                self._feed.fault(_NO_STREAM)
            idle_flushes += not self.streams
            await asyncio.sleep(FLUSH_S)
