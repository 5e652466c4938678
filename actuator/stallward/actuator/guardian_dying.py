"""Seeing that the loop is dying while one of its threads still sits in the kernel.

A process that was killed has ended, for whoever waits for it, when its last thread has. A thread
that writes a limit may reclaim for seconds before it looks at its signals: until then neither
pidfd nor socket says anything, and what is paused stays paused. But the main thread is gone at
once, or SIGKILL is seen to be on its way.
"""

from __future__ import annotations

import os
import signal
from typing import Final

LOOK_S: Final = 0.25
"""How often to look; waking up for it costs 0.05 % of a core."""
_KILLED: Final = 1 << (signal.SIGKILL - 1)
_PENDING: Final = (b"\nSigPnd:", b"\nShdPnd:")
_STATUS_BYTES: Final = 8192
_OVER: Final = frozenset({b"Z", b"X"})


def is_dying(pid: int) -> bool:
    """Whether a child that was not waited for yet runs no more of its program."""
    try:
        fd = os.open(f"/proc/{pid}/status", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # waiting for it says the rest
        return False
    try:
        return tells_death(os.read(fd, _STATUS_BYTES))
    except OSError:
        return False
    finally:
        os.close(fd)


def tells_death(status: bytes) -> bool:
    """Whether a /proc/PID/status is that of a process whose main thread has ended or must."""
    if _word(status, b"\nState:") in _OVER:
        return True
    return any(_mask(_word(status, name)) & _KILLED for name in _PENDING)


def _word(status: bytes, name: bytes) -> bytes:
    """The first word after ``name``; empty if there is none."""
    start = status.find(name)
    if start < 0:
        return b""
    line = status[start + len(name) :].split(b"\n", 1)[0]
    return line.split(None, 1)[0] if line.strip() else b""


def _mask(digits: bytes) -> int:
    try:
        return int(digits, 16)
    except ValueError:
        return 0
