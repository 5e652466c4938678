"""Where the screen's records come from: a running daemon, or what one has recorded."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from stallward.actuator.record.reading import read_records
from stallward.actuator.record.tick_record import TickRecord
from stallward.agent.errors import UsageError

LEAD_S: Final = 120.0
"""How much before the time that is asked for is read at once, for the curves."""


def replayed(
    source: Path,
    *,
    at_s: float = 0.0,
    speed: float = 1.0,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[TickRecord]:
    """Yield a daemon's records as if they happened now.

    Args:
        source: The daemon's ``record.dir``.
        at_s: Where to begin, in seconds after the first record. What lies up to two minutes
            before is yielded at once.
        speed: How many times faster than it happened.
        sleep: Waits for a number of seconds.

    Raises:
        UsageError: If there are no records, or none so late.
        FramesError: If a file cannot be read.
    """
    records = read_records(source)
    first = next(records, None)
    if first is None:
        raise UsageError(f"{source} has no ticks.")
    start_s = first.sample.time_s + at_s
    shown_s: float | None = None
    last_s = first.sample.time_s
    for record in itertools.chain((first,), records):
        last_s = record.sample.time_s
        if last_s < start_s - LEAD_S:
            continue
        if last_s > start_s and shown_s is not None:
            sleep(max(last_s - max(shown_s, start_s), 0.0) / speed)
        shown_s = last_s
        yield record
    if last_s < start_s:
        raise UsageError(
            f"{source} ends {last_s - first.sample.time_s:.0f} s after its begin.",
            next_step="Give --at a time before that.",
        )
