"""The memory that the protected application needs: its *demand*. Pure.

What the application holds at a moment says too little, because pressure takes pages away from it:
anonymous ones are in swap then, and file pages are on disk only. So the demand is the most that
the application was seen to need, and it falls slowly. At each tick the application needs what it
holds and has in swap, or its working set where that is larger: the sensors estimate the working
set from the pages that come back (``stallward.actuator.sensors.working_set``), which shows file
pages that were taken before they were ever counted.
"""

from __future__ import annotations

from stallward.agent.sample import GroupSample


def held_bytes(group: GroupSample) -> int:
    """What a group holds in memory and in swap; 0 where neither can be read."""
    return (group.memory_usage_bytes or 0) + (group.swap_bytes or 0)


class Demand:
    """The demand of one application.

    Args:
        forget_s: The time in which the demand would fall to nothing if nothing were needed; it
            falls exponentially with this time constant.
        start_bytes: The demand to begin with, e.g. a working set that was measured before.
    """

    def __init__(self, forget_s: float, start_bytes: float = 0.0) -> None:
        self._forget_s = forget_s
        self.bytes = start_bytes

    def update(self, protected: GroupSample, elapsed_s: float) -> float:
        """Take one more sample of the application.

        Args:
            protected: The application's counters.
            elapsed_s: The time since the sample before.

        Returns:
            The demand in bytes.
        """
        needed = max(held_bytes(protected), protected.working_set_bytes or 0)
        kept = self.bytes * max(1.0 - elapsed_s / self._forget_s, 0.0)
        self.bytes = max(float(needed), kept)
        return self.bytes
