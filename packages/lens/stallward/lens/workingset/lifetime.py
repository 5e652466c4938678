"""Lifetime functions and what follows from them. Pure.

The lifetime g is the mean time between faults, against the mean resident size x (Belady and
Kuehner, 1969; Denning, 1980). Its primary knee is the maximum of g(x) / x. Below the knee is the
inflection, where g'' changes its sign: g rises most steeply there.

The space-time product is what a program costs: memory, summed over the time for which it runs or
waits, C = sum of s(t) + D sum of s(t_i) + gamma sum of s(t_i), where a fault takes D and costs the
system gamma, and s(t_i) is the resident size at fault i. In the mean it is, for each unit of time
for which the program runs, x + x (D + gamma) / g(x).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.lens.workingset.lru.stack_distances import LruCurve
from stallward.lens.workingset.working_set import WorkingSetCurve

_STEPS: Final = 400
"""Sizes at which the slope is looked at, equally far apart in their logarithm."""
_SMOOTHED: Final = 12.0
"""Standard deviation of the smoothing, in steps."""
_LEAST_POINTS: Final = 8

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A lifetime function: points in the order of rising windows or sizes of memory."""

    parameter: NDArray[np.int64]
    """The window, or the pages of memory."""
    mean_pages: Array
    """x."""
    lifetime: Array
    """g: time between faults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LifetimePoint:
    """A point of a lifetime function."""

    parameter: int
    mean_pages: float
    lifetime: float


def working_set_lifetime(curve: WorkingSetCurve) -> Lifetime:
    """The lifetime function under the working-set policy."""
    return Lifetime(curve.thetas, curve.mean_pages, _lifetimes(curve.time, curve.faults))


def vmin_lifetime(curve: WorkingSetCurve) -> Lifetime:
    """The lifetime function under VMIN, which no policy exceeds."""
    return Lifetime(curve.thetas, curve.vmin_mean_pages, _lifetimes(curve.time, curve.faults))


def lru_lifetime(curve: LruCurve) -> Lifetime:
    """The lifetime function under LRU."""
    return Lifetime(curve.sizes, curve.mean_pages, _lifetimes(curve.time, curve.faults))


def _lifetimes(time: int, faults: NDArray[np.int64] | Array) -> Array:
    return np.asarray(time / np.maximum(faults, 1.0))


def primary_knee(function: Lifetime) -> LifetimePoint:
    """The maximum of g(x) / x; the first, if there are several. There is at least one point."""
    return _point(function, int(np.argmax(function.lifetime / function.mean_pages)))


def inflection(function: Lifetime) -> LifetimePoint | None:
    """Where g rises most steeply below its primary knee.

    ``None`` if the knee is too close to the begin of the function to say.
    """
    knee = int(np.argmax(function.lifetime / function.mean_pages))
    sizes, lifetimes = function.mean_pages[: knee + 1], function.lifetime[: knee + 1]
    if np.unique(sizes).size < _LEAST_POINTS or sizes[-1] <= sizes[0]:
        return None
    grid = np.geomspace(sizes[0], sizes[-1], _STEPS)
    reach = np.arange(-int(3 * _SMOOTHED), int(3 * _SMOOTHED) + 1)
    weights = np.exp(-0.5 * (reach / _SMOOTHED) ** 2)
    padded = np.pad(np.interp(grid, sizes, lifetimes), reach.size // 2, mode="reflect",
                    reflect_type="odd")  # fmt: skip
    smooth = np.convolve(padded, weights / weights.sum(), mode="valid")
    steepest = grid[int(np.argmax(np.gradient(smooth, grid)))]
    return _point(function, int(np.argmin(np.abs(sizes - steepest))))


def _point(function: Lifetime, place: int) -> LifetimePoint:
    return LifetimePoint(
        parameter=int(function.parameter[place]),
        mean_pages=float(function.mean_pages[place]),
        lifetime=float(function.lifetime[place]),
    )


def mean_space_time(function: Lifetime, waiting: float) -> Array:
    """Memory that each unit of a program's time costs, x + x (D + gamma) / g(x), in pages.

    Args:
        function: The lifetime function.
        waiting: D + gamma, in the unit of time.
    """
    return np.asarray(function.mean_pages * (1.0 + waiting / function.lifetime))


def least(function: Lifetime, costs: Array) -> LifetimePoint:
    """The point of a function, of at least one point, that costs least."""
    return _point(function, int(np.argmin(costs)))
