"""One bounded HTTP GET: whatever the server does, it ends in time and needs little memory."""

from __future__ import annotations

import http.client
import io
import socket
import time
from contextlib import closing
from typing import Final, cast
from urllib.parse import urljoin, urlsplit

from stallward.actuator.errors import DaemonError
from stallward.actuator.latency.config import split_url
from stallward.agent.printable import printable

MAX_BODY_BYTES: Final = 8 << 20
_MAX_HEADER_BYTES: Final = 64 << 10
_ACCEPT: Final = (
    "text/plain;version=0.0.4;q=1.0,application/openmetrics-text;version=1.0.0;q=0.5,"
    # As Prometheus ends its own: servers that know neither would answer 406.
    "text/plain;q=0.2,*/*;q=0.1"
)
_NO_LOGIN: Final = "Let it be read from this machine without one."
_NOT_ACCEPTABLE: Final = "Let it answer in the text format of Prometheus (text/plain)."
_NO_TLS: Final = "Let the application serve plain HTTP on the loopback interface."
_TLS_ALERT: Final = "\x15\x03"
_SHOWN_CHARACTERS: Final = 200
_FAULTS: Final = (OSError, http.client.HTTPException, ValueError, OverflowError)
"""What the network and http.client raise; the last one for a chunk of impossible size."""
_BODY_BYTES: Final = 4096
"""How much of the body of a refusal is looked at."""
_REFUSALS: Final = (
    (
        b"An error has occurred",
        "its client library cannot gather the metrics",
        "Open the page: its text names the metric, which often is there twice.",
    ),
    (b"Limit of concurrent requests reached", "others scrape it at the same time", ""),
)
"""What Go's client library writes into the body: a part of it, its meaning, and the next step. The
text itself holds values of labels, which may be personal."""


class ScrapeError(DaemonError):
    """Raised when an endpoint gives no usable answer.

    The cause continues after the endpoint's name; the next step is empty where the cause says all.
    """

    @property
    def reason(self) -> str:
        """The cause and the next step, for where there is only one line."""
        return f"{self.cause}. {self.next_step}" if self.next_step else self.cause


class _Incoming(io.RawIOBase):
    """The bytes of a socket until a deadline, up to a limit."""

    def __init__(self, connection: socket.socket, deadline_s: float) -> None:
        self._connection = connection
        self._deadline_s = deadline_s
        self._left_bytes = MAX_BODY_BYTES + _MAX_HEADER_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        self._connection.settimeout(_left_s(self._deadline_s))
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

    A body whose end is known ends with a line feed, also where the server forgot it: only a last
    line without one may be cut off.

    Args:
        url: A plain HTTP address.
        timeout_s: How long everything together may take.

    Raises:
        ScrapeError: If there is no answer in time, or it is too large.
    """
    host, port, path = split_url(url)
    deadline_s = time.monotonic() + timeout_s
    try:
        with _connect(host, port, deadline_s) as connection:
            name = f"[{host}]" if ":" in host else host
            connection.settimeout(_left_s(deadline_s))
            connection.sendall(
                f"GET {path} HTTP/1.1\r\nHost: {name}:{port}\r\nAccept: {_ACCEPT}\r\n"
                "Accept-Encoding: identity\r\nUser-Agent: stallward\r\n"
                "Connection: close\r\n\r\n".encode("ascii")
            )
            return _answer(_Incoming(connection, deadline_s), url)
    except _FAULTS as error:
        raise _fault(error, timeout_s) from error


def _fault(error: Exception, timeout_s: float) -> ScrapeError:
    """Return what an error of the network or of http.client means."""
    match error:
        case TimeoutError():
            what = f"does not answer within {timeout_s:g} s"
        case ConnectionRefusedError():
            what = "refuses the connection"
        case http.client.RemoteDisconnected():
            what = "closes the connection without an answer"
        case ConnectionResetError() | BrokenPipeError() | http.client.IncompleteRead():
            what = "ends in the middle of its answer"
        case OSError():
            what = f"cannot be reached ({error.strerror or error})"
        case http.client.BadStatusLine() if str(error).startswith(_TLS_ALERT):
            return ScrapeError("speaks HTTPS only", next_step=_NO_TLS)
        case _:
            what = f"does not speak HTTP ({type(error).__name__})"
    return ScrapeError(what)


def _left_s(deadline_s: float) -> float:
    left_s = deadline_s - time.monotonic()
    if left_s <= 0.0:
        raise TimeoutError
    return left_s


def _connect(host: str, port: int, deadline_s: float) -> socket.socket:
    """Connect to the first address of a host that takes the connection, before a deadline."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise ScrapeError("has no name that can be looked up") from error
    fault: OSError = OSError("it has no address")
    for family, kind, protocol, _, address in found:
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(_left_s(deadline_s))
            connection.connect(address)
        except OSError as error:
            connection.close()
            fault = error
        else:
            return connection
    raise fault


