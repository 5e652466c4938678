"""Loads values into memcached over its text protocol.

Run: ``python -m stallward.env.workloads.memcached_fill --socket PATH --keys 300000``
"""

from __future__ import annotations

from typing import Final

from stallward.env.workloads.key_value_fill import Batch, Connection, KeyValueServer, run

_SET: Final = b"set key-%d 0 0 %d noreply\r\n%b\r\n"


def _store(connection: Connection, batch: Batch) -> None:
    commands = (_SET % (key, len(value), value) for key, value in batch)
    connection.requests.sendall(b"".join(commands))


def _count(connection: Connection) -> int:
    connection.requests.sendall(b"stats\r\n")
    items = 0
    while (line := connection.replies.readline()) != b"END\r\n":
        if not line:
            return 0
        if line.startswith(b"STAT curr_items "):
            items = int(line.split()[2])
    return items


MEMCACHED: Final = KeyValueServer(
    name="memcached", store=_store, count=_count, advice="give it more memory (-m)"
)

if __name__ == "__main__":
    run(MEMCACHED, (__doc__ or "").partition("\n")[0])
