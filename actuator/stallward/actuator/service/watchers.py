"""Clients that receive a stream: each has a queue, and a slow one loses the oldest."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

WATCH_QUEUE: Final = 64
"""The most items that wait for one watcher; if it is too slow, the oldest are dropped."""
MOST_WATCHERS: Final = 256
"""The most clients of one stream by each door."""

_T = TypeVar("_T")


class TooManyWatchersError(Exception):
    """Raised when there are too many watchers to add another."""


@dataclass(slots=True, eq=False)
class Watcher(Generic[_T]):
    """One client that receives items."""

    queue: asyncio.Queue[_T] = field(default_factory=lambda: asyncio.Queue(maxsize=WATCH_QUEUE))
    skipped: int = 0
    """The number of items that were dropped because the client was too slow."""


class Watchers(Generic[_T]):
    """The clients of one stream. The event loop's thread uses it."""

    def __init__(self) -> None:
        self._watchers: set[Watcher[_T]] = set()
        self._by_door: Counter[str] = Counter()
        self.skipped = 0
        """The number of items dropped for all of them together."""

    @contextlib.contextmanager
    def watch(self, door: str) -> Iterator[Watcher[_T]]:
        """A watcher that gets every item until the block ends.

        Args:
            door: Where the client came in; those of one door take no place of another's.

        Raises:
            TooManyWatchersError: If there are :data:`MOST_WATCHERS` of that door already.
        """
        if self._by_door[door] >= MOST_WATCHERS:
            raise TooManyWatchersError
        watcher = Watcher[_T]()
        self._watchers.add(watcher)
        self._by_door[door] += 1
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)
            self._by_door[door] -= 1

    def send(self, item: _T) -> None:
        """Give an item to every watcher, without waiting."""
        for watcher in self._watchers:
            if watcher.queue.full():
                watcher.queue.get_nowait()
                watcher.skipped += 1
                self.skipped += 1
            watcher.queue.put_nowait(item)
