"""Turns and water-filling on twin nodes, as in ``stallward.agent.sharing.division``."""

from __future__ import annotations

import math

from stallward.agent.sharing.division import KEEPS_RATIO, NEVER_FITS_S
from stallward.env.simulation.sharing.state import Numbers, Sharing
from stallward.env.twin.physics.state import Node
from stallward.env.twin.simd.jit import model
from stallward.env.twin.simd.values import maximum, minimum, where


@model
def gains(sharing: Sharing, room: float, more: float, slots: int) -> bool:
    """Return whether the groups could use ``more`` bytes than the room."""
    zero = 0.0 * room
    left, parts, held_back, waiting_any = room, zero, zero, zero
    for i in range(slots):
        ordered = sharing.place[i] > 0.0
        part = where(ordered, 0.0, sharing.partial[i] + sharing.whole[i])
        left = left - where(ordered, 0.0, sharing.least[i])
        parts = parts + part * sharing.want[i]
        held_back = held_back + where(ordered, 0.0, sharing.held_back[i] * sharing.least[i])
        waiting_any = maximum(waiting_any, where(ordered, 1.0, 0.0))
    fit(sharing, left, slots)
    spent, fitting = held_back, zero
    for i in range(slots):
        fits = sharing.fitting[i] > 0.0
        spent = spent + where(fits, sharing.want[i], 0.0)
        waits = where(fits, 0.0, where(sharing.place[i] > 0.0, sharing.least[i], 0.0))
        spent = spent + waits
        fitting = fitting + where(fits, 1.0, 0.0)
    lacks = parts > maximum(room - spent, 0.0)
    none_fits = waiting_any > fitting
    fit(sharing, left + more, slots)
    would_fit = zero
    for i in range(slots):
        would_fit = would_fit + where(sharing.fitting[i] > 0.0, 1.0, 0.0)
    return none_fits | lacks | (would_fit > fitting)


@model
def fit(sharing: Sharing, room: float, slots: int) -> None:
    """Set the ranks of the groups that have the whole: first those that have it already."""
    zero = 0.0 * room
    left, rank, reserved, done = room, zero, zero, zero
    for i in range(slots):
        sharing.fitting[i] = 0.0
        reserved = reserved + where(sharing.place[i] > 0.0, sharing.least[i], 0.0)
    for _ in range(slots):
        key = zero + math.inf
        for i in range(slots):
            mine = _key(sharing, i)
            key = where(mine > done, minimum(key, mine), key)
        for i in range(slots):
            now = (_key(sharing, i) == key) & (sharing.place[i] > 0.0)
            others = reserved - sharing.least[i]
            ratio = where(sharing.running[i] > 0.0, KEEPS_RATIO, 1.0)
            fits = now & (ratio * sharing.want[i] <= left - others)
            rank = rank + where(fits, 1.0, 0.0)
            sharing.fitting[i] = where(fits, rank, sharing.fitting[i])
            left = left - where(fits, sharing.want[i], 0.0)
            reserved = reserved - where(fits, sharing.least[i], 0.0)
        done = key


@model
def _key(sharing: Sharing, i: int) -> float:
    """Return the place of a group among candidates; infinite for the others."""
    running, place = sharing.running[i], sharing.place[i]
    return where(place > 0.0, where(running > 0.0, running, 100.0 + place), math.inf)


@model
def divide(
    node: Node,
    sharing: Sharing,
    numbers: Numbers,
    room: float,
    coming: float,
    time_s: float,
    slots: int,
) -> None:
    """Divide the room: set the share of each group, and which of them wait."""
    _give_parts_of_what_is_too_big(sharing, room + coming, time_s, slots)
    _update_order(sharing, numbers, time_s, slots)
    zero = 0.0 * room
    left, first_before = room, zero
    for i in range(slots):
        left = left - where(sharing.whole[i] > 0.0, 0.0, sharing.least[i])
        first_before = first_before + where(sharing.running[i] == 1.0, i + 1.0, 0.0)
    fit(sharing, left + coming, slots)
    later = zero
    for i in range(slots):
        later = maximum(later, sharing.fitting[i])
    fit(sharing, left, slots)
    fitting, first_place = zero, zero + math.inf
    for i in range(slots):
        fitting = maximum(fitting, sharing.fitting[i])
        place = where(sharing.place[i] > 0.0, sharing.place[i], math.inf)
        first_place = minimum(first_place, place)
    alone = (fitting == 0.0) & (later == 0.0) & (sharing.danger < 1.0)
    first, waiting = zero, zero
    for i in range(slots):
        begins = alone & (sharing.place[i] == first_place) & (sharing.place[i] > 0.0)
        sharing.running[i] = where(begins, 1.0, sharing.fitting[i])
        runs = sharing.running[i] > 0.0
        waits = where(runs, 0.0, where(sharing.place[i] > 0.0, 1.0, 0.0))
        waiting = waiting + waits
        sharing.waiting[i] = maximum(waits, sharing.held_back[i])
        first = first + where(sharing.running[i] == 1.0, i + 1.0, 0.0)
    begun = (waiting == 0.0) | (first < first_before) | (first > first_before)
    sharing.turn_since_s = where(begun, time_s, sharing.turn_since_s)
    _set_shares(node, sharing, room, slots)


