"""Reclaim: which pages are taken when a group or the zone is full."""

from __future__ import annotations

import math

from stallward.env.twin.physics import pages
from stallward.env.twin.physics.pages import ALL_POOLS, ANON, POOLS
from stallward.env.twin.physics.state import Node, Parameters
from stallward.env.twin.simd.jit import model
from stallward.env.twin.simd.layout import Rows
from stallward.env.twin.simd.records import from_row, local_rows
from stallward.env.twin.simd.values import anywhere, maximum, where


@model
def make_room(
    node: Node, parameters: Parameters, demand: Rows, step_s: float, slots: int
) -> float:
    """Make room for ``demand``: first in the slots over their limit, then in the zone.

    Args:
        node: The nodes; ``resident`` is reduced by the pages taken.
        parameters: Their parameters.
        demand: Pages that each pool demands; reduced to those that fit.
        step_s: Length of the sub-step.
        slots: How many slots are in use.

    Returns:
        Anonymous pages taken, which went to swap.
    """
    count = (1 + slots) * POOLS
    swap_free = node.swap_pages
    for g in range(1 + slots):
        anon = g * POOLS + ANON
        swap_free = swap_free - (node.wanted[anon] - node.resident[anon])
    swap_free = maximum(swap_free, 0.0)
    need = pages.total(demand, count) + pages.total(node.resident, count) - node.zone_pages
    short = need > 0.0
    for i in range(slots):
        short = short | (_over_limit(node, demand, i) > 0.0)
    swapped_out = 0.0
    if anywhere(short):
        weight, available = local_rows(ALL_POOLS), local_rows(ALL_POOLS)
        weigh(node, parameters, weight, 1 + slots)
        pages.evictable(node.resident, node.dirty, swap_free, available, 1 + slots)
        squeeze = parameters.squeeze_pages_per_s * step_s
        for i in range(slots):
            squeezed = _squeeze(node, demand, weight, available, squeeze, i)
            swapped_out = swapped_out + squeezed
        swap_free = maximum(swap_free - swapped_out, 0.0)
        swapped_out = swapped_out + _reclaim(node, demand, weight, swap_free, slots)
    room = node.zone_pages - pages.total(node.resident, count)
    pages.fit_into(demand, room, count)
    return swapped_out


@model
def weigh(node: Node, parameters: Parameters, weight: Rows, groups: int) -> None:
    """Set the weight of each pool in reclaim."""
    swap = parameters.anon_weight * node.swappiness / 200.0
    file = 1.0 - node.swappiness / 200.0
    tau_s, exponent = parameters.coldness_tau_s, parameters.coldness_exponent
    for g in range(groups):
        for pool in range(POOLS):
            i = g * POOLS + pool
            cold = pages.coldness(node.touches_per_s[i], tau_s, exponent)
            weight[i] = node.resident[i] * cold * (swap if pool == ANON else file)


@model
def _over_limit(node: Node, demand: Rows, slot: int) -> float:
    """Return by how many pages a slot's resident pages and demand exceed its limit."""
    first = (1 + slot) * POOLS
    held = pages.total(from_row(node.resident, first), POOLS)
    return held + pages.total(from_row(demand, first), POOLS) - node.limit_pages[slot]


@model
def _squeeze(
    node: Node, demand: Rows, weight: Rows, available: Rows, squeeze: float, slot: int
) -> float:
    """Reclaim in a slot over its limit; return the anonymous pages taken.

    It loses what exceeds the limit, but at most ``squeeze`` pages more than it demands.
    """
    first = (1 + slot) * POOLS
    mine, asks = from_row(node.resident, first), from_row(demand, first)
    asked = pages.total(asks, POOLS)
    excess = maximum(_over_limit(node, demand, slot), 0.0)
    taken = local_rows(POOLS)
    need = where(excess < asked + squeeze, excess, asked + squeeze)
    pages.share_out(need, from_row(weight, first), from_row(available, first), taken, POOLS)
    for pool in range(POOLS):
        mine[pool] = mine[pool] - taken[pool]
    room = node.limit_pages[slot] - pages.total(mine, POOLS)
    pages.fit_into(asks, where(excess > 0.0, room, math.inf), POOLS)
    return taken[ANON]


@model
def _reclaim(node: Node, demand: Rows, weight: Rows, swap_free: float, slots: int) -> float:
    """Reclaim in the whole zone for ``demand``; return the anonymous pages taken."""
    count = (1 + slots) * POOLS
    available, taken = local_rows(ALL_POOLS), local_rows(ALL_POOLS)
    wants = pages.total(demand, count) + pages.total(node.resident, count)
    need = maximum(wants - node.zone_pages, 0.0)
    pages.evictable(node.resident, node.dirty, swap_free, available, 1 + slots)
    pages.share_out(need, weight, available, taken, count)
    anon = taken[ANON]
    for i in range(count):
        node.resident[i] = maximum(node.resident[i] - taken[i], 0.0)
    for g in range(1, 1 + slots):
        anon = anon + taken[g * POOLS + ANON]
    return anon
