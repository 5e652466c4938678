"""Pages: who has them, who loses them, who wants them back. Pure functions of arrays.

Shapes: ``G`` groups (the protected application first, then the slots), ``P`` pools, ``B``
nodes. A pool's ``wanted`` pages are what the group owns; ``resident`` of them are in memory;
the rest is in swap (anonymous) or on disk (file) and faults when touched.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.desired import SLOTS

Array = NDArray[np.float64]

GROUPS: Final = 1 + SLOTS
ANON, FILE, COLD = 0, 1, 2
"""The pools: anonymous; file pages used again and again; file pages of a large set or stream."""
POOLS: Final = 3
EPSILON: Final = 1e-9


def miss_probability(resident: Array, wanted: Array, exponent: Array) -> Array:
    """Probability that a touched page is not in memory.

    Args:
        resident: Pages in memory, ``(..., B)``.
        wanted: Pages owned, same shape.
        exponent: 1 for random access; above 1 for skewed access, which seldom meets what is
            missing; below 1 for scans, where a page is gone again before its turn comes, so that
            a small lack makes nearly every access miss. Broadcast to the same shape.

    Returns:
        Between 0 and 1, same shape; 0 where nothing is owned.
    """
    held = np.clip(resident / np.maximum(wanted, 1.0), 0.0, 1.0)
    skewed = exponent > 1.0
    power = np.where(skewed, exponent, 1.0 / np.maximum(exponent, EPSILON))
    part = np.where(skewed, 1.0 - held, held) ** power
    return np.asarray(np.where(wanted > 0.0, np.where(skewed, part, 1.0 - part), 0.0))


def coldness(touches_per_s: Array, tau_s: Array, exponent: Array) -> Array:
    """How readily reclaim takes a page touched ``touches_per_s`` times a second, in (0, 1]."""
    return np.asarray((1.0 + touches_per_s * tau_s) ** -exponent)


def share_out(need: Array, weight: Array, available: Array) -> Array:
    """Take ``need`` pages from pools in proportion to ``weight``, never more than is there.

    Args:
        need: ``(..., B)``.
        weight: ``(..., N, B)``, not negative.
        available: ``(..., N, B)``.

    Returns:
        Pages taken, ``(..., N, B)``; their sum is ``min(need, sum of available)`` up to the pools
        of weight 0, which are taken last.
    """
    taken = np.zeros_like(available)
    for w in (weight, weight, available):  # two rounds by weight, the rest by size
        left = np.maximum(need - taken.sum(axis=-2), 0.0)
        room = available - taken
        usable = w * (room > 0.0)
        scale = left / np.maximum(usable.sum(axis=-2), EPSILON)
        taken += np.minimum(room, usable * scale[..., None, :])
    return taken


def resize(
    resident: Array, wanted: Array, target: Array, growth: Array
) -> tuple[Array, Array, Array]:
    """Move the anonymous working sets towards their targets.

    Args:
        resident: Anonymous pages in memory.
        wanted: Anonymous pages owned.
        target: What the program owns at this point.
        growth: The most that may be newly allocated in this step.

    Returns:
        Resident and wanted after freeing, and the pages to allocate newly; what is freed
        leaves memory and swap in proportion.
    """
    kept = np.minimum(wanted, target)
    ratio = kept / np.maximum(wanted, 1.0)
    fresh = np.minimum(np.maximum(target - wanted, 0.0), growth)
    return np.where(wanted > target, resident * ratio, resident), kept, fresh


def evictable(resident: Array, dirty: Array, swap_free: Array) -> Array:
    """Pages that reclaim may take now.

    Args:
        resident: ``(G, P, B)``.
        dirty: Dirty pages of the cold pool, ``(G, B)``: they must be written first.
        swap_free: ``(B,)``; anonymous pages need a place in swap.
    """
    free = resident.copy()
    free[:, COLD] -= np.minimum(dirty, free[:, COLD])
    anon = free[:, ANON]
    total = anon.sum(axis=0)
    free[:, ANON] = anon * np.minimum(1.0, swap_free / np.maximum(total, 1.0))
    return free


def fit_into(demand: Array, room: Array) -> Array:
    """Scale ``demand`` ``(..., N, B)`` down so that its sum is at most ``room`` ``(..., B)``."""
    total = demand.sum(axis=-2)
    scale = np.minimum(1.0, np.maximum(room, 0.0) / np.maximum(total, EPSILON))
    return np.asarray(demand * scale[..., None, :])
