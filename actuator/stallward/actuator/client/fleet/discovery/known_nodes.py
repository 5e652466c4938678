"""The nodes that are known, while lookups find others or fail. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stallward.actuator.client.remote_daemon import RemoteDaemon
from stallward.actuator.errors import DiscoveryError
from stallward.agent.errors import StallwardError

Daemons = Mapping[str, Path | RemoteDaemon]
"""Name of a node -> its daemon's Unix socket, or where another machine's daemon is reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChanges:
    """What a lookup changed. A node at another address has left and joined."""

    joined: dict[str, Path | RemoteDaemon]
    left: tuple[str, ...]
    problems: dict[str, StallwardError]
    """Why a source could not be looked up now; its nodes stay known."""


class KnownNodes:
    """The nodes of several sources."""

    def __init__(self) -> None:
        self._found: dict[str, Daemons] = {}
        self.nodes: dict[str, Path | RemoteDaemon] = {}
        """All nodes that are known."""

    def take(self, answers: Mapping[str, Daemons | StallwardError]) -> NodeChanges:
        """Take what each source found, or why it could not be looked up.

        A source that finds no node at all has failed: a fleet does not vanish at once, and a
        lookup does.

        Raises:
            DiscoveryError: If two sources name different daemons alike.
        """
        problems: dict[str, StallwardError] = {}
        found = dict(self._found)
        for source, answer in answers.items():
            if isinstance(answer, StallwardError):
                problems[source] = answer
            elif not answer:
                problems[source] = DiscoveryError(f"{source} finds no node.")
            else:
                found[source] = answer
        nodes = _merged(found)
        gone = [name for name, daemon in self.nodes.items() if nodes.get(name) != daemon]
        joined = {name: daemon for name, daemon in nodes.items() if self.nodes.get(name) != daemon}
        self._found, self.nodes = found, nodes
        return NodeChanges(joined=joined, left=tuple(gone), problems=problems)


def _merged(found: Mapping[str, Daemons]) -> dict[str, Path | RemoteDaemon]:
    nodes: dict[str, Path | RemoteDaemon] = {}
    sources: dict[str, str] = {}
    for source, daemons in found.items():
        for name, daemon in daemons.items():
            if nodes.setdefault(name, daemon) != daemon:
                raise DiscoveryError(
                    f"{sources[name]} says that {name} is {nodes[name]}, and {source} that it is "
                    f"{daemon}.",
                    next_step="Name each node in one place only.",
                )
            sources.setdefault(name, source)
    return nodes
