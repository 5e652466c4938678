"""The journal entries that the guardian holds for the loop, in memory and in the journal's file.

The loop notes some entries before it touches their settings. Such an entry is undone only if the
memory that the guardian shares with the loop marks it as touched.

An entry is acknowledged only when it is in the file, so that it survives the death of guardian and
loop together. Under pressure the disk can block even a write, but the guardian must restore within
a second. So a separate thread writes the file, and restoring reads the entries from memory.
"""

from __future__ import annotations

import math
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from stallward.actuator.errors import ActuatorError, JournalError
from stallward.actuator.ipc.shared_memory import (
    PLACES,
    SharedMemory,
    in_force,
    read_touched,
    remove_touched,
    touch_path,
)
from stallward.actuator.journal.disk import Journal
from stallward.actuator.journal.entries import (
    JournalEntry,
    Noted,
    Operation,
    from_line,
    setting_of,
)
from stallward.actuator.journal.kept_files import KeptFiles
from stallward.actuator.journal.own_entries import Owner, refusal
from stallward.actuator.journal.restore import (
    RETRY_S,
    Cause,
    Unrestored,
    by_entry,
    restore,
    restore_patiently,
)
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.runtime.stderr_line import say

_CLOSE_S: Final = 2.0
_RECOVER_S: Final = 5.0
"""How long what an earlier daemon left behind is tried to be undone."""
_SLOW_RETRY_S: Final = 5.0
"""The time until the next try where the kernel blocks a write or refuses it for a lasting reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """One change to the file, for the writing thread."""

    entries: tuple[JournalEntry, ...] = ()
    operation: Operation = "hold"
    done: Callable[[bytes], None] | None = None
    """Called with the acknowledgement."""
    serial: int = 0
    """The number of the message that the entries came with."""
    forget: bool = False
    """Whether to remove all entries from the file."""
    refusal: str = ""
    """Why a message was refused. It waits its turn: the loop takes answers in the order in which it
    asked, and would take that of an earlier message for this one's."""


