"""Whether the parts of Ray that this process needs still answer.

Where the head of a cluster is gone, Ray waits, and after 60 s it ends this process without an
error that could be caught. Where its part on this machine is gone, it waits for ever. So this
process looks for itself, and gives up sooner.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from typing import Final

from stallward.training.errors import ClusterError

LOOK_EVERY_S: Final = 2.0
"""How often to look."""
MOST_SILENT: Final = 10
"""So many looks in a row may fail, 20 s in all: a head that is started again takes a while."""
MOST_REFUSED: Final = 2
"""So many looks at the part on this machine may be refused. Nobody starts that again, and Ray ends
this process by ``_exit`` at the next call that needs it."""
_ANSWER_S: Final = 2.0
"""How long a part may take to answer."""


class Lookout:
    """Looks whether a cluster that this process is connected to still answers.

    Args:
        head: The address of its head, ``HOST:PORT``.
        connected: Whether this process is still connected.
        others: The addresses of parts on this machine that it needs, by what errors call them.
    """

    def __init__(
        self,
        head: str,
        connected: Callable[[], bool],
        others: Mapping[str, str] | None = None,
    ) -> None:
        self._head, self._connected = head, connected
        self._parts = {"its head": head, **(others or {})}
        self._silent = dict.fromkeys(self._parts, 0)
        self._next_s = time.monotonic() + LOOK_EVERY_S

    def check(self) -> None:
        """Look whether all parts answer, if it is time to.

        Raises:
            ClusterError: If this process is no longer connected, or a part has not answered for a
                while.
        """
        if not self._connected():
            raise self.lost("this process is no longer connected to it")
        if time.monotonic() < self._next_s:
            return
        for name, address in self._parts.items():
            host, _, port = address.rpartition(":")
            try:
                with socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_S):
                    self._silent[name] = 0
            except OSError as error:
                self._silent[name] += 1
                final = isinstance(error, ConnectionRefusedError) and address != self._head
                if self._silent[name] >= (MOST_REFUSED if final else MOST_SILENT):
                    raise self.lost(f"{name} does not answer ({error})") from error
        self._next_s = time.monotonic() + LOOK_EVERY_S

    def lost(self, reason: str) -> ClusterError:
        """The error for a cluster that is gone."""
        return ClusterError(
            f"The Ray cluster at {self._head} was lost: {reason}.",
            next_step="Start it again, and give it more memory where that was short. "
            "What is done is kept; the same command goes on.",
        )
