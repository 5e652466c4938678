"""Prices of constraints that follow what an application suffers (Lagrange multipliers)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from stallward.env.objective import Array

_PACE: Final = 0.02
"""A share that is so much over what is allowed moves its price as fast as may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRange:
    """Bounds of the prices that follow what an application suffers.

    The score takes no more off than ``PENALTIES``: much higher prices would buy what nobody asks
    for with the background's progress. The severity of a missed window is about a quarter.
    """

    least: float = 0.05
    most: tuple[float, float, float] = (40.0, 4.0, 20.0)
    """For each of ``COSTS``."""

    def clip(self, prices: Array) -> Array:
        """Prices of each of ``COSTS``, ``(len(COSTS), ...)``, within the bounds."""
        most = np.reshape(self.most, (-1,) + (1,) * (prices.ndim - 1))
        return np.asarray(np.clip(prices, self.least, most))


def moved_prices(
    prices: Array, suffered: Array, allowed: Array, rate: float, bounds: PriceRange
) -> Array:
    """Prices a step later: higher where more is suffered than is allowed, lower where less is.

    Args:
        prices: In force, ``(len(COSTS), ...)``; the rest fits it. What is not known moves nothing.
        suffered: Since the step before.
        allowed: Of it.
        rate: By how much a price moves at most, as a logarithm.
        bounds: Of the prices.
    """
    over = np.nan_to_num(suffered - allowed) / np.maximum(allowed, _PACE)
    return bounds.clip(prices * np.exp(rate * np.clip(over, -1.0, 1.0)))


def smoothed(before: Array, new: Array, weight: float) -> Array:
    """``before`` moved towards ``new`` by ``weight``; what one does not know the other says."""
    known = np.where(np.isnan(before), new, before)
    return np.asarray(known + weight * (np.where(np.isnan(new), known, new) - known))
