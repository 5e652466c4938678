"""Levers of many nodes at once: what a slot's pause and limit have been doing, and the guard.

The rules are those of ``stallward.actuator.guard`` and ``stallward.actuator.slots``, on arrays;
a test holds both to the same answers.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.actuator.guard import Budgets
from stallward.actuator.slots import NEVER_PAUSED_S, REFERENCE_DECAY_S, SHARE_WINDOW_S
from stallward.agent.desired import LIMIT_RATIOS, SLOTS

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

_RATIOS: Final = np.array(LIMIT_RATIOS)


class LeverStates:
    """The state of every slot's levers, shape ``(SLOTS, B)`` each.

    Attributes:
        paused: Whether the slot is paused.
        limit_bytes: Its limit; NaN for none.
        reference_bytes: What it used when last unlimited; NaN while unknown.
        paused_for_s, since_thaw_s, paused_share: As in ``SlotState``.
    """

    def __init__(self, batch: int, tick_s: float) -> None:
        self._tick_s = tick_s
        self._ring = np.zeros((round(SHARE_WINDOW_S / tick_s), SLOTS, batch), dtype=np.uint8)
        self._at = 0
        shape = (SLOTS, batch)
        self._unseen_s = np.zeros(shape)
        self.paused = np.zeros(shape, dtype=bool)
        self.limit_bytes = np.full(shape, np.nan)
        self.reference_bytes = np.full(shape, np.nan)
        self.paused_for_s = np.zeros(shape)
        self.since_thaw_s = np.full(shape, NEVER_PAUSED_S)
        self._paused_ticks = np.zeros(shape)

    @property
    def paused_share(self) -> Array:
        """Share of the last minute spent paused."""
        return self._paused_ticks * (self._tick_s / SHARE_WINDOW_S)

    def reset(self, rows: Mask) -> None:
        """Release the levers of the nodes in ``rows`` and forget their past."""
        self._ring[:, :, rows] = 0
        self.paused[:, rows] = False
        self.limit_bytes[:, rows] = np.nan
        self.reference_bytes[:, rows] = np.nan
        self.paused_for_s[:, rows] = 0.0
        self.since_thaw_s[:, rows] = NEVER_PAUSED_S
        self._paused_ticks[:, rows] = 0.0
        self._unseen_s[:, rows] = 0.0

    def apply(self, paused: Mask, limit_bytes: Array) -> Array:
        """Put granted settings in force; returns how many levers moved, ``(B,)``."""
        same = (limit_bytes == self.limit_bytes) | (
            np.isnan(limit_bytes) & np.isnan(self.limit_bytes)
        )
        moved = (paused != self.paused).sum(axis=0) + (~same).sum(axis=0)
        self.since_thaw_s = np.where(self.paused & ~paused, 0.0, self.since_thaw_s)
        self.paused_for_s = np.where(paused & self.paused, self.paused_for_s, 0.0)
        self.paused, self.limit_bytes = paused.copy(), limit_bytes.copy()
        return np.asarray(moved, dtype=np.float64)

    def advance(self, usage_bytes: Array) -> None:
        """A tick has passed; ``usage_bytes`` ``(SLOTS, B)`` is what the groups use now."""
        self.paused_for_s += self.paused * self._tick_s
        self.since_thaw_s = np.where(
            self.paused, 0.0, np.minimum(self.since_thaw_s + self._tick_s, NEVER_PAUSED_S)
        )
        self._paused_ticks += self.paused
        self._paused_ticks -= self._ring[self._at]
        self._ring[self._at] = self.paused
        self._at = (self._at + 1) % len(self._ring)
        free = ~self.paused & np.isnan(self.limit_bytes)
        self._unseen_s += self._tick_s
        kept = self.reference_bytes * np.exp(-self._unseen_s / REFERENCE_DECAY_S)
        self.reference_bytes = np.where(free, np.fmax(kept, usage_bytes), self.reference_bytes)
        self._unseen_s[free] = 0.0


def wanted_limit_bytes(levels: NDArray[np.int64], reference: Array, floors: Array) -> Array:
    """Limits of action levels, ``(SLOTS, B)``; NaN for none."""
    limit = np.maximum(np.floor(reference * _RATIOS[levels]), floors)
    return np.where(levels == 0, np.nan, limit)


def may_pause(states: LeverStates, budgets: Budgets, tick_s: float) -> Mask:
    """Where the guard lets a slot be paused for the coming tick, ``(SLOTS, B)``."""
    if budgets.lift_budgets:
        return np.ones_like(states.paused)
    too_long = states.paused & (states.paused_for_s + tick_s > budgets.max_pause_s + 1e-9)
    too_soon = ~states.paused & (states.since_thaw_s < budgets.min_run_s - 1e-9)
    share = states.paused_share + tick_s / SHARE_WINDOW_S
    return ~(too_long | too_soon | (share > budgets.max_pause_share + 1e-9))


def granted_limit_bytes(
    want: Array, states: LeverStates, floors: Array, paused: Mask, budgets: Budgets
) -> Array:
    """Limits let through: one level tighter at most unless paused, never below the floor."""
    before = states.limit_bytes
    limit = np.fmax(want, np.where(np.isnan(want), np.nan, floors))
    free = paused | (limit >= before) | budgets.lift_budgets
    ratio_before = np.where(np.isnan(before), 1.0, before / states.reference_bytes)
    level = (_RATIOS[:, None, None] >= ratio_before - 1e-6).sum(axis=0) - 1
    following = _RATIOS[np.clip(level + 1, 0, len(_RATIOS) - 1)]
    lowest = np.maximum(np.floor(states.reference_bytes * following), floors)
    lowest = np.fmin(lowest, before)
    paced = np.where(np.isnan(states.reference_bytes), before, np.maximum(limit, lowest))
    return np.where(np.isnan(want), np.nan, np.where(free, limit, paced))
