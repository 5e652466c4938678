"""Progress of long steps, reported by a callback, so that library code never prints."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

Report = Callable[[str, float], None]
"""Called with a message and the share of the work that is done, 0..1."""


__all__ = ["Report", "part", "silent", "timed"]


def silent(_message: str, _share: float) -> None:
    """Ignore the report."""


def part(report: Report, start: float, end: float) -> Report:
    """Make the report of a step that covers the part ``start..end`` of a longer one."""

    def inner(message: str, share: float) -> None:
        report(message, start + (end - start) * min(max(share, 0.0), 1.0))

    return inner


@contextmanager
def timed(report: Report, message: str, expected_s: float) -> Iterator[None]:
    """Report once a second how much of a step's expected time has passed."""
    over, began_s = Event(), time.monotonic()

    def report_every_second() -> None:
        while not over.wait(1.0):
            report(message, min((time.monotonic() - began_s) / expected_s, 0.99))

    report(message, 0.0)
    reporter = Thread(target=report_every_second, name="progress", daemon=True)
    reporter.start()
    try:
        yield
    finally:
        over.set()
        reporter.join()
