"""Writing notices to systemd's journal, with fields of their own.

The journal takes a datagram of lines ``NAME=value`` on its socket; a value with a line break is
written with its length instead (systemd, Native Journal Protocol).
"""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from typing import Final, Protocol

from stallward.actuator.kernel.paths import RUN
from stallward.actuator.runtime.stderr_line import say

JOURNAL_SOCKET: Final = RUN / "systemd/journal/socket"
_NOTICE: Final = "5"
"""The priority of what is normal but worth noting (syslog(3))."""


def encode(fields: dict[str, str]) -> bytes:
    """The datagram of an entry."""
    parts = []
    for name, value in fields.items():
        raw = value.encode("utf-8", "replace")
        if b"\n" in raw:
            parts.append(name.encode() + b"\n" + struct.pack("<Q", len(raw)) + raw + b"\n")
        else:
            parts.append(name.encode() + b"=" + raw + b"\n")
    return b"".join(parts)


class JournalEntry(Protocol):
    """What is written to the journal."""

    @property
    def message(self) -> str:
        """The sentence for people."""

    @property
    def message_id(self) -> str:
        """Identifies such messages among all others (``journalctl MESSAGE_ID=...``)."""

    def fields(self) -> dict[str, str]:
        """Further fields, by their names."""


class Journald:
    """Writes notices to the journal, or to standard error where there is none, without waiting.

    Args:
        path: The journal's socket.
    """

    def __init__(self, path: Path = JOURNAL_SOCKET) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

    def tell(self, notice: JournalEntry) -> None:
        """Write one notice; it is lost where the journal has no room."""
        entry = {
            "MESSAGE": notice.message,
            "MESSAGE_ID": notice.message_id,
            "PRIORITY": _NOTICE,
            "SYSLOG_IDENTIFIER": "stallward",
            **notice.fields(),
        }
        try:
            self._socket.sendto(encode(entry), str(self._path))
        except (FileNotFoundError, ConnectionRefusedError):
            say(notice.message, "service")
        except OSError:
            return

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
