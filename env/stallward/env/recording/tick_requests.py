"""The requests of a node whose application keeps no log of them, from the tick records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from stallward.agent.latency_histogram import middle_ms
from stallward.env.errors import RecordingError
from stallward.env.recording.pieces import Piece
from stallward.env.recording.recording import Requests
from stallward.proto.v1 import stallward_pb2 as pb

MOST_REQUESTS: Final = 50_000_000
"""More do not fit the memory of a small machine: that many take 1.3 GB."""


def requests_in(ticks: Iterable[pb.TickRecord], piece: Piece) -> Requests:
    """The requests scheduled in a piece that its ticks have in their histograms, by that time.

    A latency is known to 1 %, or to the range that the application's own histogram gives. A
    request counts as having ended at the tick that tells of it, so its times are late by less than
    a tick and a period of the source. Requests that failed are not among them, and how long a
    request waited before it was sent is not known.

    Raises:
        RecordingError: If there are more than :data:`MOST_REQUESTS`.
    """
    ends_s: list[float] = []
    latencies_s: list[float] = []
    counts: list[int] = []
    for tick in ticks:
        new = tick.sample.latency.new_requests
        ends_s += [tick.time_s] * len(new.buckets)
        latencies_s += [1e-3 * middle_ms(bucket) for bucket in new.buckets]
        counts += new.counts
    if sum(counts) > MOST_REQUESTS:
        raise RecordingError(
            f"The ticks tell of {sum(counts)} requests, more than {MOST_REQUESTS}.",
            next_step="Convert fewer ticks: give one of the files that the recorder set aside.",
        )
    each = np.array(counts, dtype=np.int64)
    end_s = np.repeat(np.array(ends_s), each)
    scheduled_s = end_s - np.repeat(np.array(latencies_s), each)
    order = np.argsort(scheduled_s, kind="stable")
    told = Requests(
        scheduled_s=scheduled_s[order],
        start_s=scheduled_s[order],
        end_s=end_s[order],
        ok=np.ones(end_s.size, dtype=bool),
    )
    return told.scheduled_in(piece.start_s, piece.end_s)
