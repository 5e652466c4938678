"""The working-set policy for every window at once, from interreference intervals.

Time is 1, 2, ... T, and the working set W(k, theta) are the pages touched at the times k - theta
+ 1 ... k. A touch at time t of a page last touched at t' is a fault if the interval x = t - t' is
longer than theta; so are all first touches. Between the two the page is resident for min(x,
theta). Faults and mean sizes for every theta follow from how often each interval occurs (Denning
and Schwartz, 1972; Slutz and Traiger, 1974).

VMIN knows the future: it keeps a page after a touch if the next one comes within theta, and drops
it at once if not. It has the faults of the working set with less memory, and no policy has fewer
faults at its mean size (Prieve and Fabry, 1976). So it is the bound for all others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.env.twin.simd.jit import kernel, model
from stallward.lens.workingset.pages import Touches

EXACT_BELOW: Final = 1 << 20
"""Each interval below this is counted by itself."""
_EXACT_BITS: Final = 20
_PART_BITS: Final = 10
"""Longer intervals are counted in 2^10 classes for each power of two."""
_PARTS: Final = 1 << _PART_BITS
_LONGEST_BITS: Final = 48


@dataclass(frozen=True, slots=True)
class WorkingSetCurve:
    """Faults and mean sizes of the working-set policy, for every window.

    Exact at all ``thetas``. The faults change at no other window up to ``EXACT_BELOW``; beyond,
    the windows are at most a thousandth apart, and what lies between two lies between theirs.
    """

    time: int
    """T."""
    pages: int
    """How many pages were touched."""
    thetas: NDArray[np.int64]
    """Rising; from 1 to T."""
    faults: NDArray[np.int64]
    mean_pages: NDArray[np.float64]
    """The mean of the working-set size over the times 1 ... T."""
    vmin_mean_pages: NDArray[np.float64]
    """The same under VMIN."""

    def at(self, theta: int) -> tuple[float, float]:
        """Faults and mean size for a window of at least 1."""
        i = int(np.searchsorted(self.thetas, theta, side="right")) - 1
        mean = float(np.interp(theta, self.thetas, self.mean_pages))
        return float(self.faults[max(i, 0)]), mean


class IntervalCounts:
    """Counts interreference intervals; takes memory for pages, none for time."""

    def __init__(self) -> None:
        self._last = np.empty(0, dtype=np.int64)
        self._exact = np.zeros(EXACT_BELOW, dtype=np.int64)
        classes = (_LONGEST_BITS - _EXACT_BITS) * _PARTS
        self._counts = np.zeros(classes, dtype=np.int64)
        self._sums = np.zeros(classes, dtype=np.float64)
        self._pages = 0

    @property
    def last_times(self) -> NDArray[np.int64]:
        """Index of a page -> when it was touched last."""
        return self._last[: self._pages]

    def feed(self, touches: Touches, pages: int) -> None:
        """Take the next touches; ``pages`` is the number of pages known after them."""
        if self._last.size < pages:
            grown = np.empty(2 * pages, dtype=np.int64)
            grown[: self._pages] = self._last[: self._pages]
            self._last = grown
        count_intervals(
            touches.pages,
            touches.times,
            self._pages,
            self._last,
            self._exact,
            self._counts,
            self._sums,
        )
        self._pages = pages

    def curve(self, time: int) -> WorkingSetCurve:
        """The curve so far; ``time`` is T."""
        exact = np.flatnonzero(self._exact[1:]) + 1
        long = np.flatnonzero(self._counts)
        # After its last touch at t a page stays for min(theta, T + 1 - t); that is no fault.
        rest = time + 1 - self.last_times
        lengths = np.concatenate([exact, np.minimum(_upper(long), time)])
        every_class = _upper(np.arange(self._counts.size))
        windows = np.concatenate(
            [[1, time], exact, rest[rest < EXACT_BELOW], every_class[every_class < time]]
        )
        thetas = np.unique(windows[windows <= time])
        counts = np.concatenate([self._exact[exact], self._counts[long]])
        sums = np.concatenate([(self._exact[exact] * exact).astype(np.float64), self._sums[long]])
        within = np.searchsorted(lengths, thetas, side="right")
        counted = np.concatenate([[0], np.cumsum(counts)])
        summed = np.concatenate([[0.0], np.cumsum(sums)])
        longer = counted[-1] - counted[within]
        ends = np.sort(rest)
        ended = np.searchsorted(ends, thetas, side="right")
        end_sums = np.concatenate([[0], np.cumsum(ends)])
        resident = (
            summed[within]
            + thetas.astype(np.float64) * (longer + ends.size - ended)
            + end_sums[ended]
        )
        kept_to_next = summed[within] + longer + ends.size
        return WorkingSetCurve(
            time=time,
            pages=self._pages,
            thetas=thetas,
            faults=longer + self._pages,
            mean_pages=resident / max(time, 1),
            vmin_mean_pages=kept_to_next / max(time, 1),
        )


def _upper(classes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The longest interval of each class."""
    bits, part = classes // _PARTS + _EXACT_BITS, classes % _PARTS
    step = np.int64(1) << (bits - _PART_BITS)
    return np.asarray((np.int64(1) << bits) + (part + 1) * step - 1)


@model
def _class_of(interval: int) -> int:
    """The class of a long interval."""
    bits = _EXACT_BITS
    while interval >> (bits + 1) > 0:
        bits += 1
    part = (interval >> (bits - _PART_BITS)) & (_PARTS - 1)
    return (bits - _EXACT_BITS) * _PARTS + part


@kernel
def count_intervals(
    pages: NDArray[np.int32],
    times: NDArray[np.int64],
    known: int,
    last: NDArray[np.int64],
    exact: NDArray[np.int64],
    counts: NDArray[np.int64],
    sums: NDArray[np.float64],
) -> None:
    """Count the intervals of some touches.

    Args:
        pages: Indices of pages.
        times: When they were touched.
        known: How many pages were known before.
        last: Index of a page -> when it was touched last; changed.
        exact: Interval -> how often; changed.
        counts: Class of longer intervals -> how often; changed.
        sums: Class of longer intervals -> their sum; changed.
    """
    for i in range(pages.size):
        page, time = pages[i], times[i]
        if page == known:
            known += 1
        else:
            interval = time - last[page]
            if interval < EXACT_BELOW:
                exact[interval] += 1
            else:
                place = _class_of(interval)
                counts[place] += 1
                sums[place] += interval
        last[page] = time
