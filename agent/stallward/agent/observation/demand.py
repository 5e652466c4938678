"""The memory that the protected application needs: its *demand*. Pure.

What the application holds at a moment says too little, because pressure takes pages away from it:
anonymous ones are in swap then, and file pages are on disk only. So the demand is the most that
the application was seen to need, and it falls slowly. At each tick the application needs what it
holds and has in swap, or its working set where that is larger: the sensors estimate the working
set from the pages that come back (``stallward.actuator.sensors.working_set``), which shows file
pages that were taken before they were ever counted.
"""

from __future__ import annotations

import math
from typing import Final

from stallward.agent.sample import GroupSample, or_nan

FORGET_S: Final = 600.0
"""The time constant with which the demand in an observation falls."""


def held_bytes(group: GroupSample) -> int:
    """What a group holds in memory and in swap; 0 where neither can be read."""
    return (group.memory_usage_bytes or 0) + (group.swap_bytes or 0)


def known_sum(one_bytes: float, other_bytes: float) -> float:
    """The sum of two numbers of which one that is not known is NaN; 0 where both are."""
    one = 0.0 if math.isnan(one_bytes) else one_bytes
    return one + (0.0 if math.isnan(other_bytes) else other_bytes)


def followed_demand(
    before_bytes: float,
    usage_bytes: float,
    swap_bytes: float,
    working_set_bytes: float,
    forget_s: float,
    elapsed_s: float,
) -> float:
    """The demand after one more look at the application; what is not known is NaN.

    Where neither its usage nor its swap is known, the demand stays: nothing says that it fell.
    Otherwise it falls exponentially with the time constant ``forget_s``.
    """
    kept = before_bytes * max(1.0 - elapsed_s / forget_s, 0.0)
    # The first argument of max() is returned where the other one is NaN.
    needed = max(known_sum(usage_bytes, swap_bytes), working_set_bytes)
    unknown = math.isnan(usage_bytes) and math.isnan(swap_bytes)
    return before_bytes if unknown else max(needed, kept)


class Demand:
    """The demand of one application.

    Args:
        forget_s: The time constant with which it falls.
        start_bytes: The demand to begin with, e.g. a working set that was measured before.
    """

    def __init__(self, forget_s: float, start_bytes: float = 0.0) -> None:
        self._forget_s = forget_s
        self.bytes = start_bytes

    def update(self, application: GroupSample, elapsed_s: float) -> float:
        """Take one more sample of the application, and return its demand in bytes."""
        self.bytes = followed_demand(
            self.bytes,
            or_nan(application.memory_usage_bytes),
            or_nan(application.swap_bytes),
            or_nan(application.working_set_bytes),
            self._forget_s,
            elapsed_s,
        )
        return self.bytes
