"""Reclaim: which pages are taken when a group or the zone is full."""

from __future__ import annotations

import math

from stallward.env.twin.physics import pages
from stallward.env.twin.physics.others import (
    MOST_POOLS,
    World,
    first_pool,
    held_by_others,
    other_at,
)
from stallward.env.twin.physics.pages import ANON, EPSILON, POOLS
from stallward.env.twin.physics.state import Node, Parameters
from stallward.env.twin.simd.jit import model
from stallward.env.twin.simd.layout import Rows
from stallward.env.twin.simd.records import from_row, local_rows
from stallward.env.twin.simd.values import anywhere, maximum, minimum, where


@model
def make_room(
    world: World,
    node: Node,
    parameters: Parameters,
    demand: Rows,
    step_s: float,
    at: int,
    slots: int,
    others: int,
) -> float:
    """Make room for ``demand``: first in the slots over their limit, then in the zone.

    Args:
        world: All nodes, with the further applications.
        node: The nodes from ``at`` on; ``resident`` is reduced by the pages taken.
        parameters: Their parameters.
        demand: Pages that each pool demands, those of further applications last; reduced to
            those that fit.
        step_s: Length of the sub-step.
        at: The first of the eight nodes.
        slots: How many slots are in use.
        others: How many applications beside the first.

    Returns:
        Anonymous pages taken, which went to swap.
    """
    count, of_all = (1 + slots) * POOLS, (1 + slots + others) * POOLS
    swap_free = node.swap_pages
    for g in range(1 + slots):
        anon = g * POOLS + ANON
        swap_free = swap_free - (node.wanted[anon] - node.resident[anon])
    for a in range(1, 1 + others):
        other = other_at(world, at, a)
        swap_free = swap_free - (other.wanted[ANON] - other.resident[ANON])
    swap_free = maximum(swap_free, 0.0)
    held = held_by_others(world, at, others, pages.total(node.resident, count))
    need = pages.total(demand, of_all) + held - node.zone_pages
    short = need > 0.0
    for i in range(slots):
        short = short | (_over_limit(node, demand, i) > 0.0)
    swapped_out = 0.0
    if anywhere(short):
        weight, available = local_rows(MOST_POOLS), local_rows(MOST_POOLS)
        weigh(node, parameters, weight, 1 + slots)
        for a in range(1, 1 + others):
            other, its = other_at(world, at, a), from_row(weight, first_pool(slots, a))
            _weigh_group(other, parameters, its, other.protected_swappiness, 0)
        _evictable(world, node, swap_free, available, at, slots, others)
        squeeze = parameters.squeeze_pages_per_s * step_s
        for i in range(slots):
            squeezed = _squeeze(node, demand, weight, available, squeeze, i)
            swapped_out = swapped_out + squeezed
        swap_free = maximum(swap_free - swapped_out, 0.0)
        reclaimed = _reclaim(world, node, demand, weight, swap_free, at, slots, others)
        swapped_out = swapped_out + reclaimed
    held = held_by_others(world, at, others, pages.total(node.resident, count))
    pages.fit_into(demand, node.zone_pages - held, of_all)
    return swapped_out


@model
def weigh(node: Node, parameters: Parameters, weight: Rows, groups: int) -> None:
    """Set the weight of each pool in reclaim, by the swappiness of its group."""
    _weigh_group(node, parameters, weight, node.protected_swappiness, 0)
    for g in range(1, groups):
        _weigh_group(node, parameters, weight, node.swappiness, g)


@model
def _weigh_group(
    node: Node, parameters: Parameters, weight: Rows, swappiness: float, group: int
) -> None:
    swap = parameters.anon_weight * swappiness / 200.0
    file = 1.0 - swappiness / 200.0
    tau_s, exponent = parameters.coldness_tau_s, parameters.coldness_exponent
    for pool in range(POOLS):
        i = group * POOLS + pool
        cold = pages.coldness(node.touches_per_s[i], tau_s, exponent)
        weight[i] = node.resident[i] * cold * (swap if pool == ANON else file)


