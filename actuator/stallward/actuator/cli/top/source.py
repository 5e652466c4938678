"""Where the screen's records come from: a running daemon, or what one has recorded."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from stallward.actuator.cli.top.past import KEPT_S
from stallward.actuator.record.reading import read_records
from stallward.actuator.record.tick_record import TickRecord
from stallward.agent.errors import UsageError

LEAD_S: Final = float(KEPT_S)
"""How much before the time that is asked for is read at once, for the curves and to go back."""


_LONGEST_WAIT_S: Final = 10.0
"""A longer time without ticks is not waited for: ticks have no longer period, so there are none."""


class Elapsed:
    """The time since the first record, in which a reboot, when the clock starts again, is none."""

    def __init__(self) -> None:
        self._origin_s: float | None = None
        self._last_s = 0.0

    def take(self, record: TickRecord) -> float:
        """The time at which a record lies that follows those before."""
        now_s = record.sample.time_s
        if self._origin_s is None:
            self._origin_s = now_s
        elif now_s < self._last_s:
            self._origin_s += now_s - self._last_s
        self._last_s = now_s
        return now_s - self._origin_s


class Pace:
    """How fast a recording is shown; from any thread.

    Args:
        speed: How many times faster than it happened.
    """

    def __init__(self, speed: float = 1.0) -> None:
        self._speed = speed
        self._changed = threading.Condition()
        self._held = False
        self._due_s = 0.0
        """So much more of the recording may be shown now."""

    def hold(self, held: bool) -> None:
        """Let time stand still, or continue."""
        with self._changed:
            self._held = held
            self._changed.notify()

    def skip(self, seconds: float) -> None:
        """Show the next seconds of the recording at once."""
        with self._changed:
            self._due_s += seconds
            self._changed.notify()

    def wait(self, seconds: float) -> None:
        """Wait for as long as the next seconds of the recording take."""
        with self._changed:
            while self._held or self._due_s < seconds:
                held, began_s = self._held, time.monotonic()
                self._changed.wait(None if held else (seconds - self._due_s) / self._speed)
                if not held:
                    self._due_s += (time.monotonic() - began_s) * self._speed
            self._due_s -= seconds


def replayed(
    source: Path,
    *,
    at_s: float = 0.0,
    wait: Callable[[float], None] = lambda _seconds: None,
    once: bool = False,
) -> Iterator[TickRecord]:
    """Yield a daemon's records as if they happened now.

    Args:
        source: The daemon's ``record.dir``.
        at_s: Where to begin, in seconds after the first record, without those that a reboot took.
            What lies up to a quarter of an hour before is yielded at once.
        wait: Waits for a number of the recording's seconds.
        once: Yield nothing later than ``at_s``, unless there is nothing before.

    Raises:
        UsageError: If there are no records, or none so late.
        FramesError: If a file cannot be read.
    """
    records = read_records(source)
    first = next(records, None)
    if first is None:
        raise UsageError(f"{source} has no ticks.")
    elapsed, now_s = Elapsed(), 0.0
    shown_s: float | None = None
    for record in itertools.chain((first,), records):
        now_s = elapsed.take(record)
        if now_s < at_s - LEAD_S:
            continue
        if now_s > at_s and shown_s is not None:
            if once:
                return
            wait(min(now_s - max(shown_s, at_s), _LONGEST_WAIT_S))
        shown_s = now_s
        yield record
    if now_s < at_s:
        raise UsageError(
            f"{source} ends {now_s:.0f} s after its begin.",
            next_step="Give --at a time before that.",
        )
