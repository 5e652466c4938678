"""What clients of the service report, gathered and sent to the loop."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from stallward.actuator.latency.feed import FLUSH_S, MAX_LATENCY_MS, LatencyFeed
from stallward.proto.v1 import stallward_pb2 as pb

MAX_STREAMS: Final = 16
MAX_REQUESTS: Final = 10_000
"""In one message; converting them holds up the service for some 10 ms."""
LATE_MS: Final = 1000.0
"""What ended longer ago says nothing about now."""
_NOBODY: Final = "nobody reports: no client has a Report stream open"
_SAY_AGAIN: Final = 5
"""Flushes between two times that nobody reporting is said."""


class TooManyStreamsError(Exception):
    """Raised when no further stream is taken."""


@dataclass(slots=True)
class ReportStream:
    """One client's stream: what became of its requests."""

    feed: LatencyFeed
    accepted: int = 0
    failed: int = 0
    malformed: int = 0
    late: int = 0

    def take(self, request: pb.ReportRequest) -> None:
        """Take in one message."""
        for one in request.requests:
            usable = 0.0 <= one.latency_ms < MAX_LATENCY_MS and math.isfinite(one.ended_ago_ms)
            if one.failed:
                self.failed += 1
                self.feed.failed += 1
            elif not usable:
                self.malformed += 1
                self.feed.malformed += 1
            elif one.ended_ago_ms > LATE_MS:
                self.late += 1
                self.feed.lost += 1
            else:
                self.feed.add(one.latency_ms)
                self.accepted += 1

    def response(self) -> pb.ReportResponse:
        """What the client is told at the end."""
        return pb.ReportResponse(
            accepted=self.accepted, failed=self.failed, malformed=self.malformed, late=self.late
        )


class ReportDesk:
    """Takes in every client's reports. Lives in the event loop's thread.

    Args:
        feed: Where they go.
    """

    def __init__(self, feed: LatencyFeed) -> None:
        self._feed = feed
        self.streams = 0
        """How many clients report now."""

    @contextlib.contextmanager
    def stream(self) -> Iterator[ReportStream]:
        """A further stream, until the block ends.

        Raises:
            TooManyStreamsError: If there are :data:`MAX_STREAMS`.
        """
        if self.streams >= MAX_STREAMS:
            raise TooManyStreamsError
        self.streams += 1
        try:
            yield ReportStream(self._feed)
        finally:
            self.streams -= 1
            if self.streams == 0:
                self._feed.flush()  # a client that reports once and goes is heard too

    async def flush_for_ever(self) -> None:
        """Send what came in, or that nobody is there."""
        silent = 0
        while True:
            if self.streams:
                self._feed.flush()
                silent = 0
            elif silent % _SAY_AGAIN == 0:
                self._feed.fault(_NOBODY)
            silent += not self.streams
            await asyncio.sleep(FLUSH_S)