def _answer(incoming: _Incoming, url: str) -> bytes:
    # Left open after a fault, it would be collected with its file, in whatever order.
    with closing(
        http.client.HTTPResponse(cast("socket.socket", incoming), method="GET")
    ) as response:
        response.begin()
        return _body(response, url)


def _body(response: http.client.HTTPResponse, url: str) -> bytes:
    if response.status != http.client.OK:
        raise _refusal(response, url)
    encoding = response.getheader("Content-Encoding", "")
    if {coding.strip().lower() for coding in encoding.split(",")} - {"", "identity"}:
        raise ScrapeError(
            f"answers compressed ({_shown(encoding)}), though it is asked not to",
            next_step="Turn compression off for this page.",
        )
    has_end = response.length is not None or response.chunked
    # A size of one byte more than allowed keeps http.client from reading without a bound.
    body = response.read(MAX_BODY_BYTES + 1)
    if len(body) > MAX_BODY_BYTES:
        raise ScrapeError(f"sends more than {MAX_BODY_BYTES >> 20} MiB")
    if response.length:  # with a size given, http.client does not raise for a short body
        raise ScrapeError("ends in the middle of its answer")
    return body + b"\n" if body and has_end and not body.endswith(b"\n") else body


def _refusal(response: http.client.HTTPResponse, url: str) -> ScrapeError:
    """Return what an answer other than 200 means."""
    status = response.status
    phrase = http.client.responses.get(status)
    what = (
        f"answers with status {status} ({phrase})" if phrase else f"answers with status {status}"
    )
    location = response.getheader("Location")
    if 300 <= status < 400 and location is not None:
        return _redirection(what, location, url)
    if status in {http.client.UNAUTHORIZED, http.client.FORBIDDEN}:
        return ScrapeError(f"{what}: it asks for a login", next_step=_NO_LOGIN)
    if status in {http.client.NOT_ACCEPTABLE, http.client.UNSUPPORTED_MEDIA_TYPE}:
        return ScrapeError(what, next_step=_NOT_ACCEPTABLE)
    body = _start_of_body(response)
    if status == http.client.BAD_REQUEST and b"https" in body.lower():
        return ScrapeError("speaks HTTPS only", next_step=_NO_TLS)
    for part, meaning, step in _REFUSALS:
        if part in body:
            return ScrapeError(f"{what}: {meaning}", next_step=step)
    return ScrapeError(what)


def _start_of_body(response: http.client.HTTPResponse) -> bytes:
    """Return what a refusal says; nothing if that does not come, since the status says enough."""
    try:
        return response.read(_BODY_BYTES)
    except _FAULTS:
        return b""


def _redirection(what: str, location: str, url: str) -> ScrapeError:
    """Return where an answer sends the client; without a query, which may hold secrets."""
    try:
        parts = urlsplit(urljoin(url, location))
        place = _shown(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}")
    except ValueError:
        return ScrapeError(what)
    if parts.scheme != "http":
        return ScrapeError(f"{what} and sends to {place}", next_step=_NO_TLS)
    return ScrapeError(
        f"{what} and sends to {place}",
        next_step=f'Write url = "{place}" if that is the page; redirections are not followed.',
    )


def _shown(text: str) -> str:
    """The start of a text from outside, without what a terminal would act on."""
    return printable(text[:_SHOWN_CHARACTERS])
