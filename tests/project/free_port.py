"""Ports for programs that are told on which one to listen."""

from __future__ import annotations

import contextlib
import random
import socket

_PORTS = range(20_000, 30_000)
"""The kernel gives none of these by itself, to a client or to who binds port 0."""


def free_port() -> int:
    """A port on which nothing listens, and that no other test of this machine gets.

    Each is reserved by the name of a socket, until this process ends.
    """
    for port in random.sample(_PORTS, len(_PORTS)):
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            reserved = stack.enter_context(socket.socket(socket.AF_UNIX))
            reserved.bind(f"\0stallward-test-port-{port}")
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                probe = stack.enter_context(socket.socket(socket.AF_INET, kind))
                probe.bind(("127.0.0.1", port))
            reserved.detach()  # it stays open, and nobody warns that it does
            return port
    raise AssertionError("there is no free port")
