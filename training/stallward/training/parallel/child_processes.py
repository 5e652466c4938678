"""Ends the processes of a Ray of our own, those that have lost their parent too."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psutil

_SET_CHILD_SUBREAPER: Final = 36
_GET_CHILD_SUBREAPER: Final = 37
"""PR_SET_CHILD_SUBREAPER and PR_GET_CHILD_SUBREAPER (linux/prctl.h)."""
_ENDING_S: Final = 5.0
"""How long processes may take to end by themselves."""


@contextmanager
def processes_ended() -> Iterator[None]:
    """End all processes that were started below this one in a ``with``.

    They may take a while to end by themselves, and are killed then. One whose parent was killed
    would belong to the system; here it becomes a child of this process, so that it is found.
    """
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    with _orphans_adopted():
        try:
            yield
        finally:
            _end([p for p in psutil.Process().children(recursive=True) if p.pid not in before])


@contextmanager
def _orphans_adopted() -> Iterator[None]:
    """Make this process the parent of processes below it that lose theirs (prctl(2))."""
    prctl = ctypes.CDLL(None).prctl
    was = ctypes.c_int()
    prctl(_GET_CHILD_SUBREAPER, ctypes.byref(was), 0, 0, 0)
    prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_SET_CHILD_SUBREAPER, was.value, 0, 0, 0)


def _end(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=_ENDING_S)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=_ENDING_S)