@model
def _give_parts_of_what_is_too_big(
    sharing: Sharing, most: float, time_s: float, slots: int
) -> None:
    """Let groups share that have not fitted for a while even with all others at their least.

    In danger, they wait.
    """
    least = 0.0 * most
    for i in range(slots):
        least = least + sharing.least[i]
    for i in range(slots):
        ratio = where(sharing.running[i] > 0.0, KEEPS_RATIO, 1.0)
        fits = ratio * sharing.want[i] <= most - (least - sharing.least[i])
        lately = fits | (sharing.whole[i] == 0.0) | (sharing.fitted_s[i] < 0.0)
        sharing.fitted_s[i] = where(lately, time_s, sharing.fitted_s[i])
        attainable = time_s - sharing.fitted_s[i] <= NEVER_FITS_S
        too_big = where(attainable, 0.0, sharing.whole[i])
        waits = where(sharing.danger >= 1.0, too_big, 0.0)
        sharing.whole[i] = sharing.whole[i] - too_big
        sharing.held_back[i] = sharing.held_back[i] + waits
        sharing.partial[i] = sharing.partial[i] + too_big - waits


@model
def _update_order(sharing: Sharing, numbers: Numbers, time_s: float, slots: int) -> None:
    """Let groups enter and leave the order of turns, and end the first one's turn."""
    for i in range(slots):
        enters = (sharing.whole[i] > 0.0) & (sharing.place[i] == 0.0)
        sharing.last_place = sharing.last_place + where(enters, 1.0, 0.0)
        kept = where(sharing.whole[i] > 0.0, sharing.place[i], 0.0)
        sharing.place[i] = where(enters, sharing.last_place, kept)
    over = time_s - sharing.turn_since_s > numbers.turn_s
    ends = 0.0 * time_s
    for i in range(slots):
        ends = ends + where((sharing.running[i] == 1.0) & over, 1.0, 0.0)
    for i in range(slots):
        first = (sharing.running[i] == 1.0) & over & (sharing.place[i] > 0.0)
        sharing.last_place = sharing.last_place + where(first, 1.0, 0.0)
        sharing.place[i] = where(first, sharing.last_place, sharing.place[i])
    for i in range(slots):
        sharing.running[i] = where(ends > 0.0, 0.0, sharing.running[i])


@model
def _set_shares(node: Node, sharing: Sharing, room: float, slots: int) -> None:
    zero = 0.0 * room
    left, least, weight, unpaused = room, zero, zero, zero
    for i in range(slots):
        waits = sharing.waiting[i] > 0.0
        sharing.share[i] = where(waits, node.floor_bytes[i], 0.0)
        left = left - where(waits, sharing.least[i], 0.0)
        least = least + sharing.partial[i] * sharing.least[i]
        weight = weight + sharing.partial[i] * sharing.weight[i]
        runs = where(sharing.running[i] > 0.0, 1.0, 0.0)
        unpaused = unpaused + sharing.partial[i] + runs
    for rank in range(slots):
        for i in range(slots):
            now = sharing.running[i] == rank + 1.0
            share = maximum(minimum(sharing.want[i], left - least), node.floor_bytes[i])
            sharing.share[i] = where(now, share, sharing.share[i])
            left = where(now, maximum(left - share, 0.0), left)
    left = _water_fill(node, sharing, maximum(left, 0.0), weight, slots)
    each = left / maximum(unpaused, 1.0)
    for i in range(slots):
        gets = sharing.partial[i] + where(sharing.running[i] > 0.0, 1.0, 0.0)
        sharing.share[i] = sharing.share[i] + gets * each


@model
def _water_fill(node: Node, sharing: Sharing, room: float, weight: float, slots: int) -> float:
    """Divide ``room`` among the groups that can use a part; return what is left over."""
    none = 0.0 * room - 1.0
    done_key, done_slot = none, none
    for _ in range(slots):
        key, slot = none + math.inf, none + math.inf
        for i in range(slots):
            mine = sharing.want[i] / sharing.weight[i]
            after = (mine > done_key) | ((mine == done_key) & (i * 1.0 > done_slot))
            better = after & (sharing.partial[i] > 0.0) & (mine < key)
            key, slot = where(better, mine, key), where(better, i * 1.0, slot)
        for i in range(slots):
            now = slot == i * 1.0
            part = room * sharing.weight[i] / maximum(weight, 1e-9)
            share = maximum(minimum(sharing.want[i], part), node.floor_bytes[i])
            sharing.share[i] = where(now, share, sharing.share[i])
            weight = weight - where(now, sharing.weight[i], 0.0)
            room = where(now, maximum(room - share, 0.0), room)
        done_key, done_slot = key, slot
    return room
