"""How often the working set has which size, and around which sizes it gathers. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

BINS: Final = 256
_SMOOTHED: Final = 3.0
"""Standard deviation of the smoothing, in bins."""
_LEAST_SHARE: Final = 0.01
"""A mode holds at least this share of the time."""
_DIP: Final = 0.5
"""Between two modes the density falls below this share of the lower one."""

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeMode:
    """A size around which the working set gathers."""

    pages: float
    """Where the density is highest."""
    share: float
    """The share of the time with sizes from the dip below to the dip above."""


@dataclass(frozen=True, slots=True)
class SizeDistribution:
    """The distribution of the working-set size over time."""

    edges: Array
    """Borders of the bins, in pages."""
    shares: Array
    """Bin -> the share of the time."""
    smooth: Array
    """The same, smoothed."""
    modes: tuple[SizeMode, ...]
    """In the order of sizes."""


def size_distribution(pages: NDArray[np.int64]) -> SizeDistribution:
    """The distribution of sizes that were taken at regular times.

    A mode is a local maximum of the smoothed density that holds 1 % of the time or more, and from
    which the density falls to less than half on the way to any higher one.
    """
    if not pages.size:
        return SizeDistribution(np.zeros(1), np.zeros(0), np.zeros(0), ())
    low, high = int(pages.min()), int(pages.max())
    width = max((high - low + 1) / BINS, 1.0)
    count = int(np.ceil((high - low + 1) / width))
    edges: Array = np.linspace(low - 0.5, low - 0.5 + width * count, count + 1, dtype=np.float64)
    shares: Array = np.histogram(pages, edges)[0].astype(np.float64) / pages.size
    reach = np.arange(-int(3 * _SMOOTHED), int(3 * _SMOOTHED) + 1)
    weights = np.exp(-0.5 * (reach / _SMOOTHED) ** 2)
    # Beyond both ends there is nothing, so that modes at the ends are modes, too.
    spread = np.convolve(shares, weights / weights.sum())[reach.size // 2 :]
    smooth: Array = spread[:count].astype(np.float64)
    return SizeDistribution(edges, shares, smooth, _modes(edges, shares, smooth))


def _modes(edges: Array, shares: Array, smooth: Array) -> tuple[SizeMode, ...]:
    borders = [0, *_dips(smooth), smooth.size]
    middles = (edges[:-1] + edges[1:]) / 2.0
    found = []
    for begin, end in pairwise(borders):
        share = float(shares[begin:end].sum())
        if share >= _LEAST_SHARE:
            top = begin + int(np.argmax(smooth[begin:end]))
            found.append(SizeMode(pages=float(middles[top]), share=share))
    return tuple(found)


def _dips(smooth: Array) -> list[int]:
    """The bins at which one mode ends and the next begins."""
    dips: list[int] = []
    top = lowest = float(smooth[0])
    at = 0
    rising = True
    for place, value in enumerate(smooth.tolist()):
        if rising:
            top = max(top, value)
            if value < _DIP * top:
                rising, lowest, at = False, value, place
        elif value < lowest:
            lowest, at = value, place
        elif lowest < _DIP * value:
            dips.append(at)
            rising, top = True, value
    return dips
