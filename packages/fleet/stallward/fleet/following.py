"""Lets a watch follow the nodes of a fleet that come and go."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Self

from stallward.agent.errors import StallwardError
from stallward.fleet.discovery.fleet_source import FleetSource
from stallward.fleet.watch import FleetWatch

LOOKUP_S: Final = 30.0
"""The time between two lookups."""


class FleetFollower:
    """Looks up the nodes again and again, on a thread. Use it as a context manager.

    Where a lookup fails, the nodes known so far are watched on, and that is told once.

    Args:
        source: Where the nodes are; it was looked up once.
        watch: Watches the nodes that are known.
        tell: Is told which nodes come and go, and what goes wrong.
        every_s: The time between two lookups.
    """

    def __init__(
        self,
        source: FleetSource,
        watch: FleetWatch,
        tell: Callable[[str], None],
        *,
        every_s: float = LOOKUP_S,
    ) -> None:
        self._source = source
        self._watch = watch
        self._tell = tell
        self._every_s = every_s
        self._ended = threading.Event()
        self._problems: dict[str, str] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        if self._source.may_change:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._every_s):
            try:
                self._look()
            except StallwardError as error:
                self._say("", str(error))

    def _look(self) -> None:
        changes = self._source.look()
        for source in ("", *self._problems.keys() - changes.problems.keys()):
            self._problems.pop(source, None)
        for source, error in changes.problems.items():
            self._say(source, f"{error} The nodes known so far are watched on.")
        for name in changes.left:
            self._watch.leave(name)
            if name not in changes.joined:
                self._tell(f"{name} has left")
        for name, daemon in changes.joined.items():
            self._watch.join(name, daemon)
            self._tell(f"{name} has joined: {daemon}")

    def _say(self, source: str, problem: str) -> None:
        """Tell a problem, unless it was told already."""
        if self._problems.get(source) != problem:
            self._problems[source] = problem
            self._tell(problem)
