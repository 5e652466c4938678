"""Pages with histograms, and a server that answers as it is told."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

from stallward.actuator.latency.prometheus.histogram import Exposition, HistogramParser
from stallward.actuator.latency.prometheus.selector import parse_selector

STARTED_S = 1_759_990_000.0
"""When the process started that the pages are of."""
BOUNDS = (0.005, 0.01, 0.05, 0.1, 0.5)


def parse(body: str | bytes, selector: str = "t_seconds") -> Exposition:
    data = body if isinstance(body, bytes) else body.encode()
    return HistogramParser(parse_selector(selector)).parse(data)


def page(
    *counts: float,
    name: str = "t_seconds",
    labels: str = "",
    total: float = 0.0,
    created: float | None = None,
    started: float | None = STARTED_S,
) -> str:
    """A histogram with cumulative ``counts`` at 10, 20, ... ms and +Inf."""
    bounds = [f"{0.01 * (i + 1):g}" for i in range(len(counts) - 1)] + ["+Inf"]
    comma = "," if labels else ""
    lines = [
        f'{name}_bucket{{{labels}{comma}le="{bound}"}} {count}'
        for bound, count in zip(bounds, counts, strict=True)
    ]
    lines.append(f"{name}_sum{{{labels}}} {total}")
    if created is not None:
        lines.append(f"{name}_created{{{labels}}} {created}")
    if started is not None:
        lines.append("# HELP process_start_time_seconds Start time of the process.")
        lines.append(f"process_start_time_seconds {started}")
    return "\n".join([*lines, ""])


class Endpoint:
    """An HTTP server of our own that answers every connection with the same bytes.

    Args:
        host: An address of this machine.
        port: The port; any that is free by default.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self.answer = b""
        self.body: Callable[[], bytes] | None = None
        self.pause_s = 0.0
        self.drip_s = 0.0
        self.requests: list[bytes] = []
        self._server = socket.create_server((host, port))
        self.port = int(self._server.getsockname()[1])
        self._done = threading.Event()
        self.url = f"http://{host}:{self.port}/metrics"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while not self._done.is_set():
            connection, _ = self._server.accept()
            with connection:
                try:
                    self._respond(connection)
                except OSError:
                    continue

    def _respond(self, connection: socket.socket) -> None:
        if self._done.is_set():
            return
        self.requests.append(connection.recv(4096))
        if self._done.wait(self.pause_s):
            return
        if self.body is not None:
            body = self.body()
            head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
            connection.sendall(head + body)
        elif self.drip_s:
            for byte in self.answer:
                if self._done.wait(self.drip_s):
                    return
                connection.sendall(bytes([byte]))
        else:
            connection.sendall(self.answer)

    def stop(self) -> None:
        self._done.set()
        socket.create_connection(self._server.getsockname()).close()
        self._thread.join()
        self._server.close()
