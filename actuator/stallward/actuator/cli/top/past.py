"""What was on the screen in each of the last seconds. Pure."""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, TypeVar

KEPT_S: Final = 900
"""So many seconds are kept: 7 MB with ten slots, however often the node ticks."""


_View = TypeVar("_View")


class Past(Generic[_View]):
    """Keeps the last view of each second that had a tick, by numbers that count up from 0."""

    def __init__(self) -> None:
        self._views: deque[_View] = deque(maxlen=KEPT_S)
        self._added = 0

    def __len__(self) -> int:
        return len(self._views)

    def add(self, view: _View) -> None:
        """Keep a view: the last one of a second that is over."""
        self._views.append(view)
        self._added += 1

    def moved(self, number: int | None, by: int) -> int | None:
        """The number of the view so many seconds after another one.

        Args:
            number: That of the other one; ``None`` for the newest, which is not kept yet.
            by: The seconds; negative ones lead back, at most to the oldest view that is kept.

        Returns:
            ``None`` for the newest.
        """
        if not self._views:
            return None
        wanted = (self._added if number is None else number) + by
        return None if wanted >= self._added else max(wanted, self._added - len(self._views))

    def view(self, number: int) -> _View:
        """The view of a number; the oldest in place of one that is not kept any more."""
        return self._views[max(number - self._added, -len(self._views))]
