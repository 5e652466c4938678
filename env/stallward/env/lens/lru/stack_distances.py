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

from stallward.env.errors import TraceError
from stallward.env.lens.lru.sample import GROUPS, Epoch, estimate
from stallward.env.lens.lru.stack_kernel import HASH_BITS, NONE, RECENT, count_distances, leave
from stallward.env.lens.lru.stamps import WORD_BITS, give_stamps_again
from stallward.env.lens.pages import Touches

LEAST_SAMPLED: Final = 256
"""The fewest pages of a sample of fixed size: sixteen for each group."""
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
        if not 0.0 < rate <= 1.0:
            raise TraceError(f"A rate of {rate:g} cannot be sampled: it must be in 0 to 1.")
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
        """The curve so far; ``time`` is T."""
        pages = int(self._state[0])
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
