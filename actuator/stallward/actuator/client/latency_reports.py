"""The client's side of reporting latencies: reported requests, and reading them from lines."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from stallward.actuator.latency.counts import Tally
from stallward.actuator.latency.line_format import TOO_LONG, LineFormat
from stallward.proto.v1 import stallward_pb2 as pb

BATCH: Final = 5000
"""The most requests per message; the service takes twice as many."""
_READ_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """One request of the protected application that ended."""

    latency_ms: float
    """The time from the scheduled arrival of the request to its end."""
    failed: bool = False
    """Whether it was not answered; then its latency does not count."""
    ended_s: float | None = None
    """When it ended, by CLOCK_MONOTONIC of this process; ``None`` stands for just now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSummary:
    """The counts of reported requests by what the daemon did with them."""

    accepted: int
    failed: int
    malformed: int
    """Requests whose latency is not finite, negative or absurdly large."""
    late: int
    """Requests that ended more than a second before they were reported."""


def to_messages(
    batches: Iterable[Sequence[Reported]], application: str = ""
) -> Iterator[pb.ReportRequest]:
    """Make the messages of a report; a batch is sent as soon as it is there."""
    for batch in batches:
        now_s = time.monotonic()
        for start in range(0, max(len(batch), 1), BATCH):
            part = batch[start : start + BATCH]
            requests = [_to_wire(request, now_s) for request in part]
            yield pb.ReportRequest(requests=requests, application=application)


def _to_wire(one: Reported, now_s: float) -> pb.ReportedRequest:
    ago_ms = 0.0 if one.ended_s is None else max(now_s - one.ended_s, 0.0) * 1e3
    return pb.ReportedRequest(latency_ms=one.latency_ms, failed=one.failed, ended_ago_ms=ago_ms)


@dataclass(slots=True)
class LineBatches:
    """Batches of requests from lines that arrive at a descriptor, until its end."""

    fd: int
    """A pipe, terminal or file."""
    line_format: LineFormat
    """The place of the latency in a line."""
    tally: Tally = field(default_factory=Tally, init=False)
    """What became of the lines; the daemon counts those that were sent."""

    def __iter__(self) -> Iterator[list[Reported]]:
        """Yield the requests of lines as soon as they arrive."""
        partial, discards = b"", False
        while content := os.read(self.fd, _READ_BYTES):
            *lines, partial = (partial + content).split(b"\n")
            if discards and lines:
                del lines[0]
                discards = False
            if len(partial) > self.line_format.line_bytes:
                if not discards:
                    self.tally.note_malformed(partial, why=TOO_LONG)
                partial, discards = b"", True
            yield list(self._requests(lines))
        yield list(self._requests([] if discards else [partial]))

    def _requests(self, lines: list[bytes]) -> Iterator[Reported]:
        for line in lines:
            if not line.strip():
                continue
            if len(line) > self.line_format.line_bytes:
                self.tally.note_malformed(line, why=TOO_LONG)
                continue
            try:
                value = self.line_format.latency_ms(line.decode("utf-8", "replace"))
            except ValueError:
                self.tally.note_malformed(line)
                continue
            yield Reported(latency_ms=value or 0.0, failed=value is None)
