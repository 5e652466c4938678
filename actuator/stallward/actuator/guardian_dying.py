"""Seeing that the loop is dying while one of its threads still sits in the kernel.

A process that was killed has ended, for whoever waits for it, when its last thread has. A thread
that writes a limit may reclaim for seconds before it looks at its signals: until then neither
pidfd nor socket says anything, and what is paused stays paused. But the main thread is gone at
once, or SIGKILL is seen to be on its way.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Final

LOOK_S: Final = 0.25
"""How often to look; one look costs some 20 us."""
_KILLED: Final = 1 << (signal.SIGKILL - 1)
_PENDING: Final = frozenset({b"SigPnd", b"ShdPnd"})
_OVER: Final = frozenset({b"Z", b"X"})


def is_dying(pid: int) -> bool:
    """Whether a child that was not waited for yet runs no more of its program."""
    try:
        return tells_death(Path(f"/proc/{pid}/status").read_bytes())
    except OSError:  # waiting for it says the rest
        return False


def tells_death(status: bytes) -> bool:
    """Whether a /proc/PID/status is that of a process whose main thread has ended or must."""
    for line in status.splitlines():
        name, _, value = line.partition(b":")
        words = value.split()
        if name == b"State" and words[:1] and words[0] in _OVER:
            return True
        if name in _PENDING and words and _mask(words[0]) & _KILLED:
            return True
    return False


def _mask(digits: bytes) -> int:
    try:
        return int(digits, 16)
    except ValueError:
        return 0
