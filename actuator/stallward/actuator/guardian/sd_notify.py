"""Telling systemd how the daemon is: sd_notify(3) without a library.

The watchdog is fed by the loop's heartbeats and by nothing else, so a guardian that lives while
its loop cannot tick is started again too.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import MutableMapping
from typing import Final

_FEEDS_PER_TIMEOUT: Final = 4.0
"""The watchdog is fed at most so often in its time."""


class Notifier:
    """Sends states to the service manager; without one, everything here does nothing.

    Nothing waits: a manager that does not read loses messages, and an error is no concern of
    what must go on restoring.

    Args:
        address: ``NOTIFY_SOCKET``: a path, or ``@`` and an abstract name; empty for none.
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
        made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        try:
            made.connect(target)
            made.setblocking(False)
        except OSError:
            made.close()
        else:
            self._socket = made

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str]) -> Notifier:
        """What the service manager asked for; its variables are taken out of ``environment``.

        Children must not speak for the daemon.
        """
        address = environment.pop("NOTIFY_SOCKET", "")
        microseconds = environment.pop("WATCHDOG_USEC", "")
        pid = environment.pop("WATCHDOG_PID", "")
        watched = microseconds.isdigit() and int(microseconds) > 0
        ours = pid in {"", str(os.getpid())}
        return cls(address, int(microseconds) / 1e6 if watched and ours else None)

    @property
    def active(self) -> bool:
        """Whether anybody listens."""
        return self._socket is not None

    def send(self, *lines: str) -> None:
        """Send assignments such as ``READY=1`` in one message."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.send("\n".join(lines).encode())

    def status(self, text: str) -> None:
        """Say in one line how things are; repeated only when it changes."""
        if text != self._status:
            self._status = text
            self.send(f"STATUS={text}")

    def feed(self) -> None:
        """Feed the watchdog, if there is one and it is time."""
        now_s = time.monotonic()
        if self.watchdog_s is None or now_s - self._fed_s < self.watchdog_s / _FEEDS_PER_TIMEOUT:
            return
        self._fed_s = now_s
        self.send("WATCHDOG=1")

    def allow(self, longest_s: float) -> None:
        """Have the manager wait at least so long for the next feeding."""
        if self.watchdog_s is not None and self.watchdog_s < longest_s:
            self.watchdog_s = longest_s
            self.send(f"WATCHDOG_USEC={int(longest_s * 1e6)}")

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
