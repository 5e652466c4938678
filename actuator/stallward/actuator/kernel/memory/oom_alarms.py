"""Tells when the processes of v1 groups wait for memory (memory.oom_control).

With ``oom_kill_disable`` set, a process that cannot get memory under the group's limit waits
until the limit is raised or memory is freed, instead of being killed. The kernel reports each
such wait by an eventfd (Documentation/admin-guide/cgroup-v1/memory.rst, section 10).
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from pathlib import Path
from typing import Final

from stallward.actuator.kernel.files import write_text
from stallward.actuator.kernel.memory.oom_control import OOM_CONTROL

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
