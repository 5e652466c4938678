"""Latencies from StatsD timings that arrive as datagrams."""

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
from typing import Final, NamedTuple

from stallward.actuator.errors import NodeError
from stallward.actuator.latency.config import UNIT_MS, StatsdLatency
from stallward.actuator.latency.counts import Tally, without_digits
from stallward.actuator.latency.feed import LatencyFeed
from stallward.actuator.runtime.addresses import Address
from stallward.actuator.runtime.socket_options import move_aside
from stallward.agent.printable import printable

# ---------- The lines of StatsD datagrams: ``name:12.5|ms|@0.1|#env:prod``, one timing or several a line
# The types ``ms`` (StatsD), ``h`` and ``d`` (Datadog's histogram and distribution) are latencies.
# Several values share a type (``name:1:2|d``) or have one each, with its own sample rate
# (``name:1|ms:2|ms|@0.5``). Tags stand behind the values, or in the name as InfluxDB, Graphite,
# Librato and SignalFx write them.

LEAST_RATE: Final = 0.001
"""Smaller sample rates are malformed, so that one value never counts as more than 1,000 requests:
whoever may send could outvote all others with one datagram."""
NAMES: Final = 16
"""How many other names are kept in mind."""
SHOWN_NAMES: Final = 5
_NAME_CHARACTERS: Final = 64
_NUMBER: Final = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_TAGS_START: Final = re.compile(rb"[,;#\[]")
"""Where the tags in a name begin: InfluxDB's, Graphite's, Librato's and SignalFx's."""
_TIMES: Final = frozenset({b"ms", b"h", b"d"})
_TYPES: Final = _TIMES | {b"c", b"g", b"s", b"m"}
_NOT_METRICS: Final = (b"_e{", b"_sc|")
"""The prefixes of Datadog's events and service checks, which are ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsdFilter:
    """The condition that lines must meet."""

    metric: bytes
    """The name of the metric, without tags."""
    tags: frozenset[bytes] = frozenset()
    """Tags that a line must all have, each as ``name:value``."""
    unit_ms: float = 1.0
    """Milliseconds per unit of types that have no unit of their own."""

    @classmethod
    def of(cls, config: StatsdLatency) -> StatsdFilter:
        """Return the condition that a configuration sets."""
        return cls(
            metric=config.metric.encode(),
            tags=frozenset(tag.encode() for tag in config.tags),
            unit_ms=UNIT_MS[config.unit],
        )


class FrequentNames:
    """The most frequent of many names, in bounded memory (Misra and Gries).

    Whatever a sender makes up, a name that is more than a 17th of all stays.
    """

    def __init__(self) -> None:
        self._counts: dict[bytes, int] = {}

    def note(self, name: bytes) -> None:
        """Count one name."""
        name, counts = name[:_NAME_CHARACTERS], self._counts
        if name in counts:
            counts[name] += 1
        elif len(counts) < NAMES:
            counts[name] = 1
        else:
            self._counts = {kept: count - 1 for kept, count in counts.items() if count > 1}

    def shown(self) -> tuple[str, ...]:
        """Return the most frequent names, as text that a terminal may show."""
        by_count = sorted(self._counts, key=lambda name: (-self._counts[name], name))
        return tuple(printable(name.decode("utf-8", "replace")) for name in by_count[:SHOWN_NAMES])


@dataclass(slots=True)
class _Timing:
    """Values that share a type and a sample rate."""

    values: list[bytes]
    kind: bytes = b""
    weight: float = 1.0


class StatsdLines:
    """Takes in datagrams: passes on their latencies, and counts everything else.

    Args:
        wanted: The condition that lines must meet.
        tally: The counts.
        add: Takes a latency in ms and how many requests it stands for; False refuses it.
    """

    def __init__(
        self, wanted: StatsdFilter, tally: Tally, add: Callable[[float, float], bool]
    ) -> None:
        self._wanted, self._tally, self._add = wanted, tally, add
        self._others = FrequentNames()

    @property
    def other_names(self) -> tuple[str, ...]:
        """The most frequent names of timings that are not the wanted one."""
        return self._others.shown()

    def take(self, datagram: bytes) -> None:
        """Take in one datagram."""
        for line in datagram.split(b"\n"):
            stripped = line.strip(b" \t\r\0")
            if stripped and not stripped.startswith(_NOT_METRICS) and not self._take(stripped):
                self._tally.note_malformed(stripped, show=shown_line)

    def _take(self, line: bytes) -> bool:
        """Take in one line; false if it is malformed (of whatever metric)."""
        name, rest = split_line(line)
        if not name or b"|" not in rest:
            return False
        tags = frozenset[bytes]()
        if name != self._wanted.metric:
            plain, tags = split_name(name)
            if plain != self._wanted.metric:
                if rest.split(b"|", 2)[1].partition(b":")[0] in _TIMES:
                    self._tally.ignored_names += 1
                    self._others.note(plain)
                return True
        parsed = parse_timings(rest)
        if parsed is None:
            return False
        timings, more_tags = parsed
        timings = [timing for timing in timings if timing.kind in _TIMES]
        if not timings:
            self._tally.ignored_types += 1
            return True
        if not self._wanted.tags <= tags | more_tags:
            self._tally.ignored_tags += 1
            return True
        return self._add_all(timings)

    def _add_all(self, timings: list[_Timing]) -> bool:
        understood = True
        for timing in timings:
            unit_ms = 1.0 if timing.kind == b"ms" else self._wanted.unit_ms
            for text in timing.values:
                value = _number(text)
                understood &= value is not None and self._add(value * unit_ms, timing.weight)
        return understood


def split_line(line: bytes) -> tuple[bytes, bytes]:
    """Split a line into its name and what stands behind it.

    A tag in the name may hold colons, as an address or a class of Ruby does. Behind such a name
    there is one value, so the last colon before the type ends it.
    """
    name, _, rest = line.partition(b":")
    if _TAGS_START.search(name) is not None and b":" in rest.partition(b"|")[0]:
        head, bar, sections = line.partition(b"|")
        name, _, value = head.rpartition(b":")
        return name, value + bar + sections
    return name, rest


def split_name(name: bytes) -> tuple[bytes, frozenset[bytes]]:
    """Split a name into the metric's name and its tags, as ``name:value``.

    ``lat,host=a``, ``lat;host=a``, ``lat#host=a`` and ``lat[host=a]`` all have the tag ``host:a``.
    """
    start = _TAGS_START.search(name)
    if start is None:
        return name, frozenset()
    text = name[start.end() :]
    if start[0] == b"[":
        if not text.endswith(b"]"):
            return name, frozenset()
        text = text[:-1]
    separator = b";" if start[0] == b";" else b","
    tags = frozenset(tag.replace(b"=", b":", 1) for tag in text.split(separator) if tag)
    return name[: start.start()], tags


def parse_timings(text: bytes) -> tuple[list[_Timing], frozenset[bytes]] | None:
    """Split what stands behind a name into timings and tags; ``None`` if it is malformed.

    A type or a sample rate ends with a colon where another value follows. Tags hold colons
    themselves, so nothing can follow them; they belong to all values of the line.
    """
    first, *sections = text.split(b"|")
    timing = _Timing(first.split(b":"))
    timings, tags = [timing], frozenset[bytes]()
    for section in sections:
        if not timing.kind:
            timing.kind, more, following = section.partition(b":")
            if not timing.kind:
                return None
        elif section.startswith(b"@"):
            rate, more, following = section[1:].partition(b":")
            number = _number(rate)
            if number is None or not LEAST_RATE <= number <= 1.0:
                return None
            timing.weight = 1.0 / number
        elif section.startswith(b"#"):
            tags |= frozenset(section[1:].split(b","))
            continue
        elif section in _TYPES:  # the value in front of it cannot be told from a tag
            return None
        else:  # Datadog's container, time and environment, and what may come after them
            continue
        if more:
            timing = _Timing(following.split(b":"))
            timings.append(timing)
    return (timings, tags) if timing.kind else None


def shown_line(line: str) -> str:
    """Return what a malformed line looked like, without its numbers and its tags."""
    return without_digits(line.partition("|#")[0].partition("\n")[0])


def _number(text: bytes) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) else None


DATAGRAM_BYTES: Final = 1 << 14
"""A longer datagram is malformed; clients send 1,432 bytes by UDP, or 8 KiB on one machine."""
_BUFFER_BYTES: Final = 1 << 20
_SO_RXQ_OVFL: Final = 40
"""The socket option by which the kernel reports how many datagrams it dropped (socket(7))."""
_NO_EXECUTE: Final = 0o111
"""The mask with which bind(2) makes a socket that every user may write to."""
_CREDENTIALS: Final = struct.Struct("=iII")
"""Process, user and group of a sender (unix(7))."""


class Datagram(NamedTuple):
    """One datagram, and what the kernel says of it."""

    content: bytes
    whole: bool
    """Whether it was no longer than :data:`DATAGRAM_BYTES`."""
    user: int | None
    """The user who sent it, where that was asked for."""
    dropped: int | None
    """How many datagrams the kernel has dropped so far; ``None`` if it does not say."""


class DatagramSocket:
    """A socket that listens; a socket file that a killed process left is replaced.

    A folder that another user can write may be exchanged for another one at any time. So the
    folder is opened once, what is removed is looked at and removed inside of it, and the mode of
    the socket is given when it is made and never changed by its path.

    Args:
        address: A UDP address, or the path of a Unix datagram socket, to which every user of the
            machine may write unless the permissions of its folder forbid it.
        ask_user: Whether to ask for the user of each datagram; only for a Unix socket.

    Raises:
        OSError: If the address cannot be used.
    """

    def __init__(self, address: Address, *, ask_user: bool = False) -> None:
        self._folder, self._name = -1, ""
        self._identity: tuple[int, int] | None = None
        self._ancillary_bytes = socket.CMSG_SPACE(4)
        self._socket = socket.socket(address.family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
            if address.path:
                self._bind_path(address.path, ask_user=ask_user)
            else:
                with contextlib.suppress(OSError):
                    self._socket.setsockopt(socket.SOL_SOCKET, _SO_RXQ_OVFL, 1)
                self._socket.bind(address.bindable)
        except BaseException:
            self.close()
            raise

    def _bind_path(self, path: str, *, ask_user: bool) -> None:
        # Room for what is asked for and no more: a sender could pass open files otherwise.
        self._ancillary_bytes = socket.CMSG_SPACE(_CREDENTIALS.size) if ask_user else 0
        if ask_user:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        folder = Path(path).parent
        self._name = Path(path).name
        self._folder = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._remove_abandoned(path)
        mask = os.umask(_NO_EXECUTE)
        try:
            self._socket.bind(path)
        finally:
            os.umask(mask)
        self._identity = self._look()
        if self._identity is None:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))

    def _look(self) -> tuple[int, int] | None:
        """Return which socket has the name now; ``None`` if none has."""
        try:
            status = os.stat(self._name, dir_fd=self._folder, follow_symlinks=False)
        except OSError:
            return None
        return (status.st_dev, status.st_ino) if stat.S_ISSOCK(status.st_mode) else None

    def _remove_abandoned(self, path: str) -> None:
        """Remove a socket on which no process listens any more, and what others put there."""
        move_aside(self._name, self._folder)
        found = self._look()
        if found is None:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(path)
            except ConnectionRefusedError:
                self._remove(found)

    def _remove(self, identity: tuple[int, int]) -> None:
        if self._look() == identity:
            with contextlib.suppress(OSError):
                os.unlink(self._name, dir_fd=self._folder)

    @property
    def is_reached(self) -> bool:
        """Whether senders still find it: its name may have been removed or taken by another."""
        return self._identity is None or self._look() == self._identity

    def fileno(self) -> int:
        """The descriptor, for select(2)."""
        return self._socket.fileno()

    def receive(self) -> Datagram | None:
        """Return the next datagram without waiting; ``None`` if there is none."""
        try:
            content, ancillary, flags, _ = self._socket.recvmsg(
                DATAGRAM_BYTES, self._ancillary_bytes
            )
        except OSError:
            return None
        user = dropped = None
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, _SO_RXQ_OVFL) and len(data) >= 4:
                (dropped,) = struct.unpack("=I", data[:4])
            elif (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                _, user, _ = _CREDENTIALS.unpack(data[: _CREDENTIALS.size])
        return Datagram(content, not flags & socket.MSG_TRUNC, user, dropped)

    def close(self) -> None:
        """Close the socket, and remove its name if that is still ours."""
        self._socket.close()
        if self._folder >= 0:
            if self._identity is not None:
                self._remove(self._identity)
            os.close(self._folder)
            self._folder = -1


STEP_DATAGRAMS: Final = 2000
"""The most datagrams per step (20,000 a second)."""
_BUSY_SHARE: Final = 0.5
"""The processor time that reading may take, as a share of a step: a flood costs half a core."""


class StatsdReceiver:
    """Receives timings on one datagram socket.

    Args:
        address: Where to listen: a UDP address, or the path of a Unix datagram socket.
        wanted: The condition that lines must meet.
        allowed_users: The users, by name or number, whose datagrams count; all if there are none.
            Only a Unix socket knows who sends.
        feed: Takes the latencies.
        flush_s: How often received latencies are sent.
        retry_s: How long to wait before another try when listening fails.
    """

    def __init__(
        self,
        *,
        address: Address,
        wanted: StatsdFilter,
        allowed_users: tuple[str, ...] = (),
        feed: LatencyFeed,
        flush_s: float,
        retry_s: float,
    ) -> None:
        self._address, self._wanted = address, wanted
        self._allowed_users = allowed_users
        self._allowed: frozenset[int] | None = None
        self._feed = feed
        self._lines = StatsdLines(wanted, feed, feed.add)
        self._flush_s, self._retry_s = flush_s, retry_s
        self._socket: DatagramSocket | None = None
        self._dropped = 0

    @property
    def period_s(self) -> float:
        """How long a step should take."""
        return self._retry_s if self._socket is None else self._flush_s

    def step(self, until_s: float, life_fd: int) -> None:
        """Receive datagrams until ``until_s``, and send their latencies."""
        if self._socket is not None and not self._socket.is_reached:
            self.close()
        if self._socket is None:
            fault = self._listen()
            if fault:
                self._feed.fault(fault)
                select.select([life_fd], [], [], max(until_s - time.monotonic(), 0.0))
                return
            until_s = time.monotonic() + self._flush_s
        self._receive(until_s, life_fd)
        self._feed.names = self._lines.other_names
        lack = why_none(self._feed, self._wanted)
        if lack:
            self._feed.fault(lack)
        else:
            self._feed.flush()

    def _listen(self) -> str:
        """Open the socket; returns why that cannot be done, or nothing."""
        try:
            if self._allowed_users:
                # Most sources do not need it, and it takes memory.
                from stallward.actuator.kernel.process_roots import user_id  # noqa: PLC0415

                self._allowed = frozenset(user_id(user) for user in self._allowed_users)
            self._socket = DatagramSocket(self._address, ask_user=self._allowed is not None)
        except NodeError as error:
            return f"cannot tell who may send ({error.cause})"
        except OSError as error:
            return f"cannot listen ({os.strerror(error.errno or errno.EINVAL)})"
        return ""

    def _receive(self, until_s: float, life_fd: int) -> None:
        assert self._socket is not None
        left, left_busy_s = STEP_DATAGRAMS, _BUSY_SHARE * self._flush_s
        while (left_s := until_s - time.monotonic()) > 0.0:
            may_read = left > 0 and left_busy_s > 0.0
            sources = [life_fd, self._socket.fileno()] if may_read else [life_fd]
            ready, _, _ = select.select(sources, [], [], left_s)
            if life_fd in ready:
                return
            if ready:
                began_s = time.thread_time()
                left -= self._take_in(self._socket, left, until_s, began_s + left_busy_s)
                left_busy_s -= time.thread_time() - began_s

    def _take_in(
        self, source: DatagramSocket, most: int, until_s: float, until_busy_s: float
    ) -> int:
        """Read at most ``most`` datagrams, until a time; returns how many there were."""
        for count in range(most):
            datagram = source.receive()
            if datagram is None:
                return count
            self._take(datagram)
            if time.monotonic() >= until_s or time.thread_time() >= until_busy_s:
                return count + 1
        return most

    def _take(self, datagram: Datagram) -> None:
        if datagram.dropped is not None:
            self._feed.lost += max(datagram.dropped - self._dropped, 0)
            self._dropped = datagram.dropped
        if self._allowed is not None and datagram.user not in self._allowed:
            self._feed.refused += 1
        elif not datagram.whole:
            self._feed.note_malformed(datagram.content, why="a datagram too long", show=shown_line)
        else:
            self._lines.take(datagram.content)

    def close(self) -> None:
        """Close the socket and remove its name."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def why_none(tally: Tally, wanted: StatsdFilter) -> str:
    """Say why nothing that came is a latency; empty if something was, or nothing came."""
    metric = wanted.metric.decode("utf-8", "replace")
    if tally.accepted:
        return ""
    if tally.ignored_tags:
        tags = ", ".join(sorted(tag.decode("utf-8", "replace") for tag in wanted.tags))
        return f"has {metric} only without the tags {tags}"
    if tally.ignored_types:
        return f"has {metric}, but not as a timing (types ms, h and d)"
    if tally.ignored_names:
        return f"has no timing named {metric}, but these: {', '.join(tally.names)}"
    if tally.refused:
        return "has only datagrams of users who may not send any (allowed_users)"
    return ""
