"""Watching many nodes at once, with every tick that is lost counted for its node."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self

from stallward.actuator.client.client import ActuatorClient
from stallward.actuator.client.fleet.fleet import Fleet
from stallward.actuator.client.fleet.tick_count import TickCount
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


class FleetWatch:
    """The ticks of all nodes, in the order in which they arrive. Use it as a context manager.

    A node whose stream ends is watched again as soon as it answers.

    Args:
        fleet: The nodes.
        every: Only every n-th tick of a node is wanted.
        waiting: The most ticks that wait to be taken.
    """

    def __init__(self, fleet: Fleet, *, every: int = 1, waiting: int = WAITING) -> None:
        self._daemons = {name: client.daemon for name, client in fleet.clients.items()}
        self._every = every
        self._ticks: queue.Queue[FleetTick] = queue.Queue(waiting)
        self._closed = threading.Event()
        self.counts: Final = {name: TickCount(every=every) for name in self._daemons}
        """What became of the ticks of each node."""
        self._ending = contextlib.ExitStack()

    def __enter__(self) -> Self:
        own = Fleet(self._daemons)  # closing it ends the streams, and no other call
        for name, client in own.clients.items():
            thread = threading.Thread(target=self._follow, args=(name, client), daemon=True)
            thread.start()
            self._ending.callback(thread.join)
        self._ending.callback(own.close)
        self._ending.callback(self._closed.set)
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

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

    def _follow(self, name: str, client: ActuatorClient) -> None:
        """Run in the thread of one node."""
        count = self.counts[name]
        while not self._closed.is_set():
            problem = ""
            count.open()
            try:
                for watched in client.watch(every=self._every):
                    count.take(watched.record.sequence, watched.skipped)
                    if not self._offer(FleetTick(node=name, record=watched.record)):
                        return
            except StallwardError as error:
                problem = str(error)
            count.close(problem)
            self._closed.wait(_AGAIN_S)

    def _offer(self, tick: FleetTick) -> bool:
        """Wait until a tick is taken into the queue; returns whether it was."""
        while not self._closed.is_set():
            try:
                self._ticks.put(tick, timeout=_LOOK_S)
            except queue.Full:
                continue
            return True
        return False
