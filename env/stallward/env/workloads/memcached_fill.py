"""Loads values into memcached over its text protocol.

Run: ``python -m stallward.env.workloads.memcached_fill --socket PATH --keys 300000``
"""

from __future__ import annotations

import argparse
import itertools
import random
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

_BATCH = 500


def values(*, keys: int, value_bytes: int, seed: int) -> Iterator[tuple[int, bytes]]:
    """Each key's number with its value; a key's value depends on the seed alone.

    They are pieces of one random text at other offsets: hardly two are the same, and making
    them costs nothing. Hexadecimal digits cannot hold what ends a reply.
    """
    text = random.Random(seed).randbytes(value_bytes * 4).hex().encode()  # noqa: S311
    for key in range(keys):
        offset = key * 7 % (len(text) - value_bytes)
        yield key, text[offset : offset + value_bytes]


def fill(path: Path, *, keys: int, value_bytes: int, seed: int) -> int:
    """Store ``key-0`` to ``key-(keys-1)``.

    Returns:
        How many items the server says it holds afterwards.
    """
    made = values(keys=keys, value_bytes=value_bytes, seed=seed)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(str(path))
        while batch := list(itertools.islice(made, _BATCH)):
            header = b"set key-%d 0 0 %d noreply\r\n%b\r\n"
            connection.sendall(b"".join(header % (key, len(value), value) for key, value in batch))
        connection.sendall(b"stats\r\n")
        reply = b""
        while not reply.endswith(b"END\r\n"):
            received = connection.recv(65536)
            if not received:
                return 0
            reply += received
    for line in reply.splitlines():
        if line.startswith(b"STAT curr_items "):
            return int(line.split()[2])
    return 0


def main() -> None:
    """Fill, and fail if the server did not keep everything."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--value-bytes", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    kept = fill(args.socket, keys=args.keys, value_bytes=args.value_bytes, seed=args.seed)
    if kept < args.keys:
        sys.exit(f"memcached kept {kept} of {args.keys} values; give it more memory (-m)")


if __name__ == "__main__":
    main()
