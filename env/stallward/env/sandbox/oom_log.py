"""Whose memory limit made the kernel kill, from its log (/dev/kmsg).

The counters of a group count its own processes, whichever limit was reached. Only the log names
the group whose limit it was (``oom_memcg``), since kernel 5.0.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

KMSG: Final = Path("/dev/kmsg")
_KILL: Final = re.compile(
    r"oom-kill:constraint=CONSTRAINT_MEMCG,.*?oom_memcg=(?P<limited>[^,]*),"
    r"task_memcg=(?P<group>[^,]*),task=(?P<program>.*),pid=(?P<pid>\d+),uid="
)
_RECORD_BYTES: Final = 8192
_MOST_RECORDS: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OomKill:
    """One process that the kernel killed because a group reached its memory limit."""

    limited: str
    """The path of the group whose limit was reached, from the root of the hierarchy."""
    group: str
    """The path of the group in which the process ran."""
    program: str
    pid: int

    def under_limit_of(self, names: Sequence[str]) -> bool:
        """Whether it was the limit of one of the groups ``names``, or of a group below it."""
        return any(f"{self.limited}/".find(f"/{name}/") >= 0 for name in names)


def parse_oom_kill(record: str) -> OomKill | None:
    """Parse one record of /dev/kmsg; ``None`` if it is not about such a kill."""
    match = _KILL.search(record.partition(";")[2].partition("\n")[0])
    if match is None:
        return None
    return OomKill(
        limited=match["limited"],
        group=match["group"],
        program=match["program"],
        pid=int(match["pid"]),
    )


class OomLog:
    """The kills that the kernel logs from now on.

    Without the right to read the log there are none, and :attr:`readable` is false.

    Args:
        path: The kernel's log.
    """

    def __init__(self, path: Path = KMSG) -> None:
        self._fd = -1
        with contextlib.suppress(OSError):
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._fd, 0, os.SEEK_END)

    def close(self) -> None:
        """Close the log."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @property
    def readable(self) -> bool:
        """Whether kills can be seen."""
        return self._fd >= 0

    def read(self) -> tuple[OomKill, ...]:
        """The kills since the last call."""
        kills = []
        for _ in range(_MOST_RECORDS if self.readable else 0):
            try:
                record = os.read(self._fd, _RECORD_BYTES)  # the kernel returns whole records
            except OSError as error:
                if error.errno == errno.EPIPE:
                    continue  # old records were overwritten; the next one follows
                break
            kill = parse_oom_kill(record.decode("utf-8", "replace"))
            if kill is not None:
                kills.append(kill)
            if not record:
                break
        return tuple(kills)
