"""Latencies from StatsD: timings in datagrams, ``name:12.5|ms|@0.1|#env:prod``, one a line.

The types ``ms`` (StatsD), ``h`` and ``d`` (Datadog's histogram and distribution, several values
as ``name:1:2|d``), sample rates and tags are understood. Lines of other types and other names are
ignored; malformed lines are counted.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import socket
import stat
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.latency.feed import LatencyFeed
from stallward.actuator.runtime.addresses import Address

DATAGRAM_BYTES: Final = 1 << 16
STEP_DATAGRAMS: Final = 2000
"""The most datagrams per step (20,000 a second), so that a flood costs less than half a core."""
_BUFFER_BYTES: Final = 1 << 20
_SO_RXQ_OVFL: Final = 40
"""The socket option by which the kernel reports how many datagrams it dropped (socket(7))."""
_ANY_USER_WRITES: Final = 0o666
_NUMBER: Final = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_MIN_RATE: Final = 1e-6
_NOT_TIMES: Final = (b"_e{", b"_sc|")
"""The prefixes of Datadog's events and service checks, which are ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsdFilter:
    """The condition that lines must meet."""

    metric: bytes
    """The exact name of the metric."""
    tags: frozenset[bytes] = frozenset()
    """Tags that a line must all have."""
    unit_ms: float = 1.0
    """Milliseconds per unit of types that have no unit of their own."""


def take_datagram(
    datagram: bytes, wanted: StatsdFilter, add: Callable[[float, float], bool]
) -> int:
    """Pass every latency of a datagram to ``add``; returns the number of malformed lines.

    Args:
        datagram: The received bytes.
        wanted: The condition that lines must meet.
        add: Takes a latency in ms and how many requests it stands for; False refuses it.
    """
    malformed = 0
    for line in datagram.split(b"\n"):
        stripped = line.strip()
        if stripped and not stripped.startswith(_NOT_TIMES):
            malformed += not _take_line(stripped, wanted, add)
    return malformed


def _take_line(line: bytes, wanted: StatsdFilter, add: Callable[[float, float], bool]) -> bool:
    """Pass on the latencies of one line; false if it is malformed (of whatever metric)."""
    head, *sections = line.split(b"|")
    name, colon, values = head.partition(b":")
    if not (name and colon and sections):
        return False
    kind = sections[0]
    if name != wanted.metric or kind not in {b"ms", b"h", b"d"}:
        return True
    rate, tags = 1.0, frozenset[bytes]()
    for section in sections[1:]:
        if section.startswith(b"@"):
            number = _number(section[1:])
            if number is None or not _MIN_RATE <= number <= 1.0:
                return False
            rate = number
        elif section.startswith(b"#"):
            tags = frozenset(section[1:].split(b","))
    if not wanted.tags <= tags:
        return True
    unit_ms = 1.0 if kind == b"ms" else wanted.unit_ms
    understood = True
    for text in values.split(b":"):
        value = _number(text)
        understood &= value is not None and add(value * unit_ms, 1.0 / rate)
    return understood


def _number(text: bytes) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) else None


class StatsdReceiver:
    """Receives timings on one datagram socket.

    Args:
        address: Where to listen: a UDP address, or the path of a Unix datagram socket. Every user
            of the machine may write to that, unless the rights of its folder forbid it.
        metric: The exact name of the metric.
        tags: Tags that a line must all have.
        unit_ms: Milliseconds per unit of types without a unit of their own.
        feed: Takes the latencies.
        flush_s: How often received latencies are sent.
        retry_s: How long to wait before another try when listening fails.
    """

    def __init__(
        self,
        *,
        address: Address,
        metric: str,
        tags: tuple[str, ...],
        unit_ms: float,
        feed: LatencyFeed,
        flush_s: float,
        retry_s: float,
    ) -> None:
        self._address = address
        self._wanted = StatsdFilter(
            metric=metric.encode(), tags=frozenset(tag.encode() for tag in tags), unit_ms=unit_ms
        )
        self._feed = feed
        self._flush_s, self._retry_s = flush_s, retry_s
        self._socket: socket.socket | None = None
        self._dropped = 0

    @property
    def period_s(self) -> float:
        """How long a step should take."""
        return self._retry_s if self._socket is None else self._flush_s

    def step(self, until_s: float, life_fd: int) -> None:
        """Receive datagrams until ``until_s``, and send their latencies."""
        if self._socket is None:
            try:
                self._socket = listen(self._address)
            except OSError as error:
                self._feed.fault(f"cannot listen ({os.strerror(error.errno or errno.EINVAL)})")
                select.select([life_fd], [], [], max(until_s - time.monotonic(), 0.0))
                return
            until_s = time.monotonic() + self._flush_s
        left = STEP_DATAGRAMS
        while (left_s := until_s - time.monotonic()) > 0.0:
            sources = [life_fd] if left == 0 else [life_fd, self._socket.fileno()]
            ready, _, _ = select.select(sources, [], [], left_s)
            if life_fd in ready:
                break
            if ready:
                left = self._take_in(self._socket, left)
        self._feed.flush()

    def _take_in(self, source: socket.socket, left: int) -> int:
        """Read at most ``left`` datagrams; returns how many more may be read."""
        while left > 0:
            try:
                datagram, ancillary, _, _ = source.recvmsg(DATAGRAM_BYTES, 64)
            except OSError:
                break
            left -= 1
            self._note_dropped(ancillary)
            self._feed.malformed += take_datagram(datagram, self._wanted, self._feed.add)
        return left

    def _note_dropped(self, ancillary: list[tuple[int, int, bytes]]) -> None:
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, _SO_RXQ_OVFL) and len(data) >= 4:
                dropped = struct.unpack("=I", data[:4])[0]
                self._feed.lost += max(dropped - self._dropped, 0)
                self._dropped = dropped

    def close(self) -> None:
        """Close the socket and remove its name."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            if self._address.path:
                with contextlib.suppress(OSError):
                    Path(self._address.path).unlink()


def listen(address: Address) -> socket.socket:
    """Open a socket that listens; a socket file that a killed process left is replaced.

    Raises:
        OSError: If the address cannot be used.
    """
    made = socket.socket(address.family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    try:
        if address.path:
            _remove_abandoned(address.path)
        else:
            with contextlib.suppress(OSError):
                made.setsockopt(socket.SOL_SOCKET, _SO_RXQ_OVFL, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        made.bind(address.bindable)
        if address.path:
            Path(address.path).chmod(_ANY_USER_WRITES)
    except BaseException:
        made.close()
        raise
    return made


def _remove_abandoned(path: str) -> None:
    """Remove a socket file on which no process listens any more; anything else stays."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return
    except OSError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            with contextlib.suppress(OSError):
                Path(path).unlink()
