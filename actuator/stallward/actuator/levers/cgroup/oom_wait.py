"""Lets a v1 group wait for memory instead of being killed, while a limit of the daemon holds it.

A v1 limit is hard. A program that writes all of its memory at random faster than it can be swapped
is killed under it, however much swap is left. With ``oom_kill_disable`` in memory.oom_control its
processes wait instead, and the loop raises the limit as soon as the kernel reports that. Only
page faults wait: a system call that cannot get memory fails with ENOMEM, as it does under any
limit.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.errors import ForeignError, LeverError
from stallward.actuator.journal.entries import FileValue, JournalEntry
from stallward.actuator.kernel.files import read_text
from stallward.actuator.kernel.memory.oom_alarms import OOM_CONTROL, OomAlarms
from stallward.actuator.levers.base.held_setting import HeldSetting
from stallward.actuator.levers.base.originals import Originals
from stallward.actuator.levers.base.setting_files import PlainFile
from stallward.agent.errors import StallwardError

_KEY: Final = "oom_kill_disable"
_WAIT: Final = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class OomControlFile(PlainFile):
    """v1 memory.oom_control: it shows lines of key and value, and takes only the value."""

    def read(self) -> str | None:
        """Return ``1`` if the group's processes wait, ``0`` if the kernel kills."""
        for line in (read_text(self.path) or "").splitlines():
            key, _, value = line.partition(" ")
            if key == _KEY:
                return value
        return None

    def original(self) -> JournalEntry | None:
        """Return an entry with the value of now."""
        value = self.read()
        return None if value is None else FileValue(self.path, value)

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
    """

    def __init__(self, slot: int, folder: Path, originals: Originals, alarms: OomAlarms) -> None:
        self._slot = slot
        self._folder = folder
        self._alarms = alarms
        self._setting = HeldSetting(OomControlFile(path=folder / OOM_CONTROL), originals)
        self._users: set[str] = set()
        self.missing = ""
        """Why the group cannot be made to wait; empty if it can, or is not there yet."""
        if folder.exists():
            try:  # some kernels have the files and report nothing, e.g. with PREEMPT_RT
                alarms.watch(slot, folder)
            except (StallwardError, OSError) as error:
                self.missing = f"limits are lowered with care only: {error}".rstrip(".")

    @property
    def held(self) -> bool:
        """Whether the group may not have its own setting."""
        return self._setting.held

    def begin(self, user: str) -> None:
        """Let the group wait, from before ``user`` limits it until :meth:`end`.

        Raises:
            StallwardError: If the kernel or another program does not allow it.
            OSError: If there is no descriptor left.
        """
        self._alarms.watch(self._slot, self._folder)
        if self._setting.taken != _WAIT:
            self._setting.move(_WAIT)
        else:
            self._setting.look()
            if not self._setting.held:  # the group was made anew
                self._setting.move(_WAIT)
        self._users.add(user)

    def end(self, user: str) -> None:
        """Put the group's own setting back, if no other lever limits it.

        Raises:
            StallwardError: If it could not be put back; it is still held then.
        """
        self._users.discard(user)
        if not self._users:
            with contextlib.suppress(ForeignError):  # what another program has set stays
                self._setting.put_back()

    def check(self) -> None:
        """Check that the group still waits, where a limit relies on it.

        Raises:
            LeverError: If another program lets the kernel kill again.
        """
        if not self._users:
            return
        try:
            self._setting.look()
        except ForeignError as error:
            self._users.clear()
            raise LeverError(f"{error} A limit could kill now, so it is lifted.") from error
        if not self._setting.held:
            self._users.clear()  # the group was removed, and its limit with it
