"""How many calls a certificate may have open at once, so that none takes the places of others."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Final

MOST_OF_OBSERVER: Final = 64
"""The most calls at once with one certificate that may observe."""
MOST_OF_OPERATOR: Final = 128
"""The same of one that may change something."""
MOST_OF_OBSERVERS: Final = 192
"""The most calls of all observers together. It leaves operators room to watch, too: the clients
that watch by the port are 256 at most."""
MOST_OF_OPERATORS: Final = 320
"""The most calls of all operators together."""


class TooManyCallsError(Exception):
    """Raised when a certificate, or all of its role, have too many calls open."""


class CallBudget:
    """Counts the calls that are open. The event loop's thread uses it."""

    def __init__(self) -> None:
        self._by_name: Counter[str] = Counter()
        self._by_role: Counter[bool] = Counter()

    @contextlib.contextmanager
    def call(self, name: str, *, operator: bool) -> Iterator[None]:
        """Count one call until the block ends.

        Args:
            name: The names in the client's certificate.
            operator: Whether it may change something.

        Raises:
            TooManyCallsError: If it is one too many.
        """
        of_one = MOST_OF_OPERATOR if operator else MOST_OF_OBSERVER
        of_role = MOST_OF_OPERATORS if operator else MOST_OF_OBSERVERS
        if self._by_name[name] >= of_one:
            raise TooManyCallsError(f"{name} has {of_one} calls open already.")
        if self._by_role[operator] >= of_role:
            role = "operators" if operator else "observers"
            raise TooManyCallsError(f"All {role} together have {of_role} calls open already.")
        self._by_name[name] += 1
        self._by_role[operator] += 1
        try:
            yield
        finally:
            self._by_role[operator] -= 1
            self._by_name[name] -= 1
            if not self._by_name[name]:
                del self._by_name[name]  # there may be any number of certificates in time
