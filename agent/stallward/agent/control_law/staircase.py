"""From one number to an action: how far the background is held back, slot after slot.

Rules and PI control decide one thing, how much is to be withheld. A staircase turns it into
limit levels: each rung tightens one slot by one level, the first slot first. ``stagger`` says how
many levels a slot is ahead of the next: 0 tightens all together, as many as there are levels
makes them strictly take turns.
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
        present: ``(B, SLOTS)``.
        deepest: The tightest level used, ``(B,)`` or ``(1,)``.
        stagger: Levels that a slot is ahead of the next, as ``deepest``.

    Returns:
        ``(B, SLOTS)``; 0 for absent slots.
    """
    deepest, stagger = np.atleast_1d(deepest), np.minimum(stagger, deepest)
    behind = np.atleast_1d(stagger)[:, None] * ranks(present)
    level = np.clip(rung[:, None] - behind, 0.0, deepest[:, None])
    return np.where(present, level, 0.0).astype(np.int64)


def first_slots(count: Array, present: Mask) -> Mask:
    """The first ``count`` ``(B,)`` of the present slots, ``(B, SLOTS)``."""
    return np.asarray(present & (ranks(present) < count[:, None]))


def actions(paused: Mask, level: Levels, profile: Array) -> Levels:
    """The action of every node, ``(B, len(ACTION_SIZES))``."""
    action = np.zeros((len(paused), len(ACTION_SIZES)), dtype=np.int64)
    action[:, 0 : 2 * SLOTS : 2] = paused
    action[:, 1 : 2 * SLOTS : 2] = level
    action[:, -1] = profile
    return action
