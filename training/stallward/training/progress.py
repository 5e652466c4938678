"""How long steps say where they are: a callback, so that nothing below prints."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

Report = Callable[[str, float], None]
"""Called with what is being done and the share of it that is done, 0..1."""


__all__ = ["Report", "part", "silent", "timed"]


def silent(_message: str, _share: float) -> None:
    """Report to nobody."""


def part(report: Report, start: float, end: float) -> Report:
    """A report of a step that is the part ``start..end`` of a longer one."""

    def inner(message: str, share: float) -> None:
        report(message, start + (end - start) * min(max(share, 0.0), 1.0))

    return inner


@contextmanager
def timed(report: Report, message: str, expected_s: float) -> Iterator[None]:
    """Report once a second how much of a step's expected time has passed."""
    over, began_s = Event(), time.monotonic()

    def tell() -> None:
        while not over.wait(1.0):
            report(message, min((time.monotonic() - began_s) / expected_s, 0.99))

    report(message, 0.0)
    teller = Thread(target=tell, name="progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()
