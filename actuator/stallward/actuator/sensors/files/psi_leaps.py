"""The stall totals of one pressure file, without leaps that no stall can make.

Some kernels now and then add 2^32 ns to a total at once (https://bugzilla.kernel.org/219194). A
controller would take that for a tick in which everything stalled.
"""

from __future__ import annotations

import time
from typing import Final

Totals = tuple[int | None, int | None]
"""``some`` and ``full`` in microseconds; ``None`` where the kernel has none."""

_SLACK_US: Final = 2_000_000
"""The kernel sums up stalls processor by processor, and late. A leap is more than twice this."""


class SteadyTotals:
    """Follows the two totals of a file.

    A total grows by at most the time between two reads. That is measured from before the one to
    after the other, so no stall is left out if the reader itself stalls in between.
    """

    __slots__ = ("_before_s", "_last", "_raw", "_shown", "value")

    def __init__(self) -> None:
        self._raw: Totals = (None, None)
        self.value: Totals = (None, None)
        """The totals of the last read, without leaps."""
        self._last: list[int | None] = [None, None]
        """The last totals that were there, as the file had them."""
        self._shown = [0, 0]
        """The same without leaps."""
        self._before_s = 0.0

    def take(self, raw: Totals, began_s: float) -> Totals:
        """Return the totals without leaps.

        Args:
            raw: The totals in the file.
            began_s: When reading them began, by CLOCK_MONOTONIC.
        """
        if raw != self._raw:
            most_us = (time.monotonic() - self._before_s) * 1e6 + _SLACK_US
            self._raw = raw
            self.value = (self._grown(0, raw[0], most_us), self._grown(1, raw[1], most_us))
        if raw[0] is not None:
            self._before_s = began_s
        return self.value

    def _grown(self, index: int, now: int | None, most_us: float) -> int | None:
        if now is None:
            return None
        last, self._last[index] = self._last[index], now
        if last is None or now < last:  # another group that has the same name now
            self._shown[index] = now
        elif now - last <= most_us:
            self._shown[index] += now - last
        return self._shown[index]
