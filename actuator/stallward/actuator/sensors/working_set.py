"""How much memory a group needs so as not to refault, estimated from its refaults. Pure.

The usage of a group with enough memory does not tell what it needs, since idle memory counts like
memory in use. There is evidence only when pages that it needs have been evicted: then it refaults,
that is, an evicted page comes back (mm/workingset.c). Then::

    working set = usage + min(away, refaults of the last 10 s), for file and anonymous pages each

``away`` are the pages that have been evicted and have not come back. Of these, only pages that
come back soon belong to the working set, and those were refaulted at least once; so both terms are
upper bounds. A loop over more data than fits refaults far more in 10 s than is away at any time,
and ``away`` is exact; a group that does not need its evicted pages any more refaults few of them.

Anonymous pages that are away are in swap, so the group's swap counts them. The file pages that are
away are found thus:

* v2: pages reclaimed (``pgsteal``) less pages refaulted, both of memory.stat, less its swap;
* v1: reclaimed pages are not counted per group, and charges are counted in folios, not pages. So
  they are the data that the group ever read for the first time (bytes read from storage less
  bytes read again, which are refaults and swap-ins), less the file pages that it holds. This needs
  /proc/PID/io of all its processes, read in the same tick as memory.stat;
* where neither is known: the pages refaulted within one turnover of the resident set, that is,
  while as much was evicted as the group holds. That is at most the usage, so the estimate is at
  most twice the usage and grows as the group is given more.

The two kinds are kept apart because the count of file pages that are away is not exact: swap
readahead reads pages of other groups on this one's account. Where the two were one number, a
server that has no file pages seemed to need more than all that it ever had in memory and swap.

For a group that streams through new data while it refaults other data, the estimate is too high,
by at most the refaults of 10 s. The idle memory of a group that refaults counts until the kernel
has evicted it. Data read with O_DIRECT counts as away.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Final

WINDOW_S: Final = 10.0
"""A page used again within this time belongs to the working set (Denning's window)."""
HOLD_S: Final = 60.0
"""After this time without evidence the estimate and the pages that are away are dropped."""
STEP_S: Final = 0.5
"""The interval between two updates."""
MIN_REFAULT_PAGES: Final = 256
"""Fewer refaults in the window are noise."""
STEP_SHARE: Final = STEP_S / WINDOW_S
"""The share of the least number of refaults that must come since the last update. With fewer the
estimate stays: changes of usage without refaults are no evidence."""
USAGE_SHARE: Final = 1 / 256
"""The least number of refaults in the window, as a share of the usage."""
_WANTED_SHARE: Final = 0.5
"""The least share of evicted pages that come back: with a lower one, reclaim takes idle pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefaultCounters:
    """The counters of one group at one time."""

    time_s: float
    usage_pages: int
    refault_file_pages: int
    """File pages refaulted since the group was made."""
    refault_anon_pages: int = 0
    """The same of anonymous pages."""
    away_file_pages: int | None = None
    """File pages evicted and not back; ``None`` if unknown."""
    swapped_pages: int | None = None
    """Pages in swap; ``None`` if unknown."""
    evicted_pages: int | None = None
    """Pages evicted since the group was made; ``None`` if unknown."""

    @property
    def refault_pages(self) -> int:
        """Pages of both kinds refaulted since the group was made."""
        return self.refault_file_pages + self.refault_anon_pages


class WorkingSet:
    """The estimate of one group, updated with each reading of its counters."""

    __slots__ = ("_evidence_s", "_given_up_anon", "_given_up_file", "_history", "pages")

    def __init__(self) -> None:
        self.pages: int | None = None
        """The estimate; ``None`` while there is no evidence."""
        self._history: deque[RefaultCounters] = deque()
        self._evidence_s = math.inf
        """The time of the last evidence, or when the group was first seen."""
        self._given_up_file = self._given_up_anon = 0
        """Pages that are away and that the group does not need any more."""

    @property
    def due_s(self) -> float:
        """When the next update is due."""
        return self._history[-1].time_s + STEP_S if self._history else 0.0

    def refaulted_since(self, refault_pages: int) -> bool:
        """Whether there were refaults since the last :meth:`update`."""
        return not self._history or refault_pages != self._history[-1].refault_pages

    def update(self, now: RefaultCounters) -> int | None:
        """Take new counters; return the estimate in pages."""
        history = self._history
        if history and now.refault_pages < history[-1].refault_pages:
            history.clear()  # another group of the same name
            self.pages, self._evidence_s = None, now.time_s
            self._given_up_file = self._given_up_anon = 0
        history.append(now)
        self._evidence_s = min(self._evidence_s, now.time_s)
        while len(history) > 2 and history[1].time_s <= now.time_s - WINDOW_S:
            history.popleft()
        if self._refaulting():
            self._evidence_s = now.time_s
            self.pages = now.usage_pages + self._wanted_pages()
        elif now.time_s - self._evidence_s > HOLD_S:
            self.pages = None
            self._given_up_file = now.away_file_pages or 0
            self._given_up_anon = now.swapped_pages or 0
        return self.pages

    def _refaulting(self) -> bool:
        """Whether the group needs pages that are evicted now."""
        first, now = self._history[0], self._history[-1]
        least = max(MIN_REFAULT_PAGES, now.usage_pages * USAGE_SHARE)
        before = self._history[-2] if len(self._history) > 1 else now
        refaults = now.refault_pages - first.refault_pages
        if refaults < least or now.refault_pages - before.refault_pages < least * STEP_SHARE:
            return False
        if now.evicted_pages is None or first.evicted_pages is None:
            return True
        evicted = now.evicted_pages - first.evicted_pages
        return refaults >= _WANTED_SHARE * evicted

    def _wanted_pages(self) -> int:
        """The pages that are away and needed soon."""
        first, now = self._history[0], self._history[-1]
        file, self._given_up_file = _wanted(
            now.refault_file_pages - first.refault_file_pages,
            now.away_file_pages,
            self._given_up_file,
        )
        anon, self._given_up_anon = _wanted(
            now.refault_anon_pages - first.refault_anon_pages,
            now.swapped_pages,
            self._given_up_anon,
        )
        unknown = now.away_file_pages is None or now.swapped_pages is None
        return min(file + anon, now.usage_pages) if unknown else file + anon


def _wanted(refaults: int, away: int | None, given_up: int) -> tuple[int, int]:
    """The pages of one kind that are away and needed soon, and those that are not needed."""
    if away is None:
        return refaults, given_up
    given_up = min(given_up, away)
    return min(refaults, away - given_up), given_up
