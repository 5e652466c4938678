"""Serves GET /metrics and GET /ready, and nothing else, in the service's event loop."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from stallward.actuator.errors import DaemonError
from stallward.actuator.runtime.addresses import Address
from stallward.actuator.runtime.stderr_line import say
from stallward.actuator.service.loop_link import LoopLink
from stallward.actuator.service.metrics.counts import MetricsConfig, TickCounts
from stallward.actuator.service.socket_files import Listener, make_room, socket_mode
from stallward.proto.v1 import stallward_pb2 as pb

_REQUEST_BYTES: Final = 16 << 10
_PATIENCE_S: Final = 5.0
_MAX_CONNECTIONS: Final = 64
"""The most connections at once. One more takes the place of the oldest: a scraper has asked and is
answered within milliseconds, so who is there for long is none."""
_SAID_AGAIN_S: Final = 60.0
"""The least time between two lines about failures."""
_PLAIN: Final = "text/plain; charset=utf-8"

Render = Callable[[str], tuple[str, bytes]]
"""Gets the Accept header and returns the content type and the body."""


class MetricsServer(Listener):
    """A small HTTP server on one socket. Any user can take its port, so it tries again.

    Args:
        address: Where to listen; a Unix socket gets mode 0660.
        render: Renders the metrics.
        why_not_ready: Returns why the daemon is not ready; empty if it is.
    """

    def __init__(
        self, address: Address, render: Render, why_not_ready: Callable[[], str] = str
    ) -> None:
        super().__init__()
        self._address = address
        self._render = render
        self._why_not_ready = why_not_ready
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.StreamWriter, None] = {}
        self._said_s = float("-inf")

    async def start(self) -> None:
        """Start to listen.

        Raises:
            DaemonError: If it cannot listen at the address.
        """
        address = self._address
        try:
            if address.path:
                make_room(Path(address.path))
                with socket_mode(0o660):
                    self._server = await asyncio.start_unix_server(
                        self._serve, address.path, limit=_REQUEST_BYTES
                    )
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
        if len(self._open) >= _MAX_CONNECTIONS:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.transport.abort()
        self._open[writer] = None
        try:
            async with asyncio.timeout(_PATIENCE_S):
                writer.write(self._answer(await reader.readuntil(b"\r\n\r\n")))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a slow or malformed request gets no answer
        finally:
            self._open.pop(writer, None)
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
        elif path == "/ready":
            fault = self._why_not_ready()
            status = "503 Service Unavailable" if fault else "200 OK"
            content_type, body = _PLAIN, f"{fault or 'the loop ticks'}\n".encode()
        elif path != "/metrics":
            status, content_type, body = (
                "404 Not Found",
                _PLAIN,
                b"There are /metrics and /ready.\n",
            )
        else:
            status, content_type, body = self._metrics(headers.get("accept", ""))
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode("latin-1") + (b"" if method == "HEAD" else body)

    def _metrics(self, accept: str) -> tuple[str, str, bytes]:
        """The status, the content type and the body of the answer with the metrics."""
        try:
            return "200 OK", *self._render(accept)
        except Exception as error:  # asyncio would log a traceback for each who asks
            if time.monotonic() - self._said_s >= _SAID_AGAIN_S:
                self._said_s = time.monotonic()
                say(f"metrics: they cannot be shown ({error!r}).", "service")
            return "500 Internal Server Error", _PLAIN, b"The metrics cannot be shown.\n"


def make_metrics_server(
    address: Address,
    link: LoopLink,
    refused: Mapping[str, int],
    config: MetricsConfig,
    own_status: Callable[[], pb.StatusResponse],
) -> MetricsServer:
    """Count the tick records that arrive on ``link`` from now on.

    Args:
        address: Where to serve them.
        link: The connection to the loop.
        refused: The number of refused calls by code.
        config: The part of the configuration that the metrics show.
        own_status: Returns what the service itself knows: problems, canary and experiment.

    Returns:
        The server of the metrics, which does not listen yet.
    """
    # prometheus_client costs memory, so it is imported only if metrics are configured.
    from stallward.actuator.service.metrics.exposition import DaemonMetrics  # noqa: PLC0415

    counts = TickCounts(config.slo_ms)
    link.listeners.append(counts.take)
    metrics = DaemonMetrics(counts=counts, link=link, refused=refused, config=config)
    metrics.own_status = own_status

    def why_not_ready() -> str:
        return "" if link.silent_s < config.silence_s else "the loop does not tick"

    server = MetricsServer(address, metrics.render, why_not_ready)
    metrics.server_failures = lambda: server.failures
    return server
