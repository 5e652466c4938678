"""Where the protected application's pod is now, as the process that follows the pods says.

An address is used only while its pod has its group on this node, and only while that is said again
and again. So what has another pod's address by now is never asked in its place.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from typing import Final

from stallward.actuator.runtime.waiting_messages import waiting_reports

SILENT_S: Final = 3.0
"""After so long without a word an address is used no more; it is sent once a second."""
_MESSAGE_BYTES: Final = 4096
_MESSAGES: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAddress:
    """The pod that the protected application is."""

    sent_s: float
    """CLOCK_MONOTONIC, which all processes share."""
    uid: str = ""
    """The pod; empty for none."""
    address: str = ""
    """Its IP address; empty while it has none."""


class PodAddresses:
    """Reads the addresses, without ever waiting.

    Args:
        connection: A SOCK_SEQPACKET socket.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._last: PodAddress | None = None

    def read(self) -> PodAddress | None:
        """Return what was said last; ``None`` if that is too long ago."""
        for one in waiting_reports(
            self._connection, PodAddress, most=_MESSAGES, message_bytes=_MESSAGE_BYTES
        ):
            self._last = one
        last = self._last
        return None if last is None or time.monotonic() - last.sent_s > SILENT_S else last

    def close(self) -> None:
        """Close the socket."""
        self._connection.close()
