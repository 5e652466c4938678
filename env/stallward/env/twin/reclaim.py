"""Making room: which pages reclaim takes when a group or the zone is full. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stallward.env.twin import pages
from stallward.env.twin.pages import ANON, GROUPS, POOLS

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What there is room for, in pages.

    Attributes:
        zone: Of all groups together, ``(B,)``.
        limits: Of each slot, ``(SLOTS, B)``; infinite without a limit.
        squeeze: How much a slot over its limit loses at once beyond what it asks for, ``(B,)``.
        swap_free: Places left in swap, ``(B,)``.
    """

    zone: Array
    limits: Array
    squeeze: Array
    swap_free: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What reclaim came to, in pages.

    Attributes:
        resident: What stays in memory, ``(GROUPS, POOLS, B)``.
        got: What of the demand fits, same shape.
        swapped_out: Anonymous pages taken, ``(B,)``.
    """

    resident: Array
    got: Array
    swapped_out: Array


def make_room(resident: Array, demand: Array, weight: Array, dirty: Array, bounds: Bounds) -> Room:
    """Reclaim for ``demand``: first inside the groups over their limit, then in the zone.

    Args:
        resident: Pages in memory, ``(GROUPS, POOLS, B)``.
        demand: Pages asked for, same shape.
        weight: How readily each pool gives pages away, same shape.
        dirty: Dirty pages of the cold pools, ``(GROUPS, B)``; they must be written first.
        bounds: Sizes.
    """
    held = resident[1:].sum(axis=1)
    asked = demand[1:].sum(axis=1)
    excess = np.maximum(held + asked - bounds.limits, 0.0)
    swap_free = bounds.swap_free
    squeezed = np.zeros_like(demand)
    if excess.any():
        available = pages.evictable(resident, dirty, swap_free)
        squeezed[1:] = pages.share_out(
            np.minimum(excess, asked + bounds.squeeze), weight[1:], available[1:]
        )
        resident = resident - squeezed
        swap_free = np.maximum(swap_free - squeezed[:, ANON].sum(axis=0), 0.0)
        demand = demand.copy()
        demand[1:] = pages.fit_into(demand[1:], bounds.limits - (held - squeezed[1:].sum(axis=1)))
    flat = (GROUPS * POOLS, demand.shape[-1])
    need = np.maximum((demand + resident).sum(axis=(0, 1)) - bounds.zone, 0.0)
    available = pages.evictable(resident, dirty, swap_free).reshape(flat)
    taken = pages.share_out(need, weight.reshape(flat), available).reshape(demand.shape)
    resident = np.maximum(resident - taken, 0.0)
    room = bounds.zone - resident.sum(axis=(0, 1))
    return Room(
        resident=resident,
        got=pages.fit_into(demand.reshape(flat), room).reshape(demand.shape),
        swapped_out=(squeezed[:, ANON] + taken[:, ANON]).sum(axis=0),
    )
