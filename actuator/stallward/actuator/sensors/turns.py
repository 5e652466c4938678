"""Whose turn it is: groups that are read whole now and then, a few at each tick. Pure."""

from __future__ import annotations

from typing import Final

TURN_TICKS: Final = 10
"""Every group is read whole at least once in this many ticks."""


class Turns:
    """Chooses the groups of a tick.

    Args:
        total: How many groups there are.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._next = 0

    def take(self) -> frozenset[int]:
        """The numbers of the groups to read whole at this tick."""
        count = -(-self._total // TURN_TICKS)
        places = max(self._total, TURN_TICKS)  # with fewer groups, some ticks have none in turn
        first = self._next
        self._next = (first + count) % places
        turns = ((first + offset) % places for offset in range(count))
        return frozenset(number for number in turns if number < self._total)
