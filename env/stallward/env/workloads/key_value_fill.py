"""Fills key-value servers with values from a seed; each protocol has its own module."""

from __future__ import annotations

import itertools
import random
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Final

from stallward.env.workloads.command_line import run_program

_BATCH: Final = 500

Batch = Sequence[tuple[int, bytes]]
"""Pairs of a key's number and its value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A connection to a key-value server."""

    requests: socket.socket
    """The socket; requests are sent through it."""
    replies: BufferedReader
    """The stream of the server's replies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValueServer:
    """A kind of server, and how to talk to it."""

    name: str
    """The server's name, for messages."""
    store: Callable[[Connection, Batch], None]
    """Stores the values of a batch under ``key-NUMBER``."""
    count: Callable[[Connection], int]
    """Asks the server how many keys it holds."""
    advice: str
    """The next step if the server has dropped values."""


def values(*, keys: int, value_bytes: int, seed: int) -> Iterator[tuple[int, bytes]]:
    """Generate pairs of a key's number and its value, which depends on the number and the seed.

    The values are pieces of one random text at different offsets: hardly two are equal, and they
    are made quickly. They consist of hexadecimal digits, so none contains the end of a reply.
    """
    text = random.Random(seed).randbytes(value_bytes * 4).hex().encode()  # noqa: S311
    for key in range(keys):
        offset = key * 7 % (len(text) - value_bytes)
        yield key, text[offset : offset + value_bytes]


def fill(server: KeyValueServer, path: Path, *, keys: int, value_bytes: int, seed: int) -> int:
    """Store ``key-0`` to ``key-(keys-1)``.

    Returns:
        How many keys the server holds afterwards, by its own count.
    """
    unsent = values(keys=keys, value_bytes=value_bytes, seed=seed)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as requests:
        requests.connect(str(path))
        with requests.makefile("rb") as replies:
            connection = Connection(requests=requests, replies=replies)
            while batch := list(itertools.islice(unsent, _BATCH)):
                server.store(connection, batch)
            return server.count(connection)


def run(server: KeyValueServer, description: str) -> None:
    """Fill the server as the command line says, and fail if it has dropped values."""

    def main(*, socket: Path, keys: int, value_bytes: int = 1000, seed: int = 1) -> None:
        kept = fill(server, socket, keys=keys, value_bytes=value_bytes, seed=seed)
        if kept < keys:
            sys.exit(f"{server.name} kept {kept} of {keys} values; {server.advice}")

    run_program(description, main)
