"""When the next tick is due: absolute deadlines, so that lateness never adds up."""

from __future__ import annotations

import math


class Pacer:
    """Deadlines at ``start_s + n * period_s``.

    Args:
        start_s: The first deadline, CLOCK_MONOTONIC.
        period_s: Between two deadlines.
    """

    def __init__(self, start_s: float, period_s: float) -> None:
        self._start_s = start_s
        self._period_s = period_s
        self._count = 0
        self.missed = 0
        """Deadlines that passed while a tick was still running."""

    @property
    def due_s(self) -> float:
        """The next deadline."""
        return self._start_s + self._count * self._period_s

    def advance(self, now_s: float) -> None:
        """Go to the first deadline after the present one that is not past: no bursts."""
        target = max(self._count + 1, math.ceil((now_s - self._start_s) / self._period_s))
        self.missed += target - self._count - 1
        self._count = target
