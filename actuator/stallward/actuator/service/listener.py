"""A server beside the service's own sockets that tries for ever to listen."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Final

from stallward.actuator.errors import DaemonError
from stallward.actuator.runtime.stderr_line import say

RETRY_S: Final = 1.0
"""The delay before the next try to listen; it doubles with each that fails."""
MAX_RETRY_S: Final = 60.0


class Listener(ABC):
    """Listens as soon as that is possible: the daemon protects the application without it as well."""

    def __init__(self) -> None:
        self.failures = 0
        """How many tries to listen have failed."""
        self.problem = ""
        """Why it does not listen now; empty if it does."""

    async def keep_trying(self, retry_s: float = RETRY_S) -> None:
        """Start to listen; try again for ever while that fails."""
        while True:
            try:
                await self.start()
            except DaemonError as error:
                self.failures += 1
                again = f"tried {self.failures} times, and again in {retry_s:g} s"
                self.problem = f"{error.cause} ({again})"
                if self.failures == 1:
                    say(f"{error} It is tried again.", "service")
            else:
                self.problem = ""
                return
            await asyncio.sleep(retry_s)
            retry_s = min(retry_s * 2, MAX_RETRY_S)

    @abstractmethod
    async def start(self) -> None:
        """Start to listen.

        Raises:
            DaemonError: If it cannot.
        """
