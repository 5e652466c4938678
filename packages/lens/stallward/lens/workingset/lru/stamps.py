"""Compiled counting of stamps: rising numbers that say which page was used more recently.

Which stamps are in use is a bit each, and a Fenwick tree counts the bits of words of 64.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.env.twin.simd.jit import kernel, model

WORD_BITS: Final = 64
_ALL: Final = np.uint64(0xFFFFFFFFFFFFFFFF)
_PAIRS: Final = np.uint64(0x5555555555555555)
_FOURS: Final = np.uint64(0x3333333333333333)
_BYTES: Final = np.uint64(0x0F0F0F0F0F0F0F0F)
_ONES: Final = np.uint64(0x0101010101010101)

Words = NDArray[np.uint64]


@model
def _bits_set(word: int) -> int:
    """How many bits of a word are 1."""
    pairs = np.uint64(word) - ((np.uint64(word) >> np.uint64(1)) & _PAIRS)
    fours = (pairs & _FOURS) + ((pairs >> np.uint64(2)) & _FOURS)
    bytes_ = (fours + (fours >> np.uint64(4))) & _BYTES
    return int(np.int64((bytes_ * _ONES) >> np.uint64(56)))


@model
def change_stamp(bits: Words, tree: NDArray[np.int32], stamp: int, by: int) -> None:
    """Use a stamp, or no longer."""
    bits[stamp >> 6] ^= np.uint64(1) << np.uint64(stamp & 63)
    place = (stamp >> 6) + 1
    while place < tree.size:
        tree[place] += by
        place += place & -place


@model
def stamps_up_to(bits: Words, tree: NDArray[np.int32], stamp: int) -> int:
    """How many stamps up to one are in use."""
    place = stamp >> 6
    mask = _ALL >> np.uint64(63 - (stamp & 63))
    count = np.int64(_bits_set(bits[place] & mask))
    while place > 0:
        count += tree[place]
        place -= place & -place
    return int(count)


@model
def renumber(
    stamps: NDArray[np.int32],
    bits: Words,
    tree: NDArray[np.int32],
    stamped: NDArray[np.int32],
    state: NDArray[np.int64],
) -> None:
    """Give the pages new stamps from 0 on, in order; ``state[1]`` is their number."""
    given = 0
    for old in range(state[1]):
        if (bits[old >> 6] >> np.uint64(old & 63)) & np.uint64(1):
            page = stamped[old]
            stamped[given] = page
            stamps[page] = given
            given += 1
    state[1] = given
    for word in range(bits.size):
        full = min(max(given - word * 64, 0), 64)
        bits[word] = _ALL >> np.uint64(64 - full) if full > 0 else np.uint64(0)
        tree[word + 1] = full
    for place in range(1, tree.size):
        above = place + (place & -place)
        if above < tree.size:
            tree[above] += tree[place]


@kernel
def give_stamps_again(
    stamps: NDArray[np.int32],
    bits: Words,
    tree: NDArray[np.int32],
    stamped: NDArray[np.int32],
    state: NDArray[np.int64],
) -> None:
    """Give the pages new stamps, for a tree of another size."""
    renumber(stamps, bits, tree, stamped, state)
