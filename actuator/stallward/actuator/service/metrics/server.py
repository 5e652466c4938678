"""Answers GET /metrics in the service's event loop. Nothing else is served."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from stallward.actuator.errors import DaemonError
from stallward.actuator.runtime.addresses import Address
from stallward.actuator.service.loop_link import LoopLink
from stallward.actuator.service.metrics.counts import About, TickCounts

_REQUEST_BYTES: Final = 16 << 10
_PATIENCE_S: Final = 5.0
_MAX_CONNECTIONS: Final = 16
_PLAIN: Final = "text/plain; charset=utf-8"

Render = Callable[[str], tuple[str, bytes]]
"""From the Accept header to content type and body."""


class MetricsServer:
    """One listening socket.

    Args:
        address: Where to listen; a Unix socket gets mode 0660.
        render: Makes the answer.
    """

    def __init__(self, address: Address, render: Render) -> None:
        self._address = address
        self._render = render
        self._server: asyncio.Server | None = None
        self._connections = 0

    async def start(self) -> None:
        """Start to listen.

        Raises:
            DaemonError: If the address cannot be had.
        """
        address = self._address
        try:
            if address.path:
                _make_room(Path(address.path))
                mask = os.umask(0o117)
                try:
                    self._server = await asyncio.start_unix_server(
                        self._serve, address.path, limit=_REQUEST_BYTES
                    )
                finally:
                    os.umask(mask)
            else:
                self._server = await asyncio.start_server(
                    self._serve, address.host, address.port, limit=_REQUEST_BYTES
                )
        except OSError as error:
            raise DaemonError(
                f"Metrics cannot be served at {address}: {error.strerror or error}.",
                next_step="Choose another address with metrics under [service].",
            ) from error

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            if self._address.path:
                with contextlib.suppress(OSError):
                    Path(self._address.path).unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            if self._connections <= _MAX_CONNECTIONS:
                async with asyncio.timeout(_PATIENCE_S):
                    writer.write(self._answer(await reader.readuntil(b"\r\n\r\n")))
                    await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever asks so gets no answer
        finally:
            self._connections -= 1
            writer.close()

    def _answer(self, request: bytes) -> bytes:
        first, *lines = request.decode("latin-1").split("\r\n")
        method, _, target = first.partition(" ")
        headers = {
            name.lower(): value.strip() for name, _, value in (h.partition(":") for h in lines)
        }
        path = target.partition(" ")[0].partition("?")[0]
        if method not in {"GET", "HEAD"}:
            status, content_type, body = "405 Method Not Allowed", _PLAIN, b"GET /metrics\n"
        elif path != "/metrics":
            status, content_type, body = "404 Not Found", _PLAIN, b"It is /metrics.\n"
        else:
            status = "200 OK"
            content_type, body = self._render(headers.get("accept", ""))
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode("latin-1") + (b"" if method == "HEAD" else body)


def _make_room(path: Path) -> None:
    """Remove a socket that was left behind; the service's own lock says that it was.

    Raises:
        FileExistsError: If something else is there.
    """
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(17, "not a socket")
        path.unlink()


async def serve_metrics(
    address: Address, link: LoopLink, refused: Mapping[str, int], about: About
) -> MetricsServer:
    """Count what comes through ``link`` from now on, and serve it.

    Raises:
        DaemonError: If the address cannot be had.
    """
    # prometheus_client costs memory: only where metrics are wanted.
    from stallward.actuator.service.metrics.exposition import DaemonMetrics  # noqa: PLC0415

    counts = TickCounts()
    link.on_tick = counts.take
    metrics = DaemonMetrics(counts=counts, link=link, refused=refused, about=about)
    server = MetricsServer(address, metrics.render)
    await server.start()
    return server
