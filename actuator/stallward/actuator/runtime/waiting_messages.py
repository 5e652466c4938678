"""Reports between the daemon's processes: a dataclass as JSON, one message of a socket."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from typing import TypeVar

from stallward.actuator.errors import FramesError
from stallward.agent.errors import SchemaError
from stallward.agent.schema.read import read
from stallward.agent.schema.write import to_table

T = TypeVar("T")


def pack(report: object) -> bytes:
    """Make the message of a report."""
    return json.dumps(to_table(report)).encode()


def unpack(kind: type[T], message: bytes) -> T:
    """Read the message of a report.

    Raises:
        FramesError: If it is not one of this kind and version.
    """
    try:
        return read(kind, json.loads(message), "message")
    except (ValueError, RecursionError, SchemaError) as error:
        raise FramesError(f"A {kind.__name__} is damaged.") from error


def waiting_reports(
    connection: socket.socket, kind: type[T], *, most: int, message_bytes: int
) -> Iterator[T]:
    """Receive what is there, without ever waiting; a closed or failed socket has nothing.

    Args:
        connection: A SOCK_SEQPACKET socket.
        kind: What comes on it; a message that is damaged counts as none.
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
        with contextlib.suppress(FramesError):
            yield unpack(kind, message)
