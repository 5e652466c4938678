"""Loads values into Redis over its own protocol.

Run: ``python -m stallward.env.workloads.redis_fill --socket PATH --keys 300000``
"""

from __future__ import annotations

from typing import Final

from stallward.env.workloads.key_value_fill import Batch, Connection, KeyValueServer, run


def _store(connection: Connection, batch: Batch) -> None:
    connection.requests.sendall(b"".join(_set(b"key-%d" % key, value) for key, value in batch))
    for _ in batch:
        connection.replies.readline()  # +OK, or -OOM when its memory is full


def _count(connection: Connection) -> int:
    connection.requests.sendall(b"DBSIZE\r\n")
    reply = connection.replies.readline()  # :NUMBER
    return int(reply[1:]) if reply[:1] == b":" else 0


def _set(key: bytes, value: bytes) -> bytes:
    return b"*3\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(key), key, len(value), value)


REDIS: Final = KeyValueServer(
    name="redis", store=_store, count=_count, advice="raise its --maxmemory"
)

if __name__ == "__main__":
    run(REDIS, (__doc__ or "").partition("\n")[0])
