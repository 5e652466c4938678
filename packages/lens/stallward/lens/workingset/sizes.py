"""The size of the working set over time, for some windows, in one pass.

When a page is touched again after more than the window, it has left and entered in between. So the
moments of entering and leaving are known later than they happen, but never change. They are
counted per sample, and the sizes are the running sums. The time between samples doubles whenever
there are too many of them; samples remain exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.env.twin.simd.jit import kernel, model
from stallward.lens.errors import TraceError
from stallward.lens.workingset.pages import Touches

SAMPLES: Final = 1 << 14
"""There are at most so many samples, and at least half as many in a trace that is long enough."""


@dataclass(frozen=True, slots=True)
class SizeSeries:
    """The working-set size for one window at regular times."""

    theta: int
    times: NDArray[np.int64]
    """When the size was taken."""
    pages: NDArray[np.int64]
    """How many pages were touched in the ``theta`` until then."""
    faults: NDArray[np.int64]
    """Faults since the time before."""


class WorkingSetSizes:
    """Follows the sizes of the working set for some windows."""

    def __init__(self, thetas: tuple[int, ...], *, samples: int = SAMPLES) -> None:
        if any(theta < 1 for theta in thetas):
            raise TraceError("A window is at least 1 long.")
        self._thetas = np.array(sorted(set(thetas)), dtype=np.int64)
        self._entered = np.zeros((self._thetas.size, samples + 1), dtype=np.int64)
        self._left = np.zeros_like(self._entered)
        self._last = np.empty(0, dtype=np.int64)
        self._pages = 0
        self._shift = 0

    def feed(self, touches: Touches, pages: int) -> None:
        """Take the next touches; ``pages`` is the number of pages known after them."""
        if not self._thetas.size:
            return
        if self._last.size < pages:
            grown = np.empty(2 * pages, dtype=np.int64)
            grown[: self._pages] = self._last[: self._pages]
            self._last = grown
        self._shift = follow_sizes(
            touches.pages,
            touches.times,
            self._pages,
            self._last,
            self._thetas,
            self._shift,
            self._entered,
            self._left,
        )
        self._pages = pages

    def series(self, time: int) -> list[SizeSeries]:
        """The sizes so far, window by window; ``time`` is T."""
        # The clock may have gone on for long since the last touch of the selected classes.
        self._shift = reach(time, self._shift, self._entered, self._left)
        step = 1 << self._shift
        count = time >> self._shift
        times = step * np.arange(1, count + 1, dtype=np.int64)
        found = []
        for row, theta in enumerate(self._thetas):
            gone = self._last[: self._pages] + theta
            places = (gone[gone <= time] + step - 1) >> self._shift
            left = self._left[row] + np.bincount(places, minlength=self._left.shape[1])
            sizes = np.cumsum(self._entered[row] - left)
            found.append(
                SizeSeries(
                    theta=int(theta),
                    times=times,
                    pages=sizes[1 : count + 1],
                    faults=self._entered[row, 1 : count + 1].copy(),
                )
            )
        return found


@model
def _double(entered: NDArray[np.int64], left: NDArray[np.int64]) -> None:
    """Let the time between samples be twice as long."""
    rows, places = entered.shape
    for row in range(rows):
        for place in range(1, places):
            into = (place + 1) // 2
            for counts in (entered, left):
                moved = counts[row, place]
                counts[row, place] = 0
                counts[row, into] += moved


@kernel
def reach(time: int, shift: int, entered: NDArray[np.int64], left: NDArray[np.int64]) -> int:
    """Let the samples, which are 2^shift apart, reach to a time; returns the new ``shift``."""
    while time > np.int64(entered.shape[1] - 1) << shift:
        _double(entered, left)
        shift += 1
    return shift


@kernel
def follow_sizes(
    pages: NDArray[np.int32],
    times: NDArray[np.int64],
    known: int,
    last: NDArray[np.int64],
    thetas: NDArray[np.int64],
    shift: int,
    entered: NDArray[np.int64],
    left: NDArray[np.int64],
) -> int:
    """Count who enters and who leaves the working sets.

    Args:
        pages: Indices of pages.
        times: When they were touched.
        known: How many pages were known before.
        last: Index of a page -> when it was touched last; changed.
        thetas: Rising windows.
        shift: Samples are 2^shift apart.
        entered: Window, sample -> who has entered since the sample before; changed.
        left: Window, sample -> who has left since the sample before; changed.

    Returns:
        The new ``shift``.
    """
    shortest = thetas[0]
    up = (np.int64(1) << shift) - 1
    until = np.int64(entered.shape[1] - 1) << shift
    for i in range(pages.size):
        page, time = pages[i], times[i]
        while time > until:
            _double(entered, left)
            shift += 1
            up = (np.int64(1) << shift) - 1
            until = np.int64(entered.shape[1] - 1) << shift
        if page == known:
            known += 1
            for row in range(thetas.size):
                entered[row, (time + up) >> shift] += 1
        else:
            interval = time - last[page]
            if interval > shortest:
                for row in range(thetas.size):
                    theta = thetas[row]
                    if interval <= theta:
                        break
                    left[row, (last[page] + theta + up) >> shift] += 1
                    entered[row, (time + up) >> shift] += 1
        last[page] = time
    return shift
