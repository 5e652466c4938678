"""Reports the work of a Python workload, in the format of the C hogs."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

_PERIOD_S = 0.1


class UnitReport:
    """Appends lines ``MONOTONIC_S CUMULATIVE_UNITS``, at most ten a second.

    Args:
        path: A file or FIFO. Writing never blocks. A line may be lost, which does no harm because
            the units are cumulative.
    """

    def __init__(self, path: Path) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
        self._fd = os.open(path, flags, 0o644)
        self._units = 0.0
        self._due_s = 0.0

    def add(self, units: float) -> None:
        """Add finished work, and report it if a report is due."""
        self._units += units
        now_s = time.monotonic()
        if now_s >= self._due_s:
            self._due_s = now_s + _PERIOD_S
            with contextlib.suppress(BlockingIOError):
                os.write(self._fd, f"{now_s:.6f} {self._units:.3f}\n".encode())


def work(report: Path, begin: Callable[[], Callable[[], object]]) -> NoReturn:
    """Work until killed, and report each step as a unit.

    Args:
        report: As for :class:`UnitReport`.
        begin: Makes what is worked on, and returns what does one step.
    """
    units = UnitReport(report)
    units.add(0)
    step = begin()
    while True:
        step()
        units.add(1)
