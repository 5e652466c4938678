"""What waits in a socket between the daemon's processes."""

from __future__ import annotations

import socket
from collections.abc import Iterator


def waiting_messages(
    connection: socket.socket, *, most: int, message_bytes: int
) -> Iterator[bytes]:
    """Receive what is there, without ever waiting; a closed or failed socket has nothing.

    Args:
        connection: A SOCK_SEQPACKET socket.
        most: The most messages to receive; the others stay for the next time.
        message_bytes: The most bytes of a message; the rest of a longer one is lost.
    """
    for _ in range(most):
        try:
            message = connection.recv(message_bytes, socket.MSG_DONTWAIT)
        except OSError:
            return
        if not message:
            return
        yield message
