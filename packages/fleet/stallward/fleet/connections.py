"""Connections to many daemons, and calls to all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Generic, Self, TypeVar

from stallward.actuator.client.client import ActuatorClient
from stallward.actuator.client.remote_daemon import RemoteDaemon
from stallward.agent.errors import StallwardError

_T = TypeVar("_T")
_AT_ONCE: Final = 64
"""How many daemons are called at the same time: one that does not answer takes up to 10 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers(Generic[_T]):
    """What the daemons answered, by the names of their nodes."""

    given: dict[str, _T] = field(default_factory=dict)
    failed: dict[str, StallwardError] = field(default_factory=dict)
    """Why others did not answer."""


class Fleet:
    """Connections to many daemons. Use it as a context manager, or close it.

    Args:
        daemons: Name of a node -> its daemon's Unix socket, or where another machine's daemon is
            reached.

    Raises:
        ConfigError: If a path is too long for a socket, or a certificate cannot be read.
    """

    def __init__(self, daemons: Mapping[str, Path | RemoteDaemon]) -> None:
        self.clients: Final = {name: ActuatorClient(one) for name, one in daemons.items()}
        """The connection to each node's daemon."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        for client in self.clients.values():
            client.close()

    def ask(
        self, call: Callable[[str, ActuatorClient], _T], names: Iterable[str] | None = None
    ) -> Answers[_T]:
        """Call many daemons at once, and wait for all of them.

        Args:
            call: Makes the call to one node; it is run in other threads.
            names: The nodes that are called; ``None`` for all.
        """
        answers: Answers[_T] = Answers()

        def one(name: str) -> None:
            try:
                answers.given[name] = call(name, self.clients[name])
            except StallwardError as error:
                answers.failed[name] = error

        wanted = list(self.clients if names is None else names)
        with ThreadPoolExecutor(min(len(wanted), _AT_ONCE) or 1) as threads:
            calls = [threads.submit(one, name) for name in wanted]
            try:
                for done in calls:
                    done.result()
            finally:  # after Ctrl-C no further node is called
                threads.shutdown(cancel_futures=True)
        return Answers(
            given={name: answers.given[name] for name in wanted if name in answers.given},
            failed={name: answers.failed[name] for name in wanted if name in answers.failed},
        )
