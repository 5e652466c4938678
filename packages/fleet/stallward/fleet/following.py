"""Lets a watch follow the nodes of a fleet that come and go."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Self

from stallward.actuator.client.remote_daemon import RemoteDaemon
from stallward.agent.errors import StallwardError
from stallward.fleet.discovery.fleet_source import FleetSource
from stallward.fleet.watch import FleetWatch

LOOKUP_S: Final = 30.0
"""The time between two lookups."""


class FleetFollower:
    """Looks up the nodes again and again, on a thread. Use it as a context manager.

    Where a lookup fails, the nodes known so far are watched on, and that is told once. So is why a
    node cannot be watched, which is tried again after each lookup.

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
        problems = {
            source: f"{error} The nodes known so far are watched on."
            for source, error in changes.problems.items()
        }
        problems |= self._follow(self._source.nodes)
        self._problems = {of: said for of, said in self._problems.items() if of in problems}
        for of, problem in problems.items():
            self._say(of, problem)

    def _follow(self, nodes: Mapping[str, Path | RemoteDaemon]) -> dict[str, str]:
        """Watch these nodes; returns why single ones cannot be watched."""
        problems = {}
        watched = self._watch.watched
        for name, daemon in watched.items():
            if nodes.get(name) != daemon:
                self._watch.leave(name)
                if name not in nodes:
                    self._tell(f"{name} has left")
        for name, daemon in nodes.items():
            if watched.get(name) == daemon:
                continue
            try:
                self._watch.join(name, daemon)
            except StallwardError as error:
                problems[f"node {name}"] = f"{name} cannot be watched: {error}"
            else:
                self._tell(f"{name} has joined: {daemon}")
        return problems

    def _say(self, source: str, problem: str) -> None:
        """Tell a problem, unless it was told already."""
        if self._problems.get(source) != problem:
            self._problems[source] = problem
            self._tell(problem)
