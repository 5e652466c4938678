"""A queue of jobs: beanstalkd, which keeps them in its own memory.

``serve --socket PATH`` becomes beanstalkd on that Unix socket. ``fill --socket PATH --jobs N`` puts
the jobs 1 to N into it, and after these one whose text tells a client that it has got all.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

from stallward.env.workloads.command_line import run_program
from stallward.env.workloads.services.programs import connected, needed

LAST_TEXT: Final = b"that was all"
_AT_ONCE: Final = 200


def serve_command(socket: Path) -> list[str]:
    """Return the command line of the server.

    Raises:
        SystemExit: If beanstalkd is not installed.
    """
    return [needed("beanstalkd", "beanstalkd"), "-l", f"unix:{socket}"]


def put(text: bytes) -> bytes:
    """Return the request that puts one job into the queue."""
    return b"put 0 0 60 %d\r\n%b\r\n" % (len(text), text)


def fill(socket: Path, *, jobs: int = 100_000, job_bytes: int = 1000, seed: int = 1) -> None:
    """Put the jobs into the queue."""
    rng = random.Random(seed)  # noqa: S311 - not for secrets
    with connected(socket) as client, client.makefile("rb") as replies:
        for first in range(0, jobs, _AT_ONCE):
            count = min(_AT_ONCE, jobs - first)
            texts = (rng.randbytes(job_bytes // 2).hex().encode() for _ in range(count))
            client.sendall(b"".join(map(put, texts)))
            for _ in range(count):
                replies.readline()
        client.sendall(put(LAST_TEXT))
        replies.readline()


if __name__ == "__main__":
    run_program(__doc__, serve=serve_command, fill=fill)
