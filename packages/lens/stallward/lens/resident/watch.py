"""Looks at the pages of a running process again and again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stallward.actuator.errors import ProcessEndedError, ProcessError
from stallward.lens.page_tables import ProcessPages
from stallward.lens.resident.series import EndedBy, Look, ResidentSeries, SeriesBuilder


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSettings:
    """When a process is looked at."""

    every_s: float = 0.5
    """The time between two looks."""
    window_s: float | None = None
    """The longest time for which references are gathered: so often their bits are cleared.
    ``None`` for never."""
    most_s: float | None = None
    """How long it is watched; ``None`` for as long as it runs."""


def watch(
    proc: Path,
    pid: int,
    settings: WatchSettings,
    *,
    ends_by_itself: bool = False,
    report: Callable[[Look], None] = lambda _look: None,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> ResidentSeries:
    """Watch a process until it ends, its time is over, or Ctrl-C.

    Args:
        proc: The /proc directory.
        pid: The process.
        settings: When it is looked at.
        ends_by_itself: Whether it is no error if it ends before its time is over.
        report: Called with every look.
        clock: The time in seconds.
        wait: Waits for some seconds.

    Raises:
        ProcessError: If nothing could be read.
    """
    pages = ProcessPages(proc, pid)
    builder = SeriesBuilder()
    ended_by: EndedBy = "time"
    error: ProcessError | None = None
    clears: list[float] = []
    cleared_s: float | None = None
    begin_s = clock()
    number = 0
    try:
        while True:
            now_s = clock()
            window = None if cleared_s is None else now_s - cleared_s
            reading = pages.read()
            report(builder.add(reading, now_s - begin_s, window))
            if settings.most_s is not None and now_s - begin_s >= settings.most_s:
                break
            if settings.window_s is not None and (
                window is None or window >= settings.window_s - settings.every_s / 2.0
            ):
                before_s = clock()
                pages.clear_referenced()
                cleared_s = clock()
                clears.append(cleared_s - before_s)
            number += 1
            due_s = begin_s + number * settings.every_s
            if due_s < clock():  # a look took longer than the time between two
                number = int((clock() - begin_s) / settings.every_s) + 1
                due_s = begin_s + number * settings.every_s
            wait(max(due_s - clock(), 0.0))
    except KeyboardInterrupt:
        ended_by = "interrupt"
    except ProcessEndedError as found:
        ended_by, error = "process", found
    except ProcessError as found:
        ended_by, error = "error", found
    awaited = ends_by_itself or settings.most_s is None
    if ended_by == "process" and awaited and builder.looks:
        error = None
    return builder.series(
        pid=pid,
        clock="seconds",
        method=pages.method,
        every=settings.every_s,
        ended_by=ended_by,
        clear_s=sum(clears) / len(clears) if clears else None,
        error=error,
    )
