"""The sum of a counter's growth over the spans in which it is known. Pure.

A counter that fell, vanished or was replaced was started again or set back, and nobody knows what
it would have shown in between. Such a span adds neither work nor time, so that no rate is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from stallward.agent.sample import WorkFault

MAX_VALUE: Final = 2.0**53
"""Beyond it not every whole number can be told from the next."""


def fault_of(value: float) -> WorkFault:
    """What is wrong with the value of a counter; ``NONE`` if nothing is."""
    if not math.isfinite(value):
        return WorkFault.NOT_FINITE
    if value < 0.0:
        return WorkFault.NEGATIVE
    return WorkFault.TOO_LARGE if value > MAX_VALUE else WorkFault.NONE


class WorkCounter:
    """Adds up the growth of one counter, or of several that are read together.

    Attributes:
        units: The growth in all known spans.
        known_s: The length of these spans.
        read_s: When it was last read; ``None`` before the first time.
        fault: Why the time since then is not known.
    """

    def __init__(self) -> None:
        self.units = 0.0
        self.known_s = 0.0
        self.read_s: float | None = None
        self.fault = WorkFault.NOT_READ
        self._last: Mapping[str, float] | None = None
        self._last_s = 0.0

    def take(self, values: Mapping[str, float], time_s: float) -> None:
        """Take a reading.

        Args:
            values: The value of each counter by its name; at least one.
            time_s: When it was read, CLOCK_MONOTONIC.
        """
        for value in values.values():
            fault = fault_of(value)
            if fault is not WorkFault.NONE:
                self.miss(fault)
                return
        last, span_s = self._last, time_s - self._last_s
        self._last, self._last_s, self.read_s = dict(values), time_s, time_s
        self.fault = WorkFault.NONE
        if last is None:
            return
        if last.keys() != values.keys():
            self.fault = WorkFault.CHANGED
        elif any(value < last[name] for name, value in values.items()):
            self.fault = WorkFault.FELL
        elif span_s > 0.0:
            self.units += math.fsum(value - last[name] for name, value in values.items())
            self.known_s += span_s

    def miss(self, fault: WorkFault) -> None:
        """Note that no reading is there now. After all but a late one, counting begins again."""
        self.fault = fault
        if fault is not WorkFault.LATE:
            self._last = None


MAX_MESSAGE_BYTES: Final = 4096
MOST_DETAIL: Final = 500
"""The most characters of :attr:`WorkReport.detail`, each of which may take six bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkReport:
    """What is known of one slot's work; the collector sends it to the loop."""

    slot: int
    sent_s: float
    """When it was sent, CLOCK_MONOTONIC."""
    units: float
    known_s: float
    read_s: float | None = None
    fault: WorkFault
    detail: str = ""
    """The fault in words, after the name of the source; empty if the fault says all."""
