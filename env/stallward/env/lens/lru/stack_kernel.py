"""Compiled counting of stack distances."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.env.lens.lru.sample import GROUPS
from stallward.env.lens.lru.stamps import Words, change_stamp, renumber, stamps_up_to
from stallward.env.twin.simd.jit import kernel, model

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