@model
def _evictable(
    world: World,
    node: Node,
    swap_free: float,
    available: Rows,
    at: int,
    slots: int,
    others: int,
) -> None:
    """Set the pages that reclaim may take now.

    For the limit of a cgroup, and the zone is one, the kernel swaps no page of a group whose
    swappiness is 0, even if it has no file pages left and must kill instead (``get_scan_count`` in
    ``mm/vmscan.c``). The twin kills nothing: whoever needs the pages waits.
    """
    anon = node.resident[ANON]
    for g in range(1, 1 + slots):
        anon = anon + node.resident[g * POOLS + ANON]
    for a in range(1, 1 + others):
        anon = anon + other_at(world, at, a).resident[ANON]
    swappable = minimum(1.0, swap_free / maximum(anon, 1.0))
    pages.evictable(node.resident, node.dirty, swappable, available, 1 + slots)
    available[ANON] = where(node.protected_swappiness > 0.0, available[ANON], 0.0)
    for g in range(1, 1 + slots):
        at_anon = g * POOLS + ANON
        available[at_anon] = where(node.swappiness > 0.0, available[at_anon], 0.0)
    for a in range(1, 1 + others):
        other, its = other_at(world, at, a), from_row(available, first_pool(slots, a))
        pages.evictable(other.resident, other.dirty, swappable, its, 1)
        its[ANON] = where(other.protected_swappiness > 0.0, its[ANON], 0.0)


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
def _reclaim(
    world: World,
    node: Node,
    demand: Rows,
    weight: Rows,
    swap_free: float,
    at: int,
    slots: int,
    others: int,
) -> float:
    """Reclaim in the whole zone for ``demand``; return the anonymous pages taken."""
    count, of_all = (1 + slots) * POOLS, (1 + slots + others) * POOLS
    available, taken = local_rows(MOST_POOLS), local_rows(MOST_POOLS)
    held = held_by_others(world, at, others, pages.total(node.resident, count))
    wants = pages.total(demand, of_all) + held
    need = maximum(wants - node.zone_pages, 0.0)
    _evictable(world, node, swap_free, available, at, slots, others)
    protected = node.protected_low_pages > 0.0
    for a in range(1, 1 + others):
        protected = protected | (other_at(world, at, a).protected_low_pages > 0.0)
    if anywhere(protected):
        _spare_protected(world, node, need, weight, available, taken, at, slots, others)
    else:
        pages.share_out(need, weight, available, taken, of_all)
    anon = taken[ANON]
    for i in range(count):
        node.resident[i] = maximum(node.resident[i] - taken[i], 0.0)
    for g in range(1, 1 + slots):
        anon = anon + taken[g * POOLS + ANON]
    for a in range(1, 1 + others):
        other, its = other_at(world, at, a), from_row(taken, first_pool(slots, a))
        for pool in range(POOLS):
            other.resident[pool] = maximum(other.resident[pool] - its[pool], 0.0)
        anon = anon + its[ANON]
    return anon


@model
def _spare_protected(
    world: World,
    node: Node,
    need: float,
    weight: Rows,
    available: Rows,
    taken: Rows,
    at: int,
    slots: int,
    others: int,
) -> None:
    """Like ``pages.share_out``, but take an application's pages below its protection last.

    As in the kernel's ``apply_proportional_protection``, reclaim scans the less of the group the
    larger the protected share of it. Only what is still missing then is taken from all pages.
    """
    count, more = (1 + slots + others) * POOLS, local_rows(MOST_POOLS)
    every_weight, every_page = local_rows(MOST_POOLS), local_rows(MOST_POOLS)
    for i in range(count):
        every_weight[i], every_page[i] = weight[i], available[i]
    _hide_protected(node, weight, available)
    for a in range(1, 1 + others):
        first = first_pool(slots, a)
        _hide_protected(
            other_at(world, at, a), from_row(weight, first), from_row(available, first)
        )
    pages.share_out(need, weight, available, taken, count)
    left = need - pages.total(taken, count)
    if anywhere(left > EPSILON):
        for i in range(count):
            every_page[i] = every_page[i] - taken[i]
        pages.share_out(maximum(left, 0.0), every_weight, every_page, more, count)
        for i in range(count):
            taken[i] = taken[i] + more[i]


@model
def _hide_protected(node: Node, weight: Rows, available: Rows) -> None:
    """Leave only the part of an application's pools that is not protected."""
    held = maximum(pages.total(node.resident, POOLS), 1.0)
    open_share = maximum(1.0 - node.protected_low_pages / held, 0.0)
    for i in range(POOLS):
        weight[i], available[i] = weight[i] * open_share, available[i] * open_share
