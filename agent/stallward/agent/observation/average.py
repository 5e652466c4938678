"""Averages in which the past is slowly forgotten. Pure."""

from __future__ import annotations

import math


def moved(average: float, value: float, elapsed_s: float, time_constant_s: float) -> float:
    """The average after one more value, of what happened in the time that has passed."""
    return average + (1.0 - math.exp(elapsed_s / -time_constant_s)) * (value - average)
