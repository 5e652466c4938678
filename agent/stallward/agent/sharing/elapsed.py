"""The time between two looks at a node. Pure."""

from __future__ import annotations

from typing import Final

LONGEST_S: Final = 15.0
"""The longest time between two looks that tells what happened in between: half as much again as the
longest period of ticks, since ticks may be late."""


def elapsed_since(before_s: float | None, time_s: float) -> float:
    """The time since the look before; 0 where that says nothing, as at the first look.

    A controller is not asked while a client decides. What counters count meanwhile happens under
    the limits of that client, and latencies of that time are not seen. So the first look after it
    only shows where the counters are, and averages and sums continue with the second.

    Args:
        before_s: The time of the look before; ``None`` if there was none.
        time_s: The time now.
    """
    passed_s = 0.0 if before_s is None else time_s - before_s
    return passed_s if 0.0 < passed_s <= LONGEST_S else 0.0
