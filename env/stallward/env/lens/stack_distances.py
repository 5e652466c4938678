"""LRU for every size of memory at once, from stack distances (Mattson and others, 1970).

The distance of a touch is how many pages were touched since the last touch of its page, itself
included. A memory of c pages that replaces the least recently used page misses exactly the
touches with distances beyond c, and the first ones.

The most recent pages stand in a short list that is searched from the front. All others have a
stamp that rises with how recently they were used. Which stamps are in use is a bit each, and a
Fenwick tree (1994) over words of 64 bits counts them. Stamps are given anew when they run out, so
memory is for pages only.

Sampled (SHARDS, Waldspurger and others, FAST 2015), only pages whose number has a small hash value
are looked at, a share ``rate`` of all. Distances are divided by the rate, and so are counts. As in
SHARDS-adj the sum of all counts is that of all touches; first touches are known exactly. The pages
are drawn in groups, and how the groups differ states the standard error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.env.errors import TraceError
from stallward.env.lens.pages import Touches
from stallward.env.lens.stamps import (
    WORD_BITS,
    Words,
    change_stamp,
    give_stamps_again,
    renumber,
    stamps_up_to,
)
from stallward.env.twin.simd.jit import kernel, model

GROUPS: Final = 16
"""Sampled pages are in so many groups."""
_RECENT: Final = 16
_LEAST_STAMPS: Final = 1 << 12
_NONE: Final = -1
_HASH_BITS: Final = 24
_MULTIPLIER: Final = np.uint64(0xD6E8FEB86659FD93)


@dataclass(frozen=True, slots=True)
class LruCurve:
    """Faults and mean resident sizes under LRU, for sizes of memory."""

    time: int
    """T."""
    pages: int
    """How many pages were touched."""
    sizes: NDArray[np.int64]
    """Pages of memory, rising; all from 1 on if exact."""
    faults: NDArray[np.float64]
    mean_pages: NDArray[np.float64]
    """The mean over time of how many pages were in memory: fewer while it fills."""
    standard_errors: NDArray[np.float64]
    """Of the faults; zero if exact."""
    filling: NDArray[np.int64]
    """The times of first touches, rising."""


class StackDistances:
    """Counts stack distances of all pages, or of a sample."""

    def __init__(self, *, rate: float = 1.0) -> None:
        if not 0.0 < rate <= 1.0:
            raise TraceError(f"A rate of {rate:g} cannot be sampled: it must be in 0 to 1.")
        self._below = round(rate * (1 << _HASH_BITS))
        self.rate = self._below / (1 << _HASH_BITS)
        groups = GROUPS if self.rate < 1.0 else 1
        self._counts = np.zeros((groups, 1), dtype=np.int64)
        self._filling = np.empty(0, dtype=np.int64)
        self._recent = np.full(_RECENT, _NONE, dtype=np.int64)
        self._stamps = np.empty(0, dtype=np.int32)
        self._bits = np.zeros(_LEAST_STAMPS // WORD_BITS, dtype=np.uint64)
        self._tree = np.zeros(self._bits.size + 1, dtype=np.int32)
        self._stamped = np.empty(_LEAST_STAMPS, dtype=np.int32)
        self._state = np.array([0, 0, 0], dtype=np.int64)  # pages, stamps given, stamps in use

    def feed(self, touches: Touches, page_numbers: NDArray[np.uint64]) -> None:
        """Take the next touches; ``page_numbers`` are those of all pages known after them."""
        pages = page_numbers.size
        self._make_room(pages)
        count_distances(
            touches.pages,
            touches.times,
            page_numbers,
            self._below,
            self._counts,
            self._filling,
            self._recent,
            self._stamps,
            self._bits,
            self._tree,
            self._stamped,
            self._state,
        )

    def _make_room(self, pages: int) -> None:
        if self._stamps.size < pages:
            self._stamps = np.resize(self._stamps, 2 * pages)
            self._filling = np.resize(self._filling, 2 * pages)
            counts = np.zeros((self._counts.shape[0], 2 * pages + 1), dtype=np.int64)
            counts[:, : self._counts.shape[1]] = self._counts
            self._counts = counts
        if self._stamped.size < 2 * pages:
            words = -(-4 * pages // WORD_BITS)
            bits = np.zeros(words, dtype=np.uint64)
            bits[: self._bits.size] = self._bits
            self._bits = bits
            self._stamped = np.resize(self._stamped, words * WORD_BITS)
            self._tree = np.zeros(words + 1, dtype=np.int32)
            give_stamps_again(self._stamps, self._bits, self._tree, self._stamped, self._state)

    def curve(self, time: int) -> LruCurve:
        """The curve so far; ``time`` is T."""
        pages = int(self._state[0])
        filling = self._filling[:pages].copy()
        most = int(np.max(np.flatnonzero(self._counts.any(axis=0)), initial=0))
        counts = self._counts[:, 1 : most + 1]
        longer = counts.sum(axis=1)[:, None] - np.cumsum(counts, axis=1)
        if self.rate == 1.0:
            sizes = np.arange(1, pages + 1, dtype=np.int64)
            again = np.zeros(pages)
            again[:most] = longer[0]
            errors = np.zeros(pages)
        else:
            # The page itself is in the sample for certain; those between with the rate.
            sizes = np.ceil(1.0 + np.arange(most) / self.rate).astype(np.int64)
            again, errors = _estimate(longer, self.rate)
            below = sizes < pages
            sizes = np.append(sizes[below], pages)
            again, errors = np.append(again[below], 0.0), np.append(errors[below], 0.0)
        filled = np.concatenate([[0], np.cumsum(time + 1 - filling)])
        return LruCurve(
            time=time,
            pages=pages,
            sizes=sizes,
            faults=pages + again,
            mean_pages=filled[sizes] / max(time, 1),
            standard_errors=errors,
            filling=filling,
        )


def _estimate(
    longer: NDArray[np.int64], rate: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Faults but first touches among all pages, and their standard errors, from a sample.

    Args:
        longer: Group, distance -> touches at longer distances.
        rate: The share of pages that were sampled.
    """
    groups, distances = longer.shape
    total = longer.sum(axis=0)
    spread = longer - longer.mean(axis=0)
    of_counts = np.sqrt(groups / (groups - 1) * np.sum(spread**2, axis=0))
    # A distance is itself a count of sampled pages, so the curve is uncertain sideways, too.
    places = np.arange(distances)
    sideways = np.ceil(np.sqrt((places + 1) * (1.0 - rate))).astype(np.int64)
    closer = total[np.maximum(places - sideways, 0)]
    further = total[np.minimum(places + sideways, distances - 1)]
    return total / rate, np.hypot(of_counts, (closer - further) / 2.0) / rate


