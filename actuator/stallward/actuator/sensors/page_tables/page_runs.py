"""Runs of pages that have the same state, as the page tables of a process have them. Pure."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
PAGE_SHIFT: Final = PAGE_BYTES.bit_length() - 1

# PAGE_IS_* of include/uapi/linux/fs.h.
FILE: Final = 1 << 2
"""The page belongs to a file, or to shared memory."""
PRESENT: Final = 1 << 3
SWAPPED: Final = 1 << 4
ZERO: Final = 1 << 5
"""The page is the one of zeros, which all processes share: it was only read."""
HUGE: Final = 1 << 6

Pages = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PageRuns:
    """Runs of pages with an entry in the page tables, by address, without overlap."""

    begins: Pages
    """The number of the first page of each run."""
    ends: Pages
    """The number of the page after its last one."""
    states: Pages
    """Bits such as ``PRESENT`` and ``FILE``."""

    def below(self, mask: int, value: int, pages: Pages) -> Pages:
        """For each of the page numbers, how many pages before it have ``value`` under ``mask``.

        Args:
            mask: The bits to look at.
            value: What they must be.
            pages: Numbers of pages.
        """
        chosen = (self.states & mask) == value
        begins, ends = self.begins[chosen], self.ends[chosen]
        counted = np.concatenate([[0], np.cumsum(ends - begins)])
        # The runs that begin before a page count whole, and the last of them up to the page.
        number = np.searchsorted(begins, pages, side="right")
        if not begins.size:
            return np.zeros(pages.shape, dtype=np.int64)
        over = np.maximum(ends[np.maximum(number - 1, 0)] - pages, 0)
        return np.asarray(counted[number] - np.where(number > 0, over, 0))


def concatenate(parts: list[PageRuns]) -> PageRuns:
    """Runs that follow each other, as one."""
    empty = np.empty(0, dtype=np.int64)
    return PageRuns(
        begins=np.concatenate([empty, *(part.begins for part in parts)]),
        ends=np.concatenate([empty, *(part.ends for part in parts)]),
        states=np.concatenate([empty, *(part.states for part in parts)]),
    )


def runs_of(entries: NDArray[np.uint64], first_page: int) -> PageRuns:
    """The runs in entries of /proc/PID/pagemap.

    Args:
        entries: An entry for each page; bit 63 says that it is present, 62 that it is in swap,
            and 61 that it belongs to a file (Documentation/admin-guide/mm/pagemap.rst).
        first_page: The number of the first page.
    """
    top = entries >> np.uint64(61)
    known = ((top & 4) > 0) * PRESENT + ((top & 2) > 0) * SWAPPED
    states = np.where(known > 0, known + ((top & 1) > 0) * FILE, 0).astype(np.int64)
    starts = np.flatnonzero(np.diff(states, prepend=-1))
    stops = np.append(starts[1:], states.size)
    kept = states[starts] > 0
    return PageRuns(
        begins=starts[kept] + first_page,
        ends=stops[kept] + first_page,
        states=states[starts[kept]],
    )
