"""The levers of the nodes: the history of each slot's pause and limit, and the guard.

The rules are those of ``stallward.actuator.guard.guard`` and
``stallward.actuator.guard.slot_tracker``. A test checks that both give the same answers. The
guard's budget of holds without memory pressure is left out: no episode is long enough for it.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.guard.slot_tracker import (
    NEVER_PAUSED_S,
    REFERENCE_DECAY_S,
    SHARE_WINDOW_S,
    STARTED_BYTES,
)
from stallward.agent.desired import LIMIT_RATIOS, LIMIT_SLACK_RATIO, SLOTS
from stallward.env.twin.inputs.exogenous import PAGE_BYTES
from stallward.env.twin.physics.pages import ANON, COLD, FILE, POOLS
from stallward.env.twin.physics.state import Node
from stallward.env.twin.physics.tick import TICK_S
from stallward.env.twin.simd.backend import WIDTH
from stallward.env.twin.simd.jit import model
from stallward.env.twin.simd.layout import tiles
from stallward.env.twin.simd.one_lane import exchange
from stallward.env.twin.simd.values import floor, is_nan, maximum, minimum, negate, where

SHARE_TICKS: Final = round(SHARE_WINDOW_S / TICK_S)
_DECAY_PER_TICK: Final = math.exp(-TICK_S / REFERENCE_DECAY_S)
"""The factor on the reference of an unpaused, unlimited group in a tick."""
_RATIOS: Final = np.array(LIMIT_RATIOS)
_LEVELS: Final = len(LIMIT_RATIOS)
Ring = NDArray[np.uint8]
"""Whether each slot was paused in each tick of the last minute, ``(SHARE_TICKS, SLOTS, B)``."""


def make_ring(nodes: int) -> Ring:
    """Make the ring of ``nodes`` nodes whose slots have never been paused."""
    return np.zeros((SHARE_TICKS, SLOTS, tiles(nodes) * WIDTH), dtype=np.uint8)


class Rules(NamedTuple):
    """The budgets of the guard, in the form that compiled code takes."""

    lifted: float
    """1 if the budgets are lifted, else 0."""
    max_pause_s: float
    max_pause_share: float
    min_run_s: float
    late_allowance_s: float


def rules_of(budgets: Budgets) -> Rules:
    """Convert budgets to the rules of twin nodes."""
    lifted = budgets.lift_budgets
    return Rules(
        lifted=float(lifted),
        max_pause_s=math.inf if lifted else budgets.max_pause_s,
        max_pause_share=math.inf if lifted else budgets.max_pause_share,
        min_run_s=-math.inf if lifted else budgets.min_run_s,
        late_allowance_s=budgets.late_allowance_s,
    )


@model
def reference_bytes(node: Node, i: int) -> float:
    """Return the memory that the group holds without a limit or pause; NaN while it starts."""
    return where(node.kept_bytes[i] >= STARTED_BYTES, node.kept_bytes[i], math.nan)


@model
def paused_share(node: Node, i: int) -> float:
    """Return the share of the last minute in which the slot was paused."""
    return node.paused_ticks[i] * (TICK_S / SHARE_WINDOW_S)


@model
def may_pause(node: Node, rules: Rules, i: int) -> bool:
    """Return whether the guard lets a slot be paused for the next tick."""
    ahead_s = TICK_S + rules.late_allowance_s
    short = node.paused_for_s[i] + ahead_s <= rules.max_pause_s + 1e-9
    ran = (node.paused[i] > 0.0) | (node.since_thaw_s[i] >= rules.min_run_s - 1e-9)
    share = paused_share(node, i) + ahead_s / SHARE_WINDOW_S
    return short & ran & (share <= rules.max_pause_share + 1e-9)


@model
def wanted_limit_bytes(node: Node, level: float, i: int) -> float:
    """Return the limit of an action's level; NaN for none and while the group starts.

    While it is close to the limit in force, that one is kept.
    """
    reference, ratio = reference_bytes(node, i), 1.0
    for k in range(1, _LEVELS):
        ratio = where(level >= float(k), _RATIOS[k], ratio)
    limit, before = floor(reference * ratio), node.limit_bytes[i]
    near = maximum(limit - before, before - limit) < LIMIT_SLACK_RATIO * before
    limit = maximum(where(near, before, limit), node.floor_bytes[i])
    return where((level == 0.0) | is_nan(reference), math.nan, limit)


@model
def granted_limit_bytes(node: Node, rules: Rules, want: float, paused: float, i: int) -> float:
    """Return the limit that the guard grants.

    It is at most one level tighter than before unless the slot is paused, and never below the
    floor. It is NaN (no limit) while the group starts.
    """
    before, reference = node.limit_bytes[i], reference_bytes(node, i)
    limit = maximum(want, node.floor_bytes[i])
    ratio = where(is_nan(before), 1.0, before / reference)
    # A limit above the reference counts as level 0, from which the next tighter one is level 1.
    following = _RATIOS[1]
    for k in range(_LEVELS):
        tighter = _RATIOS[min(k + 1, _LEVELS - 1)]
        nearly = _RATIOS[k] * (1.0 + LIMIT_SLACK_RATIO)
        following = where(ratio <= nearly, tighter, following)
    lowest = maximum(floor(reference * following), node.floor_bytes[i])
    paced = maximum(limit, where(is_nan(before), lowest, minimum(lowest, before)))
    free = (paused + rules.lifted > 0.0) | (limit >= before)
    none = is_nan(want) | is_nan(reference)
    return where(none, math.nan, where(free, limit, paced))


@model
def apply(node: Node, paused: float, limit_bytes: float, i: int) -> float:
    """Apply the granted settings of a slot; return how many levers moved."""
    before, limit_before = node.paused[i], node.limit_bytes[i]
    same = (limit_bytes == limit_before) | (is_nan(limit_bytes) & is_nan(limit_before))
    moved = where(paused == before, 0.0, 1.0) + where(same, 0.0, 1.0)
    thawed = before > paused
    stays = (before > 0.0) & (paused > 0.0)
    node.since_thaw_s[i] = where(thawed, 0.0, node.since_thaw_s[i])
    node.paused_for_s[i] = where(stays, node.paused_for_s[i], 0.0)
    node.paused[i], node.limit_bytes[i] = paused, limit_bytes
    node.want_paused[i] = paused
    limited = negate(is_nan(limit_bytes))
    node.want_limit_pages[i] = where(limited, limit_bytes / PAGE_BYTES, math.inf)
    return moved


@model
def held_bytes(node: Node, i: int) -> float:
    """Return the bytes that a slot holds in memory and swap."""
    # File pages that are not resident are on disk only.
    first = (1 + i) * POOLS
    pages = node.wanted[first + ANON] + node.resident[first + FILE] + node.resident[first + COLD]
    return pages * PAGE_BYTES


@model
def advance(node: Node, ring: Ring, held: float, at: int, tick: int, i: int) -> None:
    """Update the history of slot ``i`` after a tick, for the eight nodes from ``at`` on.

    Args:
        node: The eight nodes.
        ring: Whether each slot was paused, of all nodes.
        held: Bytes that the slot holds, swap included.
        at: The first of the eight nodes.
        tick: The number of ticks before.
        i: The slot.
    """
    paused = node.paused[i]
    stopped = paused > 0.0
    node.paused_for_s[i] = node.paused_for_s[i] + paused * TICK_S
    ran_s = minimum(node.since_thaw_s[i] + TICK_S, NEVER_PAUSED_S)
    node.since_thaw_s[i] = where(stopped, 0.0, ran_s)
    left = exchange(ring[tick % SHARE_TICKS, i], at, paused)
    node.paused_ticks[i] = node.paused_ticks[i] + paused - left
    free = (paused == 0.0) & is_nan(node.limit_bytes[i])
    decay = where(free & (node.seen > 0.0), _DECAY_PER_TICK, 1.0)
    kept = node.kept_bytes[i] * decay
    node.kept_bytes[i] = where(stopped, kept, maximum(held, kept))