@model
def _hash_of(number: int) -> int:
    """A hash value of ``_HASH_BITS`` bits."""
    mixed = np.uint64(number) * _MULTIPLIER
    mixed ^= mixed >> np.uint64(32)
    mixed *= _MULTIPLIER
    return int(np.int64(mixed >> np.uint64(64 - _HASH_BITS)))


@kernel
def count_distances(
    pages: NDArray[np.int32],
    times: NDArray[np.int64],
    numbers: NDArray[np.uint64],
    below: int,
    counts: NDArray[np.int64],
    filling: NDArray[np.int64],
    recent: NDArray[np.int64],
    stamps: NDArray[np.int32],
    bits: Words,
    tree: NDArray[np.int32],
    stamped: NDArray[np.int32],
    state: NDArray[np.int64],
) -> None:
    """Count the distances of some touches.

    Args:
        pages: Indices of pages.
        times: When they were touched.
        numbers: Index of a page -> its number.
        below: Pages with a hash value below this are in the sample.
        counts: Group, distance -> how often; changed.
        filling: Filled: index of a page -> when it was touched first.
        recent: The most recent pages, in order; changed.
        stamps: Index of a page -> its stamp; changed.
        bits: Which stamps are in use; changed.
        tree: Counts them by words; changed.
        stamped: Stamp -> the page that has it; changed.
        state: Pages known, stamps given, stamps in use; changed.
    """
    sampling = counts.shape[0] > 1
    known = state[0]
    in_use = state[2]
    group = 0
    for i in range(pages.size):
        page = np.int64(pages[i])
        new = page == known
        if new:
            filling[page] = times[i]
            known += 1
        if sampling:
            mixed = _hash_of(numbers[page])
            if mixed >= below:
                continue
            group = mixed & (GROUPS - 1)
        ahead = recent[0]
        if ahead == page:
            counts[group, 1] += 1
            continue
        recent[0] = page
        found = False
        for place in range(1, _RECENT):
            here = recent[place]
            recent[place] = ahead
            ahead = here
            if here == page:
                counts[group, place + 1] += 1
                found = True
                break
        if found:
            continue
        if not new:
            # Those in the list, and those with a higher stamp, were touched since.
            stamp = int(stamps[page])
            counts[group, _RECENT + in_use - stamps_up_to(bits, tree, stamp) + 1] += 1
            change_stamp(bits, tree, stamp, -1)
            in_use -= 1
        if ahead != _NONE:
            if state[1] == stamped.size:
                renumber(stamps, bits, tree, stamped, state)
            stamp = int(state[1])
            stamps[ahead] = stamp
            stamped[stamp] = ahead
            change_stamp(bits, tree, stamp, 1)
            state[1] += 1
            in_use += 1
    state[0] = known
    state[2] = in_use
