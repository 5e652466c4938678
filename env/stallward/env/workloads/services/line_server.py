"""Serves a protocol of lines on a Unix socket: a client sends a line and gets an answer."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable
from pathlib import Path

Answer = Callable[[bytes], bytes]
"""Makes the answer to a line, which comes without its end."""


def serve(answer: Answer, path: Path) -> None:
    """Answer requests on the Unix socket ``path`` for ever.

    One request is served at a time, in the order of arrival over all connections.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Bound under another name first, so that the path appears once connecting to it works.
    early = path.with_name(path.name + ".early")
    listener.bind(str(early))
    listener.listen(64)
    early.rename(path)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    pending: dict[socket.socket, bytes] = {}
    while True:
        for key, _ in selector.select():
            peer = key.fileobj
            if peer is listener:
                connection, _ = listener.accept()
                selector.register(connection, selectors.EVENT_READ)
                pending[connection] = b""
            elif isinstance(peer, socket.socket) and not _serve_one(answer, peer, pending):
                selector.unregister(peer)
                del pending[peer]
                peer.close()


def _serve_one(answer: Answer, peer: socket.socket, pending: dict[socket.socket, bytes]) -> bool:
    """Answer the complete lines that a client has sent; return false when it has gone."""
    try:
        received = peer.recv(4096)
        if not received:
            return False
        *lines, pending[peer] = (pending[peer] + received).split(b"\n")
        for line in lines:
            peer.sendall(answer(line))
    except OSError:
        return False
    return True
