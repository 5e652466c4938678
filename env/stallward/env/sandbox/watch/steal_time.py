"""Measures steal time: CPU time that the host gave to other machines (proc(5), ``steal``)."""

from __future__ import annotations

import hashlib
import threading
import time
from typing import Final, Self

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


_ROUNDS: Final = 20_000
"""Rounds of a hash that take some 10 ms, without the interpreter's lock."""


def probe_steal_share(length_s: float = 1.0) -> float:
    """The share of steal time while every CPU computes and does nothing else.

    Only a CPU that wants to run shows steal time, and a host may also take it for the I/O of this
    machine. Without any I/O it is what the host gives to others.

    Args:
        length_s: How long to compute. The kernel counts steal time in steps of 10 ms.
    """
    steal_time, end_s = StealTime.from_now(), time.monotonic() + length_s

    def compute() -> None:
        while time.monotonic() < end_s:
            hashlib.pbkdf2_hmac("sha256", b"", b"", _ROUNDS)

    threads = [threading.Thread(target=compute) for _ in range(psutil.cpu_count() or 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return steal_time.share()


def _total_s() -> float:
    return float(getattr(psutil.cpu_times(), "steal", 0.0))
