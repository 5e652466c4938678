"""Tells when the processes of v1 groups wait for memory (memory.oom_control).

With ``oom_kill_disable`` set, a process that cannot get memory under the group's limit waits
until the limit is raised or memory is freed, instead of being killed. The kernel reports each
such wait by an eventfd (Documentation/admin-guide/cgroup-v1/memory.rst, section 10).
"""

from __future__ import annotations

import contextlib
import os
import select
from pathlib import Path
from typing import Final

from stallward.actuator.kernel.files import write_text

OOM_CONTROL: Final = "memory.oom_control"
_EVENT_CONTROL: Final = "cgroup.event_control"


class OomAlarms:
    """Counts for each slot how often its processes had to wait for memory.

    The threads that write limits call :meth:`watch`, the loop calls the rest.

    Args:
        slots: The number of slots.
    """

    def __init__(self, slots: int) -> None:
        self._poller = select.epoll()
        self._totals = [0] * slots
        self._watched: dict[int, tuple[int, int]] = {}
        """For each watched slot its eventfd, and the inode number of its group's file."""

    @property
    def fd(self) -> int:
        """A descriptor that is readable while there are waits that :meth:`take` has not seen."""
        return self._poller.fileno()

    def watch(self, slot: int, folder: Path) -> None:
        """Count the waits of the group in ``folder`` from now on; again after it was made anew.

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
                self._poller.register(event, select.EPOLLIN)
            except BaseException:
                os.close(event)
                raise
        finally:
            os.close(control)
        before = self._watched.get(slot)
        self._watched[slot] = (event, inode)
        if before is not None:
            os.close(before[0])  # which also ends its registrations

    def take(self) -> tuple[int, ...]:
        """For each slot, how often its processes had to wait since the start; never waits."""
        if self._poller.poll(0):
            for slot, (event, _) in tuple(self._watched.items()):
                with contextlib.suppress(OSError):  # no wait, or watched anew just now
                    self._totals[slot] += os.eventfd_read(event)
        return tuple(self._totals)

    def close(self) -> None:
        """Close all descriptors."""
        for event, _ in self._watched.values():
            os.close(event)
        self._watched.clear()
        self._poller.close()
