"""The pages that the groups of the twin's nodes own and hold."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.env.twin.pages import GROUPS, POOLS

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

_WARMTH_S: Final = 0.5
"""Time constant with which a page's warmth follows how often it is touched."""


class Memory:
    """The pages of ``B`` nodes.

    Attributes:
        resident, wanted: ``(GROUPS, POOLS, B)`` pages in memory and owned.
        dirty: Dirty pages of the cold pools, ``(GROUPS, B)``.
        touches_per_s: How often each page of a pool was touched of late, as ``resident``.
    """

    def __init__(self, batch: int) -> None:
        self.resident = np.zeros((GROUPS, POOLS, batch))
        self.wanted = np.zeros((GROUPS, POOLS, batch))
        self.dirty = np.zeros((GROUPS, batch))
        self.touches_per_s = np.zeros((GROUPS, POOLS, batch))

    def reset(self, index: NDArray[np.int64]) -> None:
        """Empty the nodes ``index``."""
        for array in (self.resident, self.wanted, self.dirty, self.touches_per_s):
            array[..., index] = 0.0

    def free(self, ended: Mask) -> None:
        """The programs of the slots in ``ended`` ``(SLOTS, B)`` are gone, with their pages."""
        gone = np.broadcast_to(ended[:, None], self.resident[1:].shape)
        self.resident[1:][gone] = 0.0
        self.wanted[1:][gone] = 0.0
        self.touches_per_s[1:][gone] = 0.0
        self.dirty[1:][ended] = 0.0


def warmed(before: Array, touches_per_s: Array, elapsed_s: float) -> Array:
    """The warmth of pages after they were touched ``touches_per_s`` times for a moment."""
    return np.asarray(before + (elapsed_s / _WARMTH_S) * (touches_per_s - before))
