"""Pages: who has them, who loses them, who wants them back.

A node has groups (the protected application first, then the slots), each with pools. A pool's
``wanted`` pages are what the group owns; ``resident`` of them are in memory; the rest is in swap
(anonymous) or on disk (file) and faults when touched. Rows of pools are ordered by group.
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
"""The pools: anonymous; file pages used again and again; file pages of a large set or stream."""
POOLS: Final = 3
ALL_POOLS: Final = GROUPS * POOLS
EPSILON: Final = 1e-9


@model
def clip(x: float, low: float, high: float) -> float:
    """``x``, not below ``low`` nor above ``high``."""
    return minimum(maximum(x, low), high)


@model
def total(rows: Rows, count: int) -> float:
    """The sum of the first ``count`` rows."""
    found = rows[0]
    for i in range(1, count):
        found = found + rows[i]
    return found


@model
def tightness(free: float, of: float) -> float:
    """How short memory is: 0 with a fiftieth ``of`` it free, 1 with nothing."""
    return clip(1.0 - free / (0.02 * maximum(of, 1.0)), 0.0, 1.0)


@model
def miss_probability(resident: float, wanted: float, exponent: float) -> float:
    """Probability that a touched page is not in memory.

    Args:
        resident: Pages in memory.
        wanted: Pages owned.
        exponent: 1 for random access; above 1 for skewed access, which seldom meets what is
            missing; below 1 for scans, where a page is gone again before its turn comes, so that
            a small lack makes nearly every access miss.

    Returns:
        Between 0 and 1; 0 where nothing is owned.
    """
    held = clip(resident / maximum(wanted, 1.0), 0.0, 1.0)
    skewed = exponent > 1.0
    strength = where(skewed, exponent, 1.0 / maximum(exponent, EPSILON))
    part = power(where(skewed, 1.0 - held, held), strength)
    return where(wanted > 0.0, where(skewed, part, 1.0 - part), 0.0)


@model
def coldness(touches_per_s: float, tau_s: float, exponent: float) -> float:
    """How readily reclaim takes a page touched ``touches_per_s`` times a second, in (0, 1]."""
    return power(1.0 + touches_per_s * tau_s, -exponent)


@model
def share_out(need: float, weight: Rows, available: Rows, taken: Rows, count: int) -> None:
    """Take ``need`` pages from ``count`` pools in proportion to ``weight``.

    Never more than is there; pools of weight 0 are taken last.

    Args:
        need: Pages to take.
        weight: Of each pool, not negative.
        available: Pages of each pool that may be taken.
        taken: Set to the pages taken; their sum is the lesser of what is needed and there.
        count: Pools.
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
    # What rounding left of an exhausted pool must not claim a share.
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

    Args:
        resident: Anonymous pages in memory.
        wanted: Anonymous pages owned.
        target: What the program owns at this point.
        growth: The most that may be newly allocated in this step.

    Returns:
        Resident and wanted after freeing, and the pages to allocate newly; what is freed
        leaves memory and swap in proportion.
    """
    kept = minimum(wanted, target)
    ratio = kept / maximum(wanted, 1.0)
    fresh = minimum(maximum(target - wanted, 0.0), growth)
    return where(wanted > target, resident * ratio, resident), kept, fresh


@model
def evictable(resident: Rows, dirty: Rows, swap_free: float, available: Rows, groups: int) -> None:
    """Pages that reclaim may take now.

    Args:
        resident: Pages in memory.
        dirty: Dirty pages of each group's cold pool: they must be written first.
        swap_free: Places left in swap; anonymous pages need one.
        available: Set to what may be taken.
        groups: Groups there are.
    """
    anon = resident[ANON]
    for g in range(1, groups):
        anon = anon + resident[g * POOLS + ANON]
    places = minimum(1.0, swap_free / maximum(anon, 1.0))
    for g in range(groups):
        first = g * POOLS
        cold = resident[first + COLD]
        available[first + ANON] = resident[first + ANON] * places
        available[first + FILE] = resident[first + FILE]
        available[first + COLD] = cold - minimum(dirty[g], cold)


@model
def fit_into(demand: Rows, room: float, count: int) -> None:
    """Scale ``demand`` down so that its sum is at most ``room``."""
    asked = total(demand, count)
    scale = minimum(1.0, maximum(room, 0.0) / maximum(asked, EPSILON))
    for i in range(count):
        demand[i] = demand[i] * scale
