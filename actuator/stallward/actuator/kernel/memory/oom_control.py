"""v1 memory.oom_control: whether the kernel kills in a group, or lets its processes wait."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Container
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.cgroups import Walk
from stallward.actuator.kernel.files import read_text, write_text

OOM_CONTROL: Final = "memory.oom_control"
KILL_DISABLED: Final = "oom_kill_disable"
"""The line that says whether processes wait; the file takes its value."""
UNDER_OOM: Final = "under_oom"
"""The line that says whether any process waits now."""
WAIT: Final = "1"
KILL: Final = "0"
_MOST_INSIDE: Final = 128
"""How many groups inside one are looked at, which takes some milliseconds of a tick."""


def oom_control(path: Path) -> dict[str, str]:
    """Return the lines of the file by their keys; empty if it is not there.

    Raises:
        KernelFileError: If it is there but cannot be read.
    """
    lines = (line.partition(" ") for line in (read_text(path) or "").splitlines())
    return {key: value for key, _, value in lines}


def waiting_inside(folder: Path) -> tuple[Path, ...]:
    """Return the files of the groups below ``folder`` whose processes wait for memory.

    Raises:
        KernelFileError: If there are too many groups to look at, or one cannot be read.
    """
    walk = Walk(folder, most=_MOST_INSIDE)
    paths = tuple(inside / OOM_CONTROL for inside in walk if inside != folder)
    if walk.cut:
        raise KernelFileError(folder, f"more than {_MOST_INSIDE} groups are inside")
    return tuple(path for path in paths if oom_control(path).get(KILL_DISABLED) == WAIT)


def reset_inherited(folder: Path, keep: Container[Path]) -> None:
    """Let the kernel kill in the groups below ``folder`` that were made while theirs waited.

    Args:
        folder: The directory of a group that does not wait any more.
        keep: The files of those that waited before it did.
    """
    for inside in Walk(folder, most=_MOST_INSIDE):
        path = inside / OOM_CONTROL
        if inside == folder or path in keep:
            continue
        with contextlib.suppress(KernelFileError):  # it was removed just now
            if oom_control(path).get(KILL_DISABLED) == WAIT:
                write_text(path, KILL)


# ---------- Tells when the processes of v1 groups wait for memory (memory.oom_control)
# With ``oom_kill_disable`` set, a process that cannot get memory under the group's limit waits
# until the limit is raised or memory is freed, instead of being killed. The kernel reports each
# such wait by an eventfd (Documentation/admin-guide/cgroup-v1/memory.rst, section 10).

_EVENT_CONTROL: Final = "cgroup.event_control"


class OomAlarms:
    """Counts for each slot how often its processes had to wait for memory.

    The threads that write limits call :meth:`watch`, the loop calls the rest.

    Args:
        slots: The number of slots; those behind them are added with their first watch.
    """

    def __init__(self, slots: int) -> None:
        self._poller = select.epoll()
        self._totals = [0] * slots
        self._watched: dict[int, tuple[int, int]] = {}
        """For each watched slot its eventfd, and the inode number of its group's file."""
        self._listening: set[int] = set()
        """The eventfds whose waits are counted now."""
        self._lock = threading.Lock()

    @property
    def fd(self) -> int:
        """A descriptor that is readable while there are waits that :meth:`take` has not seen."""
        return self._poller.fileno()

    def watch(self, slot: int, folder: Path) -> None:
        """Have the waits of the group in ``folder`` reported; again after it was made a second time.

        Raises:
            KernelFileError: If the kernel does not report them.
            OSError: If there is no descriptor left.
        """
        control = os.open(folder / OOM_CONTROL, os.O_RDONLY | os.O_CLOEXEC)
        try:
            inode = os.fstat(control).st_ino
            if self._watched.get(slot, (-1, -1))[1] == inode:
                return
            event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            try:
                write_text(folder / _EVENT_CONTROL, f"{event} {control}")
            except BaseException:
                os.close(event)
                raise
        finally:
            os.close(control)
        with self._lock:
            self._totals += [0] * (slot + 1 - len(self._totals))
            before = self._watched.get(slot)
            self._watched[slot] = (event, inode)
            if before is not None:
                self._listening.discard(before[0])
                os.close(before[0])  # which also ends its registrations

    def forget(self, slot: int) -> None:
        """End the watch of a slot's group, which the slot has no more."""
        with self._lock:
            event, _ = self._watched.pop(slot, (-1, -1))
            if event >= 0:
                self._listening.discard(event)
                os.close(event)  # which also ends its registrations

    def listen(self, slot: int, *, on: bool) -> None:
        """Count the waits of a watched slot from now on, or no longer.

        The kernel also reports kills in the group, and its removal: they count only while a limit
        of the daemon is in force.
        """
        with self._lock:
            event, _ = self._watched.get(slot, (-1, -1))
            if event < 0 or (event in self._listening) == on:
                return
            if on:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(event)  # what it was until now is no wait
                self._poller.register(event, select.EPOLLIN)
                self._listening.add(event)
            else:
                self._poller.unregister(event)
                self._listening.discard(event)

    def note(self, slot: int) -> None:
        """Count one more wait, which was seen and not reported."""
        with self._lock:
            self._totals[slot] += 1

    def take(self) -> tuple[int, ...]:
        """For each slot, how often its processes had to wait since the start; never waits."""
        if self._poller.poll(0):
            with self._lock:
                for slot, (event, _) in self._watched.items():
                    if event in self._listening:
                        with contextlib.suppress(BlockingIOError):
                            self._totals[slot] += os.eventfd_read(event)
        return tuple(self._totals)

    def close(self) -> None:
        """Close all descriptors."""
        with self._lock:
            for event, _ in self._watched.values():
                os.close(event)
            self._watched.clear()
            self._listening.clear()
            self._poller.close()
