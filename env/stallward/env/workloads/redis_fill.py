"""Loads values into Redis over its own protocol.

Run: ``python -m stallward.env.workloads.redis_fill --socket PATH --keys 300000``
"""

from __future__ import annotations

import argparse
import itertools
import socket
import sys
from pathlib import Path

from stallward.env.workloads.memcached_fill import values

_BATCH = 500


def fill(path: Path, *, keys: int, value_bytes: int, seed: int) -> int:
    """Store ``key-0`` to ``key-(keys-1)``.

    Returns:
        How many keys the server says it holds afterwards.
    """
    made = values(keys=keys, value_bytes=value_bytes, seed=seed)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(str(path))
        replies = connection.makefile("rb")
        while batch := list(itertools.islice(made, _BATCH)):
            connection.sendall(b"".join(_set(b"key-%d" % key, value) for key, value in batch))
            for _ in batch:
                replies.readline()  # +OK, or -OOM where it takes no more
        connection.sendall(b"DBSIZE\r\n")
        reply = replies.readline()  # :NUMBER
    return int(reply[1:]) if reply[:1] == b":" else 0


def _set(key: bytes, value: bytes) -> bytes:
    return b"*3\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(key), key, len(value), value)


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
        sys.exit(f"redis kept {kept} of {args.keys} values; raise its --maxmemory")


if __name__ == "__main__":
    main()
