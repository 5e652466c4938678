"""Lets a v1 group wait for memory instead of being killed, while a limit of the daemon holds it.

A v1 limit is hard. A program that writes all of its memory at random faster than it can be swapped
is killed under it, however much swap is left. With ``oom_kill_disable`` in memory.oom_control its
processes wait instead, and the loop raises the limit as soon as the kernel reports that. Only
page faults wait: a system call that needs memory may fail or return less than was asked for.

A group that is made inside the slot meanwhile inherits the setting, so it is put back there, too.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from stallward.actuator.errors import ForeignError, KillsAgainError
from stallward.actuator.journal.entries import FileValue, JournalEntry
from stallward.actuator.kernel.files import write_text
from stallward.actuator.kernel.memory.oom_control import (
    KILL_DISABLED,
    OOM_CONTROL,
    UNDER_OOM,
    WAIT,
    oom_control,
    reset_inherited,
    waiting_inside,
)
from stallward.actuator.levers.base.held_setting import HeldSetting, PlainFile
from stallward.actuator.levers.base.lever import ASIDE_S
from stallward.actuator.levers.base.originals import Originals
from stallward.agent.errors import StallwardError

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

    def wait_of(self, slot: int, folder: Path, originals: Originals, *, aside_s: float) -> OomWait:
        """Have the processes of a slot's group wait; see :class:`OomWait`."""
        return OomWait(slot, folder, originals, self, aside_s=aside_s)

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


# ---------- Has the processes of a group wait


@dataclass(frozen=True, slots=True, kw_only=True)
class OomControlFile(PlainFile):
    """v1 memory.oom_control: it shows lines of key and value, and takes only the value."""

    lines: dict[str, str] = field(default_factory=dict, compare=False)
    """What it showed when it was last read."""

    def read(self) -> str | None:
        """Return ``1`` if the group's processes wait, ``0`` if the kernel kills."""
        self.lines.clear()
        self.lines.update(oom_control(self.path))
        return self.lines.get(KILL_DISABLED)

    def is_back(self, entry: JournalEntry) -> bool:
        """Whether the original value is in force."""
        return isinstance(entry, FileValue) and self.read() == entry.value


class OomWait:
    """Has the processes of one group wait while any lever limits it.

    All methods are called with the lock of the group's limit held.

    Args:
        slot: The number of the group's slot.
        folder: The group's directory in the v1 memory hierarchy.
        originals: Keeps the journal.
        alarms: Reports the waits.
        aside_s: How long the setting is left alone after another program has changed it.
    """

    def __init__(
        self,
        slot: int,
        folder: Path,
        originals: Originals,
        alarms: OomAlarms,
        *,
        aside_s: float = ASIDE_S,
    ) -> None:
        self._slot = slot
        self._folder = folder
        self._originals = originals
        self._alarms = alarms
        self._aside_s = aside_s
        self._file = OomControlFile(path=folder / OOM_CONTROL)
        self._setting = HeldSetting(self._file, originals)
        self._users: set[str] = set()
        self._waited_before: dict[Path, FileValue] = {}
        """Groups inside that waited already before the first limit, with what restores that."""
        self._aside_until_s = float("-inf")
        self._foreign = ""
        """What another program did to the setting while a limit relied on it."""
        self.why_not = ""
        """Why the group cannot be made to wait; empty if it can, or is not there yet."""
        if folder.exists():
            try:  # some kernels have the files and report nothing, e.g. with PREEMPT_RT
                alarms.watch(slot, folder)
            except (StallwardError, OSError) as error:
                self.why_not = f"limits are lowered with care only: {error}".rstrip(".")

    @property
    def held(self) -> bool:
        """Whether the group may not have its own setting."""
        return self._setting.held

    def begin(self, user: str) -> None:
        """Let the group wait, from before ``user`` limits it until :meth:`end`.

        Raises:
            KillsAgainError: If another program lets the kernel kill, now or a short while ago.
            StallwardError: If the kernel does not allow it.
            OSError: If there is no descriptor left.
        """
        try:
            self._setting.look()
        except ForeignError as error:
            self._step_aside(error)
        if time.monotonic() < self._aside_until_s:
            raise KillsAgainError(self._foreign)
        self._alarms.watch(self._slot, self._folder)
        if self._setting.taken != WAIT:
            self._note_those_inside()
            self._setting.move(WAIT)
        self._users.add(user)
        self._alarms.listen(self._slot, on=True)

    def end(self, user: str) -> None:
        """Put the group's own setting back, if no other lever limits it.

        Raises:
            StallwardError: If it could not be put back; it is still held then.
        """
        self._users.discard(user)
        if self._users:
            return
        self._alarms.listen(self._slot, on=False)
        if not self._setting.held:
            return
        with contextlib.suppress(ForeignError):  # what another program has set stays
            self._setting.put_back()
        self._put_back_inside()

    def check(self) -> None:
        """Check that the group still waits where a limit relies on it; note a wait that continues.

        An alarm may be missed: the kernel reports that a wait begins, not that it goes on.

        Raises:
            KillsAgainError: If another program lets the kernel kill again.
        """
        if not self._users:
            return
        try:
            self._setting.look()
        except ForeignError as error:
            self._step_aside(error)
            raise KillsAgainError(self._foreign) from error
        if not self._setting.held:
            self._users.clear()  # the group was removed, and its limit with it
            self._alarms.listen(self._slot, on=False)
        elif self._file.lines.get(UNDER_OOM) == "1":
            self._alarms.note(self._slot)

    def _step_aside(self, error: ForeignError) -> None:
        self._users.clear()
        self._alarms.listen(self._slot, on=False)
        self._aside_until_s = time.monotonic() + self._aside_s
        self._foreign = f"{error} A limit could kill now, so there is none for a while."
        self._put_back_inside()

    def _note_those_inside(self) -> None:
        """Note the groups inside that wait already: their setting is not inherited from ours."""
        self._waited_before = {
            path: FileValue(path, WAIT) for path in waiting_inside(self._folder)
        }
        self._originals.ensure_all(tuple(self._waited_before.values()))

    def _put_back_inside(self) -> None:
        """Let the kernel kill again in the groups that were made inside meanwhile."""
        reset_inherited(self._folder, keep=self._waited_before)
        self._originals.release_all(tuple(self._waited_before.values()))
        self._waited_before.clear()
