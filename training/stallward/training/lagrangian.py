"""Prices of constraints (Lagrange multipliers), which follow what the application suffers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from stallward.env.objective import Array

_LEAST_ALLOWED: Final = 0.02
"""An excess is measured relative to what is allowed, and to this where less is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRange:
    """The bounds of the prices.

    The score subtracts ``PENALTIES``; prices far above them would give up background progress for
    an improvement that no score rewards. The severity of a missed window is about a quarter.
    """

    least: float = 0.05
    """The lower bound of every price."""
    most: tuple[float, float, float] = (40.0, 4.0, 20.0)
    """The upper bound of the price of each of ``stallward.env.simulation.step.COSTS``."""

    def clip(self, prices: Array) -> Array:
        """Clip prices of shape ``(len(COSTS), ...)`` to the bounds."""
        most = np.reshape(self.most, (-1,) + (1,) * (prices.ndim - 1))
        return np.asarray(np.clip(prices, self.least, most))


def updated_prices(
    prices: Array, suffered: Array, allowed: Array, rate: float, bounds: PriceRange
) -> Array:
    """Raise the prices where more is suffered than is allowed, and lower them where less is.

    Args:
        prices: The current prices, ``(len(COSTS), ...)``.
        suffered: What was suffered since the last update, the same shape; NaN leaves the price as
            it is.
        allowed: How much of it is allowed, broadcast to the same shape.
        rate: The largest change of the logarithm of a price.
        bounds: The bounds of the prices.

    Returns:
        The new prices, the same shape.
    """
    excess = np.nan_to_num(suffered - allowed) / np.maximum(allowed, _LEAST_ALLOWED)
    return bounds.clip(prices * np.exp(rate * np.clip(excess, -1.0, 1.0)))


def exponential_average(average: Array, new: Array, weight: float) -> Array:
    """One step of an exponential moving average; NaN in one argument is taken from the other."""
    known = np.where(np.isnan(average), new, average)
    return np.asarray(known + weight * (np.where(np.isnan(new), known, new) - known))
