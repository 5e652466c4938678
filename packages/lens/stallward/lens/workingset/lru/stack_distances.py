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

With a sample of fixed size (SHARDS with s_max) the share is halved whenever more pages are in the
sample: those with the larger hash values leave it. What was counted before keeps its share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.env.twin.simd.jit import kernel, model
from stallward.lens.errors import TraceError
from stallward.lens.workingset.lru.sample import GROUPS, Epoch, estimate
from stallward.lens.workingset.lru.stamps import (
    WORD_BITS,
    Words,
    change_stamp,
    give_stamps_again,
    renumber,
    stamps_up_to,
)
from stallward.lens.workingset.pages import Touches

# ---------- Compiled counting of stack distances

RECENT: Final = 16
"""The most pages in the list of the most recent ones."""
NONE: Final = -1
HASH_BITS: Final = 24
_MULTIPLIER: Final = np.uint64(0xD6E8FEB86659FD93)


@model
def _hash_of(number: int) -> int:
    """A hash value of ``HASH_BITS`` bits."""
    mixed = np.uint64(number) * _MULTIPLIER
    mixed ^= mixed >> np.uint64(32)
    mixed *= _MULTIPLIER
    return int(np.int64(mixed >> np.uint64(64 - HASH_BITS)))


@model
def _to_front(recent: NDArray[np.int64], page: int) -> tuple[int, int]:
    """Put a page in front of the list of the most recent ones.

    Returns:
        Its place in the list before, from 1; 0 if it was not there. And then the page that left.
    """
    ahead = recent[0]
    if ahead == page:
        return 1, NONE
    recent[0] = page
    for place in range(1, RECENT):
        here = recent[place]
        recent[place] = ahead
        if here == page:
            return place + 1, NONE
        ahead = here
    return 0, ahead


@kernel
def count_distances(
    pages: NDArray[np.int32],
    times: NDArray[np.int64],
    numbers: NDArray[np.uint64],
    below: int,
    most: int,
    counts: NDArray[np.int64],
    filling: NDArray[np.int64],
    recent: NDArray[np.int64],
    stamps: NDArray[np.int32],
    bits: Words,
    tree: NDArray[np.int32],
    stamped: NDArray[np.int32],
    state: NDArray[np.int64],
) -> int:
    """Count the distances of some touches, until there are too many pages in the sample.

    Args:
        pages: Indices of pages.
        times: When they were touched.
        numbers: Index of a page -> its number.
        below: Pages with a hash value below this are in the sample.
        most: It stops after the touch by which more pages than this are in the sample.
        counts: Group, distance -> how often; changed.
        filling: Filled: index of a page -> when it was touched first.
        recent: The most recent pages, in order; changed.
        stamps: Index of a page -> its stamp; changed.
        bits: Which stamps are in use; changed.
        tree: Counts them by words; changed.
        stamped: Stamp -> the page that has it; changed.
        state: Pages known, stamps given, stamps in use, pages in the list; changed.

    Returns:
        How many touches were counted.
    """
    sampling = counts.shape[0] > 1
    known = state[0]
    in_use = state[2]
    listed = state[3]
    done = pages.size
    group = 0
    for i in range(pages.size):
        page = int(pages[i])
        new = page == known
        if new:
            filling[page] = times[i]
            known += 1
        if sampling:
            mixed = _hash_of(numbers[page])
            if mixed >= below:
                continue
            group = mixed & (GROUPS - 1)
        place, ahead = _to_front(recent, page)
        if place > 0:
            counts[group, place] += 1
            continue
        if not new:
            # Those in the list, and those with a higher stamp, were touched since.
            stamp = int(stamps[page])
            counts[group, listed + in_use - stamps_up_to(bits, tree, stamp) + 1] += 1
            change_stamp(bits, tree, stamp, -1)
            in_use -= 1
        if ahead != NONE:
            if state[1] == stamped.size:
                renumber(stamps, bits, tree, stamped, state)
            stamp = int(state[1])
            stamps[ahead] = stamp
            stamped[stamp] = ahead
            change_stamp(bits, tree, stamp, 1)
            state[1] += 1
            in_use += 1
        else:
            listed += 1
        if listed + in_use > most:
            done = i + 1
            break
    state[0] = known
    state[2] = in_use
    state[3] = listed
    return done


@kernel
def leave(
    numbers: NDArray[np.uint64],
    below: int,
    recent: NDArray[np.int64],
    stamps: NDArray[np.int32],
    bits: Words,
    tree: NDArray[np.int32],
    stamped: NDArray[np.int32],
    state: NDArray[np.int64],
) -> None:
    """Let the pages with a hash value of ``below`` and more leave the sample.

    The other arguments are those of :func:`count_distances`.
    """
    listed = 0
    for place in range(state[3]):
        page = recent[place]
        if _hash_of(numbers[page]) < below:
            recent[listed] = page
            listed += 1
    for place in range(listed, RECENT):
        recent[place] = NONE
    state[3] = listed
    for stamp in range(state[1]):
        used = (bits[stamp >> 6] >> np.uint64(stamp & 63)) & np.uint64(1)
        if used and _hash_of(numbers[stamped[stamp]]) >= below:
            change_stamp(bits, tree, stamp, -1)
            state[2] -= 1


