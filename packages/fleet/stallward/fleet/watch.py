"""Watching many nodes at once, with every tick that is lost counted for its node."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from stallward.actuator.client.client import ActuatorClient
from stallward.actuator.client.remote_daemon import RemoteDaemon
from stallward.actuator.record.tick_record import TickRecord
from stallward.agent.errors import StallwardError
from stallward.fleet.connections import Fleet

# ---------- Counts the ticks of one node that a watcher received, and those that it did not.


@dataclass(slots=True, kw_only=True)
class TickCount:
    """What became of the ticks of one node since they are watched.

    Ticks are numbered on the node, so one that does not arrive leaves a gap, wherever it was lost.

    Args:
        every: Only every n-th tick is wanted.
    """

    every: int = 1
    received: int = 0
    first: int = -1
    """The number of the first tick that was received."""
    last: int = -1
    """The number of the last one."""
    lost: int = 0
    """Ticks that the daemon left out because this watcher was too slow, as it said."""
    unwatched: int = 0
    """Ticks that were made while the node was not watched, because the stream had ended."""
    unexplained: int = 0
    """Further numbers that did not come: the tick had no sample, or was lost inside the daemon."""
    restarts: int = 0
    """How often the numbers began again: the loop was restarted, and what it lost is not known."""
    streams: int = 0
    """How often the stream was opened."""
    problem: str = ""
    """Why the node is not watched now; empty if it is."""
    _skipped: int = 0

    def open(self) -> None:
        """Note that a new stream begins."""
        self.streams += 1
        self._skipped = 0

    def take(self, sequence: int, skipped: int) -> None:
        """Take one tick.

        Args:
            sequence: Its number on the node.
            skipped: How many ticks the daemon has left out in this stream so far.
        """
        new_stream = bool(self.problem) or not self.received
        missing = 0
        if self.received and sequence > self.last:
            missing = (sequence - self.last) // self.every - 1
        self.restarts += bool(self.received) and sequence <= self.last
        told = skipped - self._skipped
        if self.every > 1:  # it counts those that were not wanted, too
            told = min(told, missing)
        self.lost += told
        beyond = max(missing - told, 0)
        if new_stream:
            self.unwatched += beyond
        else:
            self.unexplained += beyond
        self.received += 1
        self.first = sequence if self.first < 0 else self.first
        self.problem, self.last, self._skipped = "", sequence, skipped

    def close(self, problem: str) -> None:
        """Note that the stream ended."""
        self.problem = problem or "The stream ended."


WAITING: Final = 1024
"""The most ticks of all nodes that wait to be taken. Further ones wait in the daemons, which drop
the oldest and say how many."""
_AGAIN_S: Final = 1.0
"""How long after the end of a stream it is opened again."""
_LOOK_S: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetTick:
    """One tick of one of many nodes."""

    node: str
    record: TickRecord


@dataclass(slots=True, kw_only=True)
class _WatchedNode:
    """The stream of one node."""

    client: ActuatorClient
    ended: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None

    def close(self) -> None:
        """End the stream."""
        self.ended.set()
        self.client.close()


class FleetWatch:
    """The ticks of all nodes, in the order in which they arrive. Use it as a context manager.

    A node whose stream ends is watched again as soon as it answers. Nodes may come and go.

    Args:
        fleet: The nodes.
        every: Only every n-th tick of a node is wanted.
        waiting: The most ticks that wait to be taken.
    """

    def __init__(self, fleet: Fleet, *, every: int = 1, waiting: int = WAITING) -> None:
        self._at_first = {name: client.daemon for name, client in fleet.clients.items()}
        self._every = every
        self._ticks: queue.Queue[FleetTick] = queue.Queue(waiting)
        self._closed = threading.Event()
        self.counts: Final = {name: TickCount(every=every) for name in self._at_first}
        """What became of the ticks of each node, also of those that have left."""
        self._watched: dict[str, _WatchedNode] = {}

    def __enter__(self) -> Self:
        for name, daemon in self._at_first.items():
            self.join(name, daemon)
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        for node in self._watched.values():  # all at once, before any is waited for
            node.close()
        for name in list(self._watched):
            self._end(name)

    def join(self, name: str, daemon: Path | RemoteDaemon) -> None:
        """Watch one node more.

        Raises:
            ConfigError: If its path is too long for a socket, or a certificate cannot be read.
        """
        # A client of its own: closing it ends the stream, and no other call.
        node = _WatchedNode(client=ActuatorClient(daemon))
        self.counts.setdefault(name, TickCount(every=self._every))
        self._watched[name] = node
        node.thread = threading.Thread(target=self._follow, args=(name, node), daemon=True)
        node.thread.start()

    def leave(self, name: str) -> None:
        """Watch a node no more; its count stays. One that is not watched is let be."""
        if name in self._watched:
            self._end(name)
            self.counts[name].close("It has left the fleet.")

    @property
    def watched(self) -> dict[str, Path | RemoteDaemon]:
        """The daemons that are watched, by the names of their nodes."""
        return {name: node.client.daemon for name, node in self._watched.items()}

    def slots(self, name: str) -> tuple[str, ...]:
        """The names of a node's slots; none if it does not answer or has left."""
        node = self._watched.get(name)
        try:
            return () if node is None else node.client.status().slots
        except StallwardError:
            return ()

    def _end(self, name: str) -> None:
        node = self._watched.pop(name)
        node.close()
        if node.thread is not None:
            node.thread.join()

    def __iter__(self) -> Iterator[FleetTick]:
        """Iterate over the ticks, until the watch is closed."""
        while not self._closed.is_set():
            tick = self.next(_LOOK_S)
            if tick is not None:
                yield tick

    def next(self, timeout_s: float) -> FleetTick | None:
        """The next tick; ``None`` if none comes in time."""
        try:
            return self._ticks.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def _follow(self, name: str, node: _WatchedNode) -> None:
        """Run in the thread of one node."""
        count = self.counts[name]
        while not node.ended.is_set():
            problem = ""
            count.open()
            try:
                for watched in node.client.watch(every=self._every):
                    count.take(watched.record.sequence, watched.skipped)
                    if not self._offer(FleetTick(node=name, record=watched.record), node):
                        return
            except StallwardError as error:
                problem = str(error)
            count.close(problem)
            node.ended.wait(_AGAIN_S)

    def _offer(self, tick: FleetTick, node: _WatchedNode) -> bool:
        """Wait until a tick is taken into the queue; returns whether it was."""
        while not node.ended.is_set():
            try:
                self._ticks.put(tick, timeout=_LOOK_S)
            except queue.Full:
                continue
            return True
        return False
