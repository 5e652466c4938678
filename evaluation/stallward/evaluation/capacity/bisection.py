"""Finds the smallest zone that serves, by halving the interval in which it lies. Pure.

What one block says is subject to chance, so the size that was found is measured once more. If it
does not serve then, the next larger one is measured, and so on.
"""

from __future__ import annotations


class Bisection:
    """The search of one arm. Sizes are whole numbers of steps.

    Args:
        least: A size that is taken not to serve.
        most: A size that is taken to serve, because nobody lacks memory there.
    """

    def __init__(self, least: int, most: int) -> None:
        self._low, self._most = least, most
        self._confirming, self._done = False, most - least <= 1
        self.found = most
        """The smallest size that served."""

    @property
    def next_size(self) -> int | None:
        """The size to measure next; ``None`` when the search is over."""
        if self._done:
            return None
        return self.found if self._confirming else (self._low + self.found) // 2

    def note(self, *, serves: bool) -> None:
        """Note what the block of the next size said."""
        size = self.next_size
        if size is None:
            return
        if self._confirming:
            self.found += 0 if serves else 1
            self._done = serves or self.found == self._most
            return
        if serves:
            self.found = size
        else:
            self._low = size
        if self.found - self._low <= 1:
            self._confirming = True
            self._done = self.found == self._most