class HeldJournal:
    """The entries in force, in memory and on disk.

    Args:
        journal: The file.
        paths: The kernel's files.
        memory_only: Whether to accept entries even if the file cannot be written. Then nothing
            undoes them if guardian and loop die together.

    Attributes:
        memory: The memory shared with the loop; ``None`` until :meth:`share`.
        hopeful: Whether something that could not be undone may be undone at the next try.
        after_crash: Whether :meth:`recover` found that an earlier daemon did not stop in order.
    """

    def __init__(self, journal: Journal, paths: Paths, *, memory_only: bool = False) -> None:
        self._journal = journal
        self._paths = paths
        self._memory_only = memory_only
        self.memory: SharedMemory | None = None
        self.after_crash = False
        self._entries: dict[JournalEntry, int] = {}
        """The entries, each with the number of the last message that held it."""
        self._serial = 0
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._refused: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._kept = KeptFiles()
        self._failed: dict[JournalEntry, Unrestored] = {}
        """The entries that the last try did not undo, and why."""
        self._retry_at_s = 0.0
        self.hopeful = False
        self._problem = ""
        self._writer = threading.Thread(target=self._write, name="journal", daemon=True)
        self._writer.start()

    @property
    def entries(self) -> tuple[JournalEntry, ...]:
        """The held entries, in order."""
        self._drop_refused()
        return tuple(self._entries)

    @property
    def problem(self) -> str:
        """Why the file could not be written the last time; empty if it could."""
        return self._problem

    @property
    def unfinished(self) -> bool:
        """Whether the last restore failed for some entries, which are still held."""
        return bool(self._failed)

    @property
    def retry_at_s(self) -> float:
        """When to call :meth:`retry`, CLOCK_MONOTONIC; infinite if there is nothing to retry."""
        return self._retry_at_s if self._failed else math.inf

    def recover(self) -> tuple[JournalEntry, ...]:
        """Undo the entries that a dead daemon left on disk; returns them.

        Lines that cannot be read are kept in a file beside the journal. It is no error here if
        the journal cannot be emptied: it is written anew before the next entry.

        Raises:
            JournalError: If the file cannot be read, or an entry cannot be undone.
        """
        path = self._journal.path
        self.after_crash = any(map(os.path.lexists, (path, touch_path(path))))
        left = in_force(self._journal.load(), read_touched(path))
        problems = restore_patiently(lambda: left, self._paths, patience_s=_RECOVER_S)
        if problems:  # what could not be undone stays in the file
            self._entries.update(dict.fromkeys(left, 0))
            self._note_failed(problems)
            raise JournalError(
                f"Settings that an earlier daemon left behind cannot be undone: {problems[0]}",
                next_step=f"Undo what {self._journal.path} lists by hand, then remove it.",
            )
        if self._journal.unreadable:
            say(unreadable(self._journal))
        try:
            self._journal.clear()
        except JournalError as error:
            say(str(error))
        return left

    def share(self, slots: Sequence[str]) -> SharedMemory:
        """Make the memory that is shared with every loop from now on; call :meth:`recover` before.

        Args:
            slots: A text for each slot, in order, that differs from that of any other slot.

        Raises:
            JournalError: If the memory cannot be had.
        """
        try:
            self.memory = SharedMemory.make(self._journal.path, self._paths, slots)
        except OSError as error:
            raise JournalError(f"No memory to share with the loop ({error.strerror}).") from error
        return self.memory

    @property
    def first_place(self) -> int:
        """The first place in the memory after those of the entries that are still held."""
        return 1 + max((e.place for e in self.entries if isinstance(e, Noted)), default=-1)

    def take(self, message: bytes, done: Callable[[bytes], None]) -> None:
        """Hold or release the entries of ``message``, then call ``done`` with the acknowledgement.

        ``done`` may be called from another thread.
        """
        try:
            lines = [self._ours(line) for line in message.decode().splitlines()]
        except (ActuatorError, UnicodeDecodeError) as error:
            self._jobs.put(_Job(done=done, refusal=str(error)))
            return
        self._drop_refused()
        held = [entry for operation, entry in lines if operation == "hold"]
        try:
            self._keep(held)
        except JournalError as error:
            self._jobs.put(_Job(done=done, refusal=str(error)))
            return
        self._serial += 1
        released = tuple(entry for operation, entry in lines if operation == "release")
        entries = tuple(held)
        for entry in released:
            self._forget(entry)
        # They are held before they are in the file; restoring an entry too many does no harm.
        self._entries.update(dict.fromkeys(entries, self._serial))
        if released:
            reply = None if entries else done
            self._jobs.put(_Job(entries=released, operation="release", done=reply))
        if entries or not released:
            self._jobs.put(_Job(entries=entries, done=done, serial=self._serial))

    def _keep(self, entries: Sequence[JournalEntry]) -> None:
        """Open what entries are undone by; all of them or none.

        Raises:
            JournalError: If no descriptor is left.
        """
        new = [entry for entry in entries if entry not in self._entries]
        try:
            for entry in new:
                self._kept.keep(entry, self._paths.proc)
        except JournalError:
            for entry in new:
                self._kept.drop(entry)
            raise

    def _forget(self, entry: JournalEntry) -> None:
        """Hold one entry no more."""
        self._entries.pop(entry, None)
        self._failed.pop(entry, None)
        self._kept.drop(entry)

    def _ours(self, line: str) -> tuple[Operation, JournalEntry]:
        """Read one line; what restoring would refuse is not held in the first place."""
        operation, entry = from_line(line)
        if why := refusal(entry, self._paths, Owner.DAEMON):
            raise JournalError(why)
        return operation, entry

    def _drop_refused(self) -> None:
        """Drop the entries that could not be written: the loop never made their changes."""
        while not self._refused.empty():
            job = self._refused.get()
            for entry in job.entries:
                if self._entries.get(entry) == job.serial:
                    self._forget(entry)

    def restore(self, *, forget: bool = True) -> tuple[Unrestored, ...]:
        """Undo all entries that are in force; returns what could not be undone, which stays held.

        Args:
            forget: Whether to drop the other entries afterwards; not while the loop may still be
                alive.
        """
        problems = restore(self._to_undo(), self._paths, kept=self._kept)
        self._note_failed(problems)
        if forget:
            self.forget()
        return problems

    def retry(self, *, forget: bool = True) -> tuple[Unrestored, ...]:
        """Try again what could not be undone; returns what still cannot be.

        A setting that the next loop has changed since is its own to put back: it is left alone
        until then. So is one on which an earlier try is still blocked: each further one would take
        another thread, and hold up the guardian.

        Args:
            forget: Whether to drop what is undone now; not while the loop that changed it may
                still be alive, since a write of its may yet succeed.
        """
        in_force = self._to_undo()
        of_loop = {setting_of(entry) for entry in in_force if entry not in self._failed} - {None}
        mine = [entry for entry in in_force if entry in self._failed]
        due = [
            entry
            for entry in mine
            if setting_of(entry) not in of_loop and not self._failed[entry].goes_on()
        ]
        waiting = {entry: self._failed[entry] for entry in mine if entry not in due}
        problems = restore(due, self._paths, kept=self._kept)
        left = waiting | by_entry(problems)
        if forget:
            self._drop(entry for entry in tuple(self._failed) if entry not in left)
        self._note_failed(problems)
        self._failed = left
        return tuple(dict.fromkeys(left.values()))

    def _note_failed(self, problems: Sequence[Unrestored]) -> None:
        self._failed = by_entry(problems)
        self.hopeful = any(problem.cause is Cause.FAILED for problem in problems)
        self._retry_at_s = time.monotonic() + (RETRY_S if self.hopeful else _SLOW_RETRY_S)

    def _to_undo(self) -> tuple[JournalEntry, ...]:
        return self.entries if self.memory is None else self.memory.in_force(self.entries)

    def forget(self) -> None:
        """Drop all entries, because the loop has put back its changes.

        Those that the last restore could not undo stay held.
        """
        if self.memory is not None:
            self.memory.settle_all(but=map(_place_of, self._failed))
        self._drop(entry for entry in self.entries if entry not in self._failed)

    def _drop(self, entries: Iterable[JournalEntry]) -> None:
        """Drop entries that are undone, here and in the file."""
        gone = tuple(entries)
        for entry in gone:
            self._forget(entry)
            if self.memory is not None and isinstance(entry, Noted):
                self.memory.settle(entry.place)
        if gone:
            whole = not self._entries
            job = _Job(forget=True) if whole else _Job(entries=gone, operation="release")
            self._jobs.put(job)

    def close(self) -> None:
        """End the writing thread; waits for the disk, but not for ever."""
        if self.memory is not None and not self._failed:
            remove_touched(self._journal.path)
        self._jobs.put(None)
        self._writer.join(_CLOSE_S)
        if not self._writer.is_alive():
            self._journal.close()
        self._kept.close()

    def _on_disk(self, entry: JournalEntry) -> JournalEntry:
        """The form of an entry in the file.

        A noted entry is only useful together with the marks in shared memory. If the next daemon
        will not find that memory, the entry is written as one to undo in any case.
        """
        if isinstance(entry, Noted) and not (self.memory and self.memory.named):
            return entry.entry
        return entry

    def _write(self) -> None:
        """Write the jobs to the file, in a thread of its own."""
        while (job := self._jobs.get()) is not None:
            answer = b"ok"
            try:
                if job.refusal:
                    answer = b"!" + job.refusal.encode()
                elif job.forget:
                    self._journal.clear()
                else:
                    self._journal.append(map(self._on_disk, job.entries), job.operation)
                if not job.refusal:
                    self._problem = ""
            except (ActuatorError, OSError) as error:
                if str(error) != self._problem:
                    say(str(error))
                self._problem = str(error)
                if job.operation == "hold" and not self._memory_only:
                    self._refused.put(job)
                    answer = b"!" + self._problem.encode()
            if job.done is not None:
                job.done(answer)


def _place_of(entry: JournalEntry) -> int:
    """The place of an entry in the touch table; behind all places if it has none."""
    return entry.place if isinstance(entry, Noted) else PLACES


def unreadable(journal: Journal) -> str:
    """Set the unreadable lines of a journal aside; returns a sentence about them."""
    kept = journal.set_aside()
    return (
        f"{len(journal.unreadable)} lines of {journal.path} are damaged or of another version "
        f"and were not undone; {f'they are in {kept}' if kept else 'they could not be kept'}."
    )
