"""One bounded HTTP GET: whatever the server does, it ends in time and needs little memory."""

from __future__ import annotations

import http.client
import io
import socket
import time
from typing import Final, cast

from stallward.actuator.errors import DaemonError
from stallward.actuator.latency.config import split_url

MAX_BODY_BYTES: Final = 8 << 20
_MAX_HEADER_BYTES: Final = 64 << 10
_ACCEPT: Final = "text/plain;version=0.0.4;q=1.0,application/openmetrics-text;version=1.0.0;q=0.5"


class ScrapeError(DaemonError):
    """Raised when an endpoint gives no usable answer; the message continues after its name."""


class _Incoming(io.RawIOBase):
    """The bytes of a socket until a deadline, up to a limit."""

    def __init__(self, connection: socket.socket, deadline_s: float) -> None:
        self._connection = connection
        self._deadline_s = deadline_s
        self._left_bytes = MAX_BODY_BYTES + _MAX_HEADER_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0.0:
            raise TimeoutError
        self._connection.settimeout(left_s)
        count = self._connection.recv_into(buffer)
        self._left_bytes -= count
        if self._left_bytes < 0:
            raise ScrapeError(f"sends more than {MAX_BODY_BYTES >> 20} MiB")
        return count

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return the file that http.client reads from."""
        return io.BufferedReader(self, 1 << 16)


def scrape(url: str, timeout_s: float) -> bytes:
    """Return the body of the answer of ``url``.

    Args:
        url: A plain HTTP address.
        timeout_s: How long everything together may take.

    Raises:
        ScrapeError: If there is no answer in time, or it is too large.
    """
    host, port, path = split_url(url)
    deadline_s = time.monotonic() + timeout_s
    try:
        with socket.create_connection((host, port), timeout_s) as connection:
            name = f"[{host}]" if ":" in host else host
            connection.sendall(
                f"GET {path} HTTP/1.1\r\nHost: {name}:{port}\r\nAccept: {_ACCEPT}\r\n"
                f"User-Agent: stallward\r\nConnection: close\r\n\r\n".encode("ascii")
            )
            return _answer(_Incoming(connection, deadline_s))
    except TimeoutError as error:
        raise ScrapeError(f"does not answer within {timeout_s:g} s") from error
    except ConnectionRefusedError as error:
        raise ScrapeError("refuses the connection") from error
    except OSError as error:
        raise ScrapeError(f"cannot be reached ({error.strerror or error})") from error
    except (http.client.HTTPException, ValueError) as error:
        raise ScrapeError(f"does not speak HTTP ({type(error).__name__})") from error


def _answer(incoming: _Incoming) -> bytes:
    response = http.client.HTTPResponse(cast("socket.socket", incoming), method="GET")
    response.begin()
    if response.status != http.client.OK:
        raise ScrapeError(f"answers with status {response.status}")
    if response.getheader("Content-Encoding", "identity") != "identity":
        raise ScrapeError("answers compressed, which was not asked for")
    # A size of one byte more than allowed keeps http.client from reading without a bound.
    body = response.read(MAX_BODY_BYTES + 1)
    if len(body) > MAX_BODY_BYTES:
        raise ScrapeError(f"sends more than {MAX_BODY_BYTES >> 20} MiB")
    if response.length:  # with a size given, http.client does not raise for a short body
        raise ScrapeError("ends in the middle of its answer")
    return body
