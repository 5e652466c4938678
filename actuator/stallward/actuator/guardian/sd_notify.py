"""Reports the daemon's state to systemd: sd_notify(3) without a library.

Only the loop's heartbeats feed the watchdog. So systemd also restarts a daemon whose guardian
lives but whose loop cannot tick.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import MutableMapping
from typing import Final

_FEEDS_PER_TIMEOUT: Final = 4.0
"""The most messages to the watchdog in one of its timeouts."""


class Notifier:
    """Sends the daemon's state to the service manager; without one, no method does anything.

    No method waits or fails, because the guardian must be able to restore at any time. A manager
    that does not read loses messages.

    Args:
        address: The value of ``NOTIFY_SOCKET``: a path, or ``@`` and an abstract name; empty for
            none.
        watchdog_s: How long the manager waits for a sign of life; ``None`` for ever.
    """

    def __init__(self, address: str, watchdog_s: float | None = None) -> None:
        self._socket: socket.socket | None = None
        self._fed_s = float("-inf")
        self.watchdog_s = watchdog_s
        self._status = ""
        if address[:1] not in {"/", "@"}:
            return
        target = f"\0{address[1:]}" if address.startswith("@") else address
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        try:
            connection.connect(target)
            connection.setblocking(False)
        except OSError:
            connection.close()
        else:
            self._socket = connection

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str]) -> Notifier:
        """A notifier for the manager's variables, which are removed from ``environment``.

        They are removed because the daemon's children must not report in its name.
        """
        address = environment.pop("NOTIFY_SOCKET", "")
        microseconds = environment.pop("WATCHDOG_USEC", "")
        pid = environment.pop("WATCHDOG_PID", "")
        watched = microseconds.isdigit() and int(microseconds) > 0
        ours = pid in {"", str(os.getpid())}
        return cls(address, int(microseconds) / 1e6 if watched and ours else None)

    def send(self, *lines: str) -> None:
        """Send assignments such as ``READY=1`` in one message."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.send("\n".join(lines).encode())

    def status(self, text: str) -> None:
        """Send a status line, unless it is the same as the last one."""
        if text != self._status:
            self._status = text
            self.send(f"STATUS={text}")

    def feed(self) -> None:
        """Send a sign of life to the watchdog, if there is one and it is due."""
        now_s = time.monotonic()
        if self.watchdog_s is None or now_s - self._fed_s < self.watchdog_s / _FEEDS_PER_TIMEOUT:
            return
        self._fed_s = now_s
        self.send("WATCHDOG=1")

    def allow(self, longest_s: float) -> None:
        """Make the manager wait at least ``longest_s`` for each sign of life."""
        if self.watchdog_s is not None and self.watchdog_s < longest_s:
            self.watchdog_s = longest_s
            self.send(f"WATCHDOG_USEC={int(longest_s * 1e6)}")

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
