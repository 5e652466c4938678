"""How much memory a group needs so as not to refault, estimated from its refaults. Pure.

A group that has room enough says nothing about what it needs: memory that lies idle counts in
its usage like memory in use. Only when something it wants has been evicted is there evidence,
and that is what a refault is: a page evicted before comes back (mm/workingset.c). Then::

    working set = usage + min(away, refaults of the last 10 s)

``away`` is what has been evicted and has not come back. Of it, only what comes back soon belongs
to the working set, and what came back soon was refaulted at least once; so neither alone may be
exceeded. A loop over more than fits refaults far more in 10 s than is away at any time, and
``away`` is exact then; a group that left much behind for good refaults little of it.

How ``away`` is known:

* v2: pages reclaimed (``pgsteal``) less pages refaulted, both of memory.stat;
* v1 does not count reclaimed pages per group, and counts charges in folios, not pages. There,
  what the group ever read for the first time (bytes read from storage less bytes read again,
  which are refaults and swap-ins) less the file pages that it holds, and its swap. This needs
  /proc/PID/io of all its processes read in the same tick as memory.stat;
* where neither is known: what was refaulted within one turn-over of the resident set, i.e. while
  as much was evicted as the group holds. That is at most its usage, so that the estimate is at
  most twice the usage: it grows as the group is given more.

The estimate overstates what a group needs that streams through new data while it refaults other
data, by at most what it refaults in 10 s, and it counts idle memory of a group that refaults
until the kernel has evicted that. Reading with O_DIRECT counts as data that is away.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Final

WINDOW_S: Final = 10.0
"""What is wanted again within this time belongs to the working set (Denning's window)."""
HOLD_S: Final = 60.0
"""So long after the last evidence the estimate is forgotten, and what is away is given up."""
STEP_S: Final = 0.5
"""Counters are looked at so often."""
MIN_REFAULT_PAGES: Final = 256
"""In the window: less is noise."""
_STEP_SHARE: Final = STEP_S / WINDOW_S
"""As many of them at least since the last look: the estimate then stays as it is, and what usage
does without refaults says nothing."""
_USAGE_SHARE: Final = 1 / 256
"""The same, as a share of what the group holds."""
_WANTED_SHARE: Final = 0.5
"""If less of what is evicted comes back, reclaim takes what is not missed: no evidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefaultCounters:
    """What is known of one group at one time."""

    time_s: float
    usage_pages: int
    refault_pages: int
    """Since the group was made: file and anonymous."""
    away_pages: int | None = None
    """Evicted and not back; ``None`` if that is not known."""
    evicted_pages: int | None = None
    """Since the group was made; ``None`` if that is not known."""


class WorkingSet:
    """The estimate for one group, counters after counters.

    Attributes:
        pages: The estimate; ``None`` while there is no evidence.
    """

    __slots__ = ("_evidence_s", "_given_up", "_history", "pages")

    def __init__(self) -> None:
        self.pages: int | None = None
        self._history: deque[RefaultCounters] = deque()
        self._evidence_s = math.inf
        """When the group last missed something, or was first seen."""
        self._given_up = 0

    @property
    def due_s(self) -> float:
        """When counters are wanted next."""
        return self._history[-1].time_s + STEP_S if self._history else 0.0

    def refaulted_since(self, refault_pages: int) -> bool:
        """Whether there are refaults that :meth:`update` has not seen."""
        return not self._history or refault_pages != self._history[-1].refault_pages

    def update(self, now: RefaultCounters) -> int | None:
        """Take in counters and give the estimate, pages."""
        history = self._history
        if history and now.refault_pages < history[-1].refault_pages:
            history.clear()  # another group of the same name
            self.pages, self._given_up, self._evidence_s = None, 0, now.time_s
        history.append(now)
        self._evidence_s = min(self._evidence_s, now.time_s)
        while len(history) > 2 and history[1].time_s <= now.time_s - WINDOW_S:
            history.popleft()
        if self._refaulting():
            self._evidence_s = now.time_s
            self.pages = now.usage_pages + self._wanted_pages()
        elif now.time_s - self._evidence_s > HOLD_S:
            self.pages = None
            self._given_up = now.away_pages or 0
        return self.pages

    def _refaulting(self) -> bool:
        """Whether the group misses what is evicted, now."""
        first, now = self._history[0], self._history[-1]
        least = max(MIN_REFAULT_PAGES, now.usage_pages * _USAGE_SHARE)
        before = self._history[-2] if len(self._history) > 1 else now
        refaults = now.refault_pages - first.refault_pages
        if refaults < least or now.refault_pages - before.refault_pages < least * _STEP_SHARE:
            return False
        if now.evicted_pages is None or first.evicted_pages is None:
            return True
        evicted = now.evicted_pages - first.evicted_pages
        return refaults >= _WANTED_SHARE * evicted

    def _wanted_pages(self) -> int:
        """Of what is away, what is wanted soon."""
        first, now = self._history[0], self._history[-1]
        refaults = now.refault_pages - first.refault_pages
        if now.away_pages is None:
            return min(refaults, now.usage_pages)
        self._given_up = min(self._given_up, now.away_pages)
        return min(refaults, now.away_pages - self._given_up)
