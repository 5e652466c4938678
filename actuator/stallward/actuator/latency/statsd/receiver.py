"""Receives StatsD timings on a socket and feeds them to the loop."""

from __future__ import annotations

import errno
import os
import select
import time
from typing import Final

from stallward.actuator.errors import NodeError
from stallward.actuator.latency.counts import Tally
from stallward.actuator.latency.feed import LatencyFeed
from stallward.actuator.latency.statsd.datagram import StatsdFilter, StatsdLines, shown_line
from stallward.actuator.latency.statsd.listening import Datagram, DatagramSocket
from stallward.actuator.runtime.addresses import Address

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
