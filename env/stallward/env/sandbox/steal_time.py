"""How much of a virtual machine's processors its host gave to others (proc(5), ``steal``)."""

from __future__ import annotations

import time
from typing import Self

import psutil


class StealTime:
    """Counts from when it is made."""

    def __init__(self, begin_s: float, stolen_s: float) -> None:
        self._begin_s, self._stolen_s = begin_s, stolen_s

    @classmethod
    def from_now(cls) -> Self:
        """Begin now."""
        return cls(time.monotonic(), _stolen_s())

    def share(self) -> float:
        """Of the time of all processors since; 0 where the kernel does not say."""
        span_s = (time.monotonic() - self._begin_s) * (psutil.cpu_count() or 1)
        return min(max((_stolen_s() - self._stolen_s) / max(span_s, 1e-9), 0.0), 1.0)


def _stolen_s() -> float:
    return float(getattr(psutil.cpu_times(), "steal", 0.0))