LEAST_SAMPLED: Final = 256
"""The fewest pages of a sample: sixteen for each group."""
_LEAST_RATE: Final = 1.0 / (1 << HASH_BITS)
_UNBOUNDED: Final = 1 << 62
_LEAST_STAMPS: Final = 1 << 12


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
    rate: float
    """The share of pages that was looked at in the end; 1 if exact."""


class StackDistances:
    """Counts stack distances of all pages, or of a sample.

    Args:
        rate: The share of pages that is looked at, to begin with.
        most_pages: The most pages in the sample; ``None`` for no bound.

    Raises:
        TraceError: If so few pages cannot be sampled.
    """

    def __init__(self, *, rate: float = 1.0, most_pages: int | None = None) -> None:
        if not _LEAST_RATE <= rate <= 1.0:
            raise TraceError(
                f"A rate of {rate:g} cannot be sampled: it must be in {_LEAST_RATE:.0e} to 1."
            )
        if most_pages is not None and most_pages < LEAST_SAMPLED:
            raise TraceError(
                f"{most_pages} pages are no sample: at least {LEAST_SAMPLED} are needed.",
                next_step="Give --lru-pages more.",
            )
        self._below = round(rate * (1 << HASH_BITS))
        self._most = _UNBOUNDED if most_pages is None else most_pages
        self._epochs: list[Epoch] = []
        groups = GROUPS if self.rate < 1.0 or most_pages is not None else 1
        self._counts = np.zeros((groups, 1), dtype=np.int64)
        self._filling = np.empty(0, dtype=np.int64)
        self._recent = np.full(RECENT, NONE, dtype=np.int64)
        self._stamps = np.empty(0, dtype=np.int32)
        self._bits = np.zeros(_LEAST_STAMPS // WORD_BITS, dtype=np.uint64)
        self._tree = np.zeros(self._bits.size + 1, dtype=np.int32)
        self._stamped = np.empty(_LEAST_STAMPS, dtype=np.int32)
        # Pages, stamps given, stamps in use, pages in the list of the most recent ones.
        self._state = np.array([0, 0, 0, 0], dtype=np.int64)

    @property
    def rate(self) -> float:
        """The share of pages that is looked at now."""
        return self._below / (1 << HASH_BITS)

    def feed(self, touches: Touches, page_numbers: NDArray[np.uint64]) -> None:
        """Take the next touches; ``page_numbers`` are those of all pages known after them."""
        self._make_room(page_numbers.size)
        begin = 0
        while begin < touches.pages.size:
            begin += count_distances(
                touches.pages[begin:],
                touches.times[begin:],
                page_numbers,
                self._below,
                self._most,
                self._counts,
                self._filling,
                self._recent,
                self._stamps,
                self._bits,
                self._tree,
                self._stamped,
                self._state,
            )
            while self._state[2] + self._state[3] > self._most:
                self._halve(page_numbers)

    def _halve(self, page_numbers: NDArray[np.uint64]) -> None:
        """Look at half of the pages from now on, and keep what was counted of more."""
        self._epochs.append(Epoch(self.rate, self._counts))
        self._counts = np.zeros_like(self._counts)
        self._below //= 2
        leave(
            page_numbers,
            self._below,
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
            distances = min(2 * pages, self._most + 1) + 1
            counts = np.zeros((self._counts.shape[0], distances), dtype=np.int64)
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
        """The curve so far; ``time`` is T.

        Raises:
            TraceError: If so few pages are in the sample that it says nothing about the others.
        """
        pages = int(self._state[0])
        sampled = int(self._state[2] + self._state[3])
        # What was halved had more before, and what was counted of them is kept.
        if self.rate < 1.0 and not self._epochs and sampled < LEAST_SAMPLED:
            raise TraceError(
                f"{sampled} of {pages:,} pages are no sample for LRU: at least {LEAST_SAMPLED} "
                "are needed.",
                next_step="Give --lru-rate more; 1 looks at all pages.",
            )
        filling = self._filling[:pages].copy()
        if self.rate == 1.0:
            sizes = np.arange(1, pages + 1, dtype=np.int64)
            counts = self._counts.sum(axis=0)[1 : pages + 1]
            again = np.zeros(pages)
            again[: counts.size] = counts.sum() - np.cumsum(counts)
            errors = np.zeros(pages)
        else:
            epochs = [*self._epochs, Epoch(self.rate, self._counts)]
            sizes, again, errors = estimate(epochs, pages)
        filled = np.concatenate([[0], np.cumsum(time + 1 - filling)])
        return LruCurve(
            time=time,
            pages=pages,
            sizes=sizes,
            faults=pages + again,
            mean_pages=filled[sizes] / max(time, 1),
            standard_errors=errors,
            filling=filling,
            rate=self.rate,
        )
