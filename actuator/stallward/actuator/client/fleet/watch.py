"""Watching many nodes at once, with every tick that is lost counted for its node."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from stallward.actuator.client.client import ActuatorClient
from stallward.actuator.client.fleet.fleet import Fleet
from stallward.actuator.client.fleet.tick_count import TickCount
from stallward.actuator.client.remote_daemon import RemoteDaemon
from stallward.actuator.record.tick_record import TickRecord
from stallward.agent.errors import StallwardError

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
        """Watch a node no more; its count stays."""
        self._end(name)
        self.counts[name].close("It has left the fleet.")

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
