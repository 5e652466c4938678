"""The averages of a PSI file, computed from its total as the kernel computes them.

Source: ``update_averages`` and ``calc_avgs`` in kernel/sched/psi.c. Every two seconds, avg10,
avg60 and avg300 move towards the share of those two seconds in which tasks stalled, by
1 - exp(-2 s / 10, 60 or 300 s). More stall than time has passed counts in the next period, and a
period that nobody looked at counts as one without stall. The kernel rounds to a hundredth of a per
cent, which is left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

PERIOD_S: Final = 2.0
WINDOWS_S: Final = (10.0, 60.0, 300.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Averages:
    """The averages of one line of a PSI file, in per cent."""

    avg10: float = 0.0
    avg60: float = 0.0
    avg300: float = 0.0


class PressureAverages:
    """The averages of one stall total."""

    def __init__(self) -> None:
        self._decays = tuple(math.exp(-PERIOD_S / window_s) for window_s in WINDOWS_S)
        self._averages = (0.0,) * len(WINDOWS_S)
        self._counted_us: int | None = None
        self._updated_s = 0.0
        self._next_s = 0.0

    @property
    def value(self) -> Averages:
        """The averages of the last update."""
        avg10, avg60, avg300 = self._averages
        return Averages(avg10=avg10, avg60=avg60, avg300=avg300)

    def update(self, total_us: int | None, time_s: float) -> Averages:
        """Take another reading of the total; an absent one changes nothing.

        Args:
            total_us: The stall total.
            time_s: When it was read.
        """
        if total_us is None:
            return self.value
        if self._counted_us is None or total_us < self._counted_us:
            self._counted_us = total_us
            self._updated_s, self._next_s = time_s, time_s + PERIOD_S
        elif time_s >= self._next_s:
            self._step(total_us, self._counted_us, time_s)
        return self.value

    def _step(self, total_us: int, counted_us: int, time_s: float) -> None:
        missed = int((time_s - self._next_s) // PERIOD_S)
        period_us = 1e6 * (time_s - (self._updated_s + missed * PERIOD_S))
        stalled_us = min(float(total_us - counted_us), period_us)
        share = 100.0 * stalled_us / period_us
        self._averages = tuple(
            average * decay ** (missed + 1) + share * (1.0 - decay)
            for average, decay in zip(self._averages, self._decays, strict=True)
        )
        self._counted_us = counted_us + int(stalled_us)
        self._updated_s = time_s
        self._next_s += (1 + missed) * PERIOD_S
