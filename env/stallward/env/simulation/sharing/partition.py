"""``partition`` on twin nodes: the same decisions as ``stallward.agent.controllers.partition``.

A node decides once per tick in Python. Training needs the decisions of thousands of nodes, so
they are made here in compiled code. Demand, danger and loan are those of a node, by the same functions
(``simd.laws``). Where a node works with lists and with what is absent, as in turns, the rule is
written for vectors again, and a test checks that both give the same limits and pauses.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from stallward.agent.applications import ANON_BAND
from stallward.agent.desired import (
    FLUSH,
    KEEP_ANON,
    LIMIT_SLACK_RATIO,
    NORMAL_CPU_WEIGHT,
    PROFILES,
    SLOTS,
)
from stallward.agent.observation.demand import followed_demand
from stallward.agent.set_points import KEPT, SHARING_TUNINGS, WEIGHTS, SlotShare
from stallward.agent.sharing.caution import follow_danger
from stallward.agent.sharing.counter_rate import elapsed_since
from stallward.agent.sharing.lending import follow_loan, idle_bytes
from stallward.agent.sharing.reading_back import READ_AGAIN_S, SPARE_SHARE, SWAPPED_BYTES
from stallward.env.simulation.sharing import estimates
from stallward.env.simulation.sharing.division import divide, gains
from stallward.env.simulation.sharing.state import Numbers, Sharing
from stallward.env.twin.frame import Frame
from stallward.env.twin.inputs.exogenous import PAGE_BYTES
from stallward.env.twin.physics.state import Node
from stallward.env.twin.simd.jit import model
from stallward.env.twin.simd.laws import law
from stallward.env.twin.simd.layout import Rows
from stallward.env.twin.simd.records import local_rows
from stallward.env.twin.simd.values import floor, is_nan, maximum, minimum, where

for _rule in (elapsed_since, followed_demand, follow_danger, follow_loan, idle_bytes):
    law(_rule)

_NORMAL_WEIGHT: Final = float(NORMAL_CPU_WEIGHT)
_SHARES: Final = len(SlotShare)
_WEIGHTS: Final = np.array(WEIGHTS)
_KEPT: Final = len(KEPT)
_LENT: Final = np.array([math.nan if k.lent_share is None else k.lent_share for k in KEPT])
_RESERVED: Final = np.array([k.reserve_share for k in KEPT])
_TUNINGS: Final = len(SHARING_TUNINGS)
_PROFILES: Final = np.array([PROFILES.index(t) if t else math.nan for t in SHARING_TUNINGS])
_KEEP_ANON, _FLUSH = float(PROFILES.index(KEEP_ANON)), float(PROFILES.index(FLUSH))
_AUTO, _WAIT, _WHOLE = float(SlotShare.AUTO), float(SlotShare.WAIT), float(SlotShare.WHOLE)


@model
def partition(
    node: Node,
    frame: Frame,
    sharing: Sharing,
    numbers: Numbers,
    action: Rows,
    paused: Rows,
    limit_bytes: Rows,
    slots: int,
) -> float:
    """Divide the memory of the nodes for the next tick.

    Args:
        node: The nodes; swapped pages may be asked for.
        frame: What they report.
        sharing: The state of the rule.
        numbers: Its numbers.
        action: The set-points, in the order of ``SET_POINT_SIZES``.
        paused: Set to 1 for each slot that is to be paused, else 0.
        limit_bytes: Set to the limit of each slot; NaN for none.
        slots: How many slots are in use.

    Returns:
        The index of the tuning profile.
    """
    time_s = frame.time_s
    elapsed_s = elapsed_since(sharing.time_s, time_s)
    sharing.time_s = time_s
    zone = frame.zone_limit_bytes
    demand = sharing.demand_bytes = followed_demand(
        sharing.demand_bytes,
        frame.protected_usage_bytes,
        frame.protected_swap_bytes,
        frame.protected_working_set_bytes,
        numbers.forget_s,
        elapsed_s,
    )
    kept, zero = action[SLOTS], 0.0 * demand
    lent_share, reserved, profile = zero + math.nan, zero, zero + math.nan
    for k in range(_KEPT):
        lent_share = where(kept == float(k), _LENT[k], lent_share)
        reserved = where(kept == float(k), _RESERVED[k], reserved)
    for k in range(_TUNINGS):
        profile = where(action[SLOTS + 1] == float(k), _PROFILES[k], profile)
    margin = (numbers.margin_share + reserved) * zone
    base = zone - demand - margin
    total, present = _set_wants(node, frame, sharing, numbers, action, elapsed_s, slots)
    free = estimates.free_bytes(frame)
    short = free <= margin + sharing.reserve_share * zone
    follow_danger(
        sharing,
        numbers,
        elapsed_s,
        frame.latency_p95_ms / frame.slo_ms,
        frame.latency_age_s,
        frame.protected_psi_memory_some_us,
        frame.protected_refault_pages,
        short,
    )
    reserve = sharing.reserve_share * zone
    lendable = idle_bytes(demand, frame.protected_anon_bytes, frame.protected_swap_bytes)
    anon_share, threshold = 1.0 - lendable / maximum(demand, 1.0), numbers.keep_anon_share
    of_one = frame.largest_anon_share
    keeps = where(of_one > threshold, of_one, anon_share) - threshold
    clear = maximum(keeps, -keeps) > ANON_BAND
    sharing.keeps_anon = where(clear, where(keeps > 0.0, 1.0, 0.0), sharing.keeps_anon)
    own_profile = where(sharing.keeps_anon > 0.0, _KEEP_ANON, _FLUSH)
    profile = where(is_nan(profile), own_profile, profile)
    auto = is_nan(lent_share)
    most_lent = minimum(numbers.most_lent_share * demand, lendable)
    needed = (total > base) & gains(sharing, maximum(base, 0.0), most_lent, slots)
    most_lent = where(auto, most_lent, lent_share * lendable)
    followed = where(auto, math.nan, most_lent / maximum(demand, 1.0))
    used = maximum(_used_bytes(frame, slots) - base, 0.0) / maximum(demand, 1.0)
    stalls = sharing.stall_share >= numbers.recall_stall_share
    grows = follow_loan(
        sharing, numbers, elapsed_s, sharing.latency_ratio, needed, followed, stalls, used
    )
    lent = minimum(sharing.lent_share * demand, lendable)
    sharing.near_s = where(total > numbers.near_share * base, time_s, sharing.near_s)
    released = (present == 0.0) | (time_s - sharing.near_s > numbers.release_after_s)
    room = maximum(base + lent - reserve, 0.0)
    coming = where(grows, most_lent - lent, 0.0)
    _divide_unless(node, sharing, numbers, room, coming, time_s, released, slots)
    for i in range(slots):
        paused[i] = where(released, 0.0, sharing.waiting[i])
        node.cpu_weight[i] = where(released, _NORMAL_WEIGHT, numbers.background_cpu_weight)
        limit, before = maximum(floor(sharing.share[i]), 1.0), node.limit_bytes[i]
        near = maximum(limit - before, before - limit) < LIMIT_SLACK_RATIO * before
        limit_bytes[i] = where(released, math.nan, where(near, before, limit))
    _read_back(node, frame, sharing, free, zone, released)
    return where(released, 0.0, profile)


@model
def _used_bytes(frame: Frame, slots: int) -> float:
    """Return what all groups hold in memory."""
    total = 0.0 * frame.time_s
    for i in range(slots):
        total = total + where(frame.present[i] > 0.0, frame.usage_bytes[i], 0.0)
    return total


@model
def _set_wants(
    node: Node,
    frame: Frame,
    sharing: Sharing,
    numbers: Numbers,
    action: Rows,
    elapsed_s: float,
    slots: int,
) -> tuple[float, float]:
    """Set what each group wants; return the sum, and how many groups there are."""
    total = 0.0 * elapsed_s
    present = total
    for i in range(slots):
        there, chosen = frame.present[i] > 0.0, action[i]
        thrashes = estimates.update_thrashing(frame, sharing, numbers, elapsed_s, i)
        want = estimates.wanted_bytes(frame, numbers, i)
        want = where(there, want, 0.0)
        sharing.want[i], sharing.least[i] = want, minimum(want, node.floor_bytes[i])
        all_or_nothing = where(thrashes, 1.0, 0.0)
        all_or_nothing = where(chosen == _AUTO, all_or_nothing, 0.0)
        all_or_nothing = where(chosen == _WHOLE, 1.0, all_or_nothing)
        sharing.whole[i] = where(there, all_or_nothing, 0.0)
        sharing.held_back[i] = where(there & (chosen == _WAIT), 1.0, 0.0)
        part = where(there, 1.0, 0.0) - sharing.whole[i] - sharing.held_back[i]
        sharing.partial[i], weight = part, where(there, 1.0, 1.0)
        for k in range(_SHARES):
            weight = where(chosen == float(k), _WEIGHTS[k], weight)
        sharing.weight[i] = weight
        total, present = total + want, present + where(there, 1.0, 0.0)
    return total, present


@model
def _divide_unless(
    node: Node,
    sharing: Sharing,
    numbers: Numbers,
    room: float,
    coming: float,
    time_s: float,
    released: bool,
    slots: int,
) -> None:
    """Divide the room; on nodes whose groups are released, nobody's turn changes."""
    since_s, last_place = sharing.turn_since_s, sharing.last_place
    place, running, fitted_s = local_rows(SLOTS), local_rows(SLOTS), local_rows(SLOTS)
    for i in range(slots):
        place[i], running[i] = sharing.place[i], sharing.running[i]
        fitted_s[i] = sharing.fitted_s[i]
    divide(node, sharing, numbers, room, coming, time_s, slots)
    sharing.turn_since_s = where(released, since_s, sharing.turn_since_s)
    sharing.last_place = where(released, last_place, sharing.last_place)
    for i in range(slots):
        sharing.place[i] = where(released, place[i], sharing.place[i])
        sharing.running[i] = where(released, running[i], sharing.running[i])
        sharing.fitted_s[i] = where(released, fitted_s[i], sharing.fitted_s[i])


@model
def _read_back(
    node: Node, frame: Frame, sharing: Sharing, free: float, zone: float, released: bool
) -> None:
    """Ask for the application's swapped pages where there is room for them."""
    swapped, time_s = frame.protected_swap_bytes, frame.time_s
    fits = free > swapped + SPARE_SHARE * zone
    due = (time_s - sharing.read_back_s > READ_AGAIN_S) & fits
    asks = where(released, 0.0, where(swapped > SWAPPED_BYTES, 1.0, 0.0))
    asks = where(due, asks, 0.0)
    sharing.read_back_s = where(asks > 0.0, time_s, sharing.read_back_s)
    node.read_back_pages = where(asks > 0.0, swapped / PAGE_BYTES, node.read_back_pages)
