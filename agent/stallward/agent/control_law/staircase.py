"""The staircase: turns one number, how far the background is held back, into an action.

Each rung of the staircase tightens the limit of one slot by one level, beginning with the first
slot. ``stagger`` is the number of levels by which a slot is ahead of the next. With 0 all slots
are tightened together; with the deepest level each slot is tightened fully before the next one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stallward.agent.control_law.signals import Array, Mask
from stallward.agent.desired import ACTION_SIZES, SLOTS

Levels = NDArray[np.int64]


def ranks(present: Mask) -> Levels:
    """The place of each slot among the present ones, 0 first, ``(B, SLOTS)``."""
    return np.asarray(np.cumsum(present, axis=1) - 1, dtype=np.int64)


def top_rung(present: Mask, deepest: Array, stagger: Array) -> Array:
    """The rung at which every present slot is at its deepest level, ``(B,)``."""
    last = np.maximum(present.sum(axis=1) - 1, 0)
    return np.asarray(deepest + np.minimum(stagger, deepest) * last, dtype=np.float64)


def levels(rung: Array, present: Mask, deepest: Array, stagger: Array) -> Levels:
    """Limit levels of a rung.

    Args:
        rung: How far the background is held back, whole numbers, ``(B,)``.
        present: Whether each slot has a group, ``(B, SLOTS)``.
        deepest: The tightest level used, ``(B,)`` or ``(1,)``.
        stagger: The levels that a slot is ahead of the next, in the shape of ``deepest``.

    Returns:
        The level of each slot, ``(B, SLOTS)``; 0 for absent slots.
    """
    deepest, stagger = np.atleast_1d(deepest), np.minimum(stagger, deepest)
    delay = np.atleast_1d(stagger)[:, None] * ranks(present)
    level = np.clip(rung[:, None] - delay, 0.0, deepest[:, None])
    return np.where(present, level, 0.0).astype(np.int64)


def first_slots(count: Array, present: Mask) -> Mask:
    """Whether each slot is among the first ``count`` present ones, ``(B, SLOTS)``."""
    return np.asarray(present & (ranks(present) < count[:, None]))


def actions(paused: Mask, level: Levels, profile: Array) -> Levels:
    """The action of every node, ``(B, len(ACTION_SIZES))``."""
    action = np.zeros((len(paused), len(ACTION_SIZES)), dtype=np.int64)
    action[:, 0 : 2 * SLOTS : 2] = paused
    action[:, 1 : 2 * SLOTS : 2] = level
    action[:, -1] = profile
    return action
