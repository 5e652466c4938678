"""Measures steal time: CPU time that the host gave to other machines (proc(5), ``steal``)."""

from __future__ import annotations

import time
from typing import Self

import psutil


class StealTime:
    """The steal time since a moment."""

    def __init__(self, begin_s: float, steal_s: float) -> None:
        self._begin_s, self._steal_s = begin_s, steal_s

    @classmethod
    def from_now(cls) -> Self:
        """Begin to measure now."""
        return cls(time.monotonic(), _total_s())

    def share(self) -> float:
        """The share of all CPU time since the beginning; 0 if the kernel does not report it."""
        span_s = (time.monotonic() - self._begin_s) * (psutil.cpu_count() or 1)
        return min(max((_total_s() - self._steal_s) / max(span_s, 1e-9), 0.0), 1.0)


def _total_s() -> float:
    return float(getattr(psutil.cpu_times(), "steal", 0.0))
