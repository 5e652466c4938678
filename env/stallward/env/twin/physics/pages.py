"""The pages of groups: misses, reclaim and allocation.

A node has groups, the protected application first and then the slots. Each group has pools. The
group owns the ``wanted`` pages of a pool; ``resident`` of them are in memory. The others are in
swap (anonymous) or on disk (file), and fault when they are touched. Rows of pools are ordered by
group.
"""

from __future__ import annotations

from typing import Final

from stallward.agent.desired import SLOTS
from stallward.env.twin.simd.elementary import power
from stallward.env.twin.simd.jit import model
from stallward.env.twin.simd.layout import Rows
from stallward.env.twin.simd.values import anywhere, maximum, minimum, where

GROUPS: Final = 1 + SLOTS
ANON, FILE, COLD = 0, 1, 2
"""The pools: anonymous pages; file pages in use; file pages of a large set or a stream."""
POOLS: Final = 3
ALL_POOLS: Final = GROUPS * POOLS
EPSILON: Final = 1e-9


@model
def clip(x: float, low: float, high: float) -> float:
    """Return ``x``, at least ``low`` and at most ``high``."""
    return minimum(maximum(x, low), high)


@model
def total(rows: Rows, count: int) -> float:
    """Return the sum of the first ``count`` rows."""
    result = rows[0]
    for i in range(1, count):
        result = result + rows[i]
    return result


@model
def tightness(free: float, capacity: float) -> float:
    """Return how short memory is: 0 if a fiftieth of the capacity is free, 1 if nothing is."""
    return clip(1.0 - free / (0.02 * maximum(capacity, 1.0)), 0.0, 1.0)


@model
def miss_probability(resident: float, wanted: float, exponent: float) -> float:
    """Return the probability that a touched page is not in memory.

    Args:
        resident: Pages in memory.
        wanted: Pages owned.
        exponent: 1 for random access. Above 1 for skewed access, which seldom touches a missing
            page. Below 1 for scans: each page is evicted before the scan comes to it again, so
            nearly every touch misses even if few pages are missing.

    Returns:
        A number between 0 and 1; 0 if no pages are owned.
    """
    held = clip(resident / maximum(wanted, 1.0), 0.0, 1.0)
    skewed = exponent > 1.0
    strength = where(skewed, exponent, 1.0 / maximum(exponent, EPSILON))
    part = power(where(skewed, 1.0 - held, held), strength)
    return where(wanted > 0.0, where(skewed, part, 1.0 - part), 0.0)


@model
def coldness(touches_per_s: float, tau_s: float, exponent: float) -> float:
    """Return how readily reclaim takes a page with ``touches_per_s``, in (0, 1]."""
    return power(1.0 + touches_per_s * tau_s, -exponent)


@model
def share_out(need: float, weight: Rows, available: Rows, taken: Rows, count: int) -> None:
    """Take ``need`` pages from ``count`` pools in proportion to ``weight``.

    No pool gives more than it has available. Pools of weight 0 come last.

    Args:
        need: Pages to take.
        weight: The weight of each pool, not negative.
        available: Pages of each pool that may be taken.
        taken: Set to the pages taken. Their sum is ``need``, or all available pages if they are
            fewer.
        count: How many pools.
    """
    for i in range(count):
        taken[i] = 0.0
    _share_by(need, weight, available, taken, count)  # two rounds by weight, the rest by size
    if anywhere(need - total(taken, count) > EPSILON):
        _share_by(need, weight, available, taken, count)
        _share_by(need, available, available, taken, count)


@model
def _share_by(need: float, weight: Rows, available: Rows, taken: Rows, count: int) -> None:
    left = need - total(taken, count)
    left = where(left > EPSILON, left, 0.0)
    # A pool with only a rounding error left is exhausted and gets no share.
    usable = where(available[0] - taken[0] > EPSILON, weight[0], 0.0)
    for i in range(1, count):
        usable = usable + where(available[i] - taken[i] > EPSILON, weight[i], 0.0)
    scale = left / maximum(usable, EPSILON)
    for i in range(count):
        taken[i] = taken[i] + minimum(available[i] - taken[i], weight[i] * scale)


@model
def resize(
    resident: float, wanted: float, target: float, growth: float
) -> tuple[float, float, float]:
    """Move an anonymous working set towards its target.

    Pages are freed in memory and in swap in proportion.

    Args:
        resident: Anonymous pages in memory.
        wanted: Anonymous pages owned.
        target: Pages that the program should own now.
        growth: The most pages that may be allocated in this step.

    Returns:
        Resident pages and owned pages after freeing, and the pages to allocate.
    """
    kept = minimum(wanted, target)
    ratio = kept / maximum(wanted, 1.0)
    fresh = minimum(maximum(target - wanted, 0.0), growth)
    return where(wanted > target, resident * ratio, resident), kept, fresh


@model
def evictable(resident: Rows, dirty: Rows, swappable: float, available: Rows, groups: int) -> None:
    """Set the pages that reclaim may take now.

    Args:
        resident: Pages in memory.
        dirty: Dirty pages of each group's cold pool, which must be written first.
        swappable: The share of anonymous pages for which there is room in swap.
        available: Set to the pages of each pool that may be taken.
        groups: How many groups.
    """
    for g in range(groups):
        first = g * POOLS
        cold = resident[first + COLD]
        available[first + ANON] = resident[first + ANON] * swappable
        available[first + FILE] = resident[first + FILE]
        available[first + COLD] = cold - minimum(dirty[g], cold)


@model
def fit_into(demand: Rows, room: float, count: int) -> None:
    """Scale ``demand`` down so that its sum is at most ``room``."""
    wanted = total(demand, count)
    scale = minimum(1.0, maximum(room, 0.0) / maximum(wanted, EPSILON))
    for i in range(count):
        demand[i] = demand[i] * scale
