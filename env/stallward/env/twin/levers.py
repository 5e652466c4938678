"""Levers of many nodes at once: what a slot's pause and limit have been doing, and the guard.

The rules are those of ``stallward.actuator.guard`` and ``stallward.actuator.slots``, on arrays;
a test holds both to the same answers.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.actuator.guard import Budgets
from stallward.actuator.slots import (
    NEVER_PAUSED_S,
    REFERENCE_DECAY_S,
    SHARE_WINDOW_S,
    STARTED_BYTES,
)
from stallward.agent.desired import LIMIT_RATIOS, SLOTS

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

_RATIOS: Final = np.array(LIMIT_RATIOS)


class LeverStates:
    """The state of every slot's levers, shape ``(SLOTS, B)`` each.

    Attributes:
        paused: Whether the slot is paused.
        limit_bytes: Its limit; NaN for none.
        paused_for_s, since_thaw_s, paused_share: As in ``SlotState``.
    """

    def __init__(self, batch: int, tick_s: float) -> None:
        self._tick_s = tick_s
        self._ring = np.zeros((round(SHARE_WINDOW_S / tick_s), SLOTS, batch), dtype=np.uint8)
        self._at = 0
        shape = (SLOTS, batch)
        self._kept_bytes = np.zeros(shape)
        self._seen = np.zeros(batch, dtype=bool)
        self.paused = np.zeros(shape, dtype=bool)
        self.limit_bytes = np.full(shape, np.nan)
        self.paused_for_s = np.zeros(shape)
        self.since_thaw_s = np.full(shape, NEVER_PAUSED_S)
        self._paused_ticks = np.zeros(shape)

    @property
    def paused_share(self) -> Array:
        """Share of the last minute spent paused."""
        return self._paused_ticks * (self._tick_s / SHARE_WINDOW_S)

    @property
    def reference_bytes(self) -> Array:
        """What the group wants when nothing holds it back; NaN while it is still starting."""
        return np.where(self._kept_bytes >= STARTED_BYTES, self._kept_bytes, np.nan)

    def reset(self, rows: Mask) -> None:
        """Release the levers of the nodes in ``rows`` and forget their past."""
        self._ring[:, :, rows] = 0
        self.paused[:, rows] = False
        self.limit_bytes[:, rows] = np.nan
        self.paused_for_s[:, rows] = 0.0
        self.since_thaw_s[:, rows] = NEVER_PAUSED_S
        self._paused_ticks[:, rows] = 0.0
        self._kept_bytes[:, rows] = 0.0
        self._seen[rows] = False

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

    def advance(self, held_bytes: Array) -> None:
        """A tick has passed; the groups hold ``held_bytes`` ``(SLOTS, B)``, swap included."""
        self.paused_for_s += self.paused * self._tick_s
        self.since_thaw_s = np.where(
            self.paused, 0.0, np.minimum(self.since_thaw_s + self._tick_s, NEVER_PAUSED_S)
        )
        self._paused_ticks += self.paused
        self._paused_ticks -= self._ring[self._at]
        self._ring[self._at] = self.paused
        self._at = (self._at + 1) % len(self._ring)
        # As on a node, time is known from the second reading on.
        elapsed_s = np.where(self._seen, self._tick_s, 0.0)
        self._seen[:] = True
        free = ~self.paused & np.isnan(self.limit_bytes)
        self._kept_bytes *= np.where(free, np.exp(-elapsed_s / REFERENCE_DECAY_S), 1.0)
        self._kept_bytes = np.where(
            self.paused, self._kept_bytes, np.maximum(self._kept_bytes, held_bytes)
        )


def wanted_limit_bytes(levels: NDArray[np.int64], reference: Array, floors: Array) -> Array:
    """Limits of action levels, ``(SLOTS, B)``; NaN for none."""
    limit = np.maximum(np.floor(reference * _RATIOS[levels]), floors)
    return np.where(levels == 0, np.nan, limit)


def may_pause(states: LeverStates, budgets: Budgets, tick_s: float) -> Mask:
    """Where the guard lets a slot be paused for the coming tick, ``(SLOTS, B)``."""
    if budgets.lift_budgets:
        return np.ones_like(states.paused)
    ahead_s = tick_s + budgets.late_allowance_s
    too_long = states.paused_for_s + ahead_s > budgets.max_pause_s + 1e-9
    too_soon = ~states.paused & (states.since_thaw_s < budgets.min_run_s - 1e-9)
    share = states.paused_share + ahead_s / SHARE_WINDOW_S
    return ~(too_long | too_soon | (share > budgets.max_pause_share + 1e-9))


def granted_limit_bytes(
    want: Array, states: LeverStates, floors: Array, paused: Mask, budgets: Budgets
) -> Array:
    """Limits let through: one level tighter at most unless paused, never below the floor.

    None while the group is still starting.
    """
    before, reference = states.limit_bytes, states.reference_bytes
    limit = np.fmax(want, np.where(np.isnan(want), np.nan, floors))
    free = paused | (limit >= before) | budgets.lift_budgets
    ratio_before = np.where(np.isnan(before), 1.0, before / reference)
    level = (_RATIOS[:, None, None] >= ratio_before - 1e-6).sum(axis=0) - 1
    following = _RATIOS[np.clip(level + 1, 0, len(_RATIOS) - 1)]
    lowest = np.maximum(np.floor(reference * following), floors)
    paced = np.maximum(limit, np.fmin(lowest, before))
    return np.where(np.isnan(want) | np.isnan(reference), np.nan, np.where(free, limit, paced))
