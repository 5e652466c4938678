"""The lever on a value of threads: nice value, CPUs or timeslice, of a slot or the application.

There may be thousands of threads, each with a start time to read and a value to save, so a worker
thread does it. Once a second it sweeps for new threads and for foreign changes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from stallward.actuator.errors import LeverError
from stallward.actuator.journal.entries import GroupThreads, JournalEntry, ThreadValue
from stallward.actuator.kernel.process_table import read_seen, start_time_ticks
from stallward.actuator.kernel.scheduling import NICE, read_value, thread_ids, write_value
from stallward.actuator.levers.base.file_lever import ORIGINAL
from stallward.actuator.levers.base.lever import Members, PlannedWrite
from stallward.actuator.levers.base.originals import Originals
from stallward.actuator.levers.base.worker import Superseded, Worker, WorkerLever
from stallward.actuator.record.lever_result import LeverResult, attempt
from stallward.agent.desired import DesiredState
from stallward.agent.errors import StallwardError
from stallward.agent.sample import LeverState
from stallward.agent.threads import ThreadRef


class ThreadWishes(Protocol):
    """Wishes are equal if they want the same for every thread."""

    @property
    def text(self) -> str:
        """All wishes in words, as the tick record shows them."""

    def of(self, thread: ThreadRef) -> str | None:
        """What is wanted of a thread; ``None`` for nothing."""

    def value(self, thread: ThreadRef, original: str) -> str:
        """The value for a thread whose own is ``original``."""


@dataclass(frozen=True, slots=True)
class ForAll:
    """One value for every thread of a slot: never a better nice value than a thread's own."""

    what: str
    wanted: str

    @property
    def text(self) -> str:
        """The value."""
        return self.wanted

    def of(self, thread: ThreadRef) -> str | None:
        """The value, whatever the thread."""
        return self.wanted

    def value(self, thread: ThreadRef, original: str) -> str:
        """The value, or the thread's own nice value if that is worse."""
        return max(original, self.wanted, key=int) if self.what == NICE else self.wanted


@dataclass(frozen=True, slots=True)
class ForSome:
    """Values for single threads of the protected application; the others keep their own."""

    wanted: tuple[tuple[ThreadRef, str], ...]

    @property
    def text(self) -> str:
        """The value of each thread, as ``1234=100 1235=300``."""
        return " ".join(f"{thread.tid}={value}" for thread, value in self.wanted)

    def of(self, thread: ThreadRef) -> str | None:
        """The thread's value, if there is one."""
        return next((value for ref, value in self.wanted if ref == thread), None)

    def value(self, thread: ThreadRef, original: str) -> str:
        """The thread's value, or its own."""
        wanted = self.of(thread)
        return original if wanted is None else wanted


# ---------- Giving threads of a group a value of their own or one for all, and later each its original back
# A thread that is forked meanwhile inherits the value that its parent was given. It is recognised by
# that value and by a start after the first change, and it gets the parent's original back.

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
MOST_PROBLEMS: Final = 3
"""The most failures of one sweep that are reported; thousands of threads may fail alike."""


@dataclass(frozen=True, slots=True)
class Given:
    """The value that a thread had, and the one that it was given."""

    original: str
    value: str
    asked: str
    """What was asked for: of CPUs the kernel takes those that the group may use."""


@dataclass(slots=True)
class Swept:
    """The outcome of one sweep."""

    moved: int = 0
    foreign: int = 0
    problems: list[str] | None = None

    def problem(self, text: str) -> None:
        """Note a failure, up to :data:`MOST_PROBLEMS`."""
        self.problems = self.problems or []
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(text)


class ThreadSweep:
    """All threads of one slot, or of the application, and one of their values.

    Args:
        what: The value that is changed, one of ``kernel/scheduling.py``.
        members: Returns the processes.
        folder: Their cgroup directory; ``None`` where it is a process tree.
        proc: The /proc directory.
        originals: Keeps the journal.
    """

    def __init__(
        self, what: str, members: Members, folder: Path | None, proc: Path, originals: Originals
    ) -> None:
        self._what = what
        self._members = members
        self._folder = folder
        self._proc = proc
        self._originals = originals
        self._given: dict[ThreadRef, Given] = {}
        self._own: set[ThreadRef] = set()
        """Threads that had the wanted value by themselves."""
        self._left: dict[ThreadRef, str | None] = {}
        """Threads with a foreign change since, and what was wanted of each."""
        self._common: str | None = None
        """The original value of the first thread changed; most likely that of all."""
        self._written: set[str] = set()
        """The values given so far: a thread that started since may have inherited one."""
        self._since_ticks = 0
        self._entries: dict[JournalEntry, None] = {}

    @property
    def held(self) -> bool:
        """Whether a thread may not have its original value, also one whose parent has ended."""
        return bool(self._given or self._written)

    def values(self) -> Iterator[tuple[ThreadRef, str, int]]:
        """Yield all threads that exist now, their values, and the pids of their processes."""
        for pid in self._members():
            for tid in thread_ids(self._proc, pid):
                ticks = start_time_ticks(self._proc, tid)
                now = read_value(self._what, tid)
                if ticks is not None and now is not None:
                    yield ThreadRef(tid=tid, start_time_ticks=ticks), now, pid

    def give(self, wishes: ThreadWishes) -> Swept:
        """Give every thread the value that is wanted of it, or its own if none is.

        A thread with a foreign change is left alone until something else is wanted of it.
        """
        swept = Swept()
        if not self.held:
            self._since_ticks = int(time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS_PER_S)
        threads = tuple(self.values())
        todo = []
        for thread, now, pid in threads:
            wish = wishes.of(thread)
            if thread in self._left and self._left[thread] == wish:
                continue
            self._left.pop(thread, None)
            original = self._original(thread, now, pid, wish, swept)
            if original is None:
                continue
            value, given = wishes.value(thread, original), self._given.get(thread)
            if value != now and (given is None or given.asked != value):
                todo.append((thread, original, value))
            elif given is None:
                self._own.add(thread)
                if self._folder is not None:  # else a restore would take it for a changed one
                    self._save(ThreadValue(self._what, thread.tid, thread.start_time_ticks, now))
        for thread, original, value in todo:
            try:
                if value == original and thread in self._given:
                    swept.moved += self._back(thread, self._given.pop(thread), swept)
                    self._own.add(thread)
                else:
                    self._give_one(thread, original, value, swept)
            except (StallwardError, OSError) as error:
                swept.problem(str(error))
        self._drop_dead({thread for thread, *_ in threads})
        return swept

    def _drop_dead(self, seen: set[ThreadRef]) -> None:
        """Forget threads that have ended: in a build thousands end every minute.

        Args:
            seen: The threads that existed in this sweep.
        """
        entries = [e for e in self._entries if isinstance(e, ThreadValue)]
        known = {_ref(e) for e in entries}
        known |= self._given.keys() | self._own | self._left.keys()
        dead = {
            thread
            for thread in known - seen
            if start_time_ticks(self._proc, thread.tid) != thread.start_time_ticks
        }
        for thread in dead:
            self._given.pop(thread, None)
            self._left.pop(thread, None)
        self._own -= dead
        gone = [e for e in entries if _ref(e) in dead]
        for entry in gone:
            del self._entries[entry]
        self._originals.release_all(gone)

    def _original(
        self, thread: ThreadRef, now: str, pid: int, wish: str | None, swept: Swept
    ) -> str | None:
        """The value that a thread had before; ``None`` if there was a foreign change since."""
        given = self._given.get(thread)
        if given is None:
            if self._inherited(thread, now):
                own = self._parents(thread, pid, now)
                if self._folder is None or own != self._common:  # not as all threads of a group
                    self._save(ThreadValue(self._what, thread.tid, thread.start_time_ticks, own))
                self._given[thread] = Given(own, now, now)
                return own
            return now
        if given.value == now:
            return given.original
        del self._given[thread]
        self._left[thread] = wish
        swept.foreign += 1
        swept.problem(f"Thread {thread.tid} has {now} now, set by another program; left as it is.")
        return None

    def _inherited(self, thread: ThreadRef, now: str) -> bool:
        if self._common is None or thread in self._own:
            return False
        if thread.start_time_ticks < self._since_ticks:
            return False
        return now in self._written

    def _parents(self, thread: ThreadRef, pid: int, now: str) -> str:
        """The own value of the one that a thread has inherited from, as far as that is known."""
        parent = pid  # most threads are started by the first one of their process
        if thread.tid == pid:
            seen = read_seen(self._proc, pid)
            parent = 0 if seen is None else seen.parent
        ticks = start_time_ticks(self._proc, parent)
        ref = ThreadRef(tid=parent, start_time_ticks=-1 if ticks is None else ticks)
        given = self._given.get(ref)
        if given is None:
            return now if ref in self._own else self._common or now
        return given.original

    def _save(self, entry: JournalEntry) -> None:
        self._originals.ensure(entry)
        self._entries[entry] = None

    def _give_one(self, thread: ThreadRef, original: str, value: str, swept: Swept) -> None:
        if self._common is None:
            self._common = original
        if self._folder is not None and original == self._common:
            self._save(GroupThreads(self._what, self._folder, value, original))
        else:
            ticks = thread.start_time_ticks
            self._save(ThreadValue(self._what, thread.tid, ticks, original))
        if not write_value(self._what, thread.tid, value):
            return
        taken = read_value(self._what, thread.tid) or value
        self._given[thread] = Given(original, taken, value)
        self._written.add(taken)
        swept.moved += 1
        if taken != value:
            if self._folder is not None and original == self._common:
                self._save(GroupThreads(self._what, self._folder, taken, original))
            raise LeverError(f"Thread {thread.tid}: the kernel took {taken} instead of {value}.")

    def give_back(self) -> Swept:
        """Give every thread its original value back, also those forked since."""
        swept = Swept()
        for thread, now, pid in self.values():
            if thread not in self._given and self._inherited(thread, now):
                self._given[thread] = Given(self._parents(thread, pid, now), now, now)
        for thread, given in tuple(self._given.items()):
            try:
                swept.moved += self._back(thread, given, swept)
            except (StallwardError, OSError) as error:
                swept.problem(str(error))  # it stays held, and is tried again
                continue
            del self._given[thread]
        if not self._given:
            self._forget()
        return swept

    def _back(self, thread: ThreadRef, given: Given, swept: Swept) -> bool:
        now = read_value(self._what, thread.tid)
        if start_time_ticks(self._proc, thread.tid) != thread.start_time_ticks or now is None:
            return False
        if now != given.value:
            swept.foreign += 1
            return False
        return write_value(self._what, thread.tid, given.original)

    def _forget(self) -> None:
        self._originals.release_all(tuple(self._entries))
        self._entries.clear()
        self._written.clear()
        self._own.clear()
        self._left.clear()
        self._common = None


def _ref(entry: ThreadValue) -> ThreadRef:
    return ThreadRef(tid=entry.tid, start_time_ticks=entry.start_time_ticks)


SWEEP_S: Final = 1.0
"""How often the lever sweeps for new threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSpec:
    """The description of a lever on the threads of a slot, or of the application."""

    name: str
    """The lever's name, e.g. ``nice:hog0``."""
    what: str
    """The value that is changed, one of ``kernel/scheduling.py``."""
    members: Members
    """Returns the processes."""
    folder: Path | None
    """Their cgroup directory; ``None`` where they are a process tree."""
    wishes_of: Callable[[DesiredState], ThreadWishes | None]
    """Takes the lever's wishes from a desired state; ``None`` for the originals."""
    proc: Path
    """The /proc directory."""
    missing: str = ""
    """Why the lever cannot be used; empty if it can."""
    check: Callable[[], None] = field(default=lambda: None)
    """Called before each change; raises to refuse it."""


class ThreadLever(WorkerLever[ThreadWishes | None]):
    """Gives threads the values that are wanted of them, and later their originals back.

    Args:
        spec: The description.
        originals: Keeps the journal.
    """

    def __init__(self, spec: ThreadSpec, originals: Originals) -> None:
        self.name, self.why_missing = spec.name, spec.missing
        self._spec = spec
        self._sweep = ThreadSweep(spec.what, spec.members, spec.folder, spec.proc, originals)
        self._wanted: ThreadWishes | None = None
        self._sweep_at_s = 0.0
        self._since_s = 0.0
        self._foreign = False
        self.foreign_total = 0
        self._worker: Worker[ThreadWishes | None] = Worker(spec.name, self._work)

    @property
    def held(self) -> bool:
        """Whether a thread may not have its original value."""
        return self._sweep.held or self._worker.busy

    @property
    def idle(self) -> bool:
        """Whether no regular sweep for new threads is due while this state lasts."""
        return bool(self._spec.missing) or (self._wanted is None and not self._sweep.held)

    def apply(self, granted: DesiredState, now_s: float) -> tuple[LeverResult, ...]:
        """Start a sweep if there is a new value, or the regular one is due."""
        wishes = self._spec.wishes_of(granted)
        new = wishes != self._wanted
        if not new and (self.idle or self._worker.busy or now_s < self._sweep_at_s):
            return ()
        before, self._wanted = self._wanted, wishes
        if self._spec.missing:
            if wishes is None:
                return ()
            return (self._result(wishes.text, self.why_missing),)
        if new:
            self._foreign = False
            self._since_s = now_s if before is None else self._since_s
        self._sweep_at_s = now_s + SWEEP_S
        self._worker.ask(wishes)
        return ()

    def plan(self, granted: DesiredState) -> tuple[PlannedWrite, ...]:
        """One planned write for all threads that would change."""
        wishes = self._spec.wishes_of(granted)
        if wishes == self._wanted or self._spec.missing:
            return ()
        threads = tuple(self._sweep.values())
        if wishes is not None:
            threads = tuple(one for one in threads if wishes.value(one[0], one[1]) != one[1])
        values = [now for _, now, _ in threads]
        plan = PlannedWrite(
            lever=self.name,
            target=f"{self._spec.what} of {len(values)} threads",
            before=" or ".join(sorted(set(values))),
            after=ORIGINAL if wishes is None else wishes.text,
            undo="every thread gets back what it had, and those it started meanwhile",
        )
        return (plan,)

    def restore(self, now_s: float) -> tuple[LeverResult, ...]:
        """Start to give every thread its original value back."""
        self._wanted = None
        if self.held:
            self._worker.ask(None)
        return ()

    def states(self, now_s: float) -> tuple[LeverState, ...]:
        """The wanted value, while any thread has it."""
        if self._wanted is None or not (self._sweep.held or self._foreign):
            return ()
        age_s, foreign = now_s - self._since_s, self._foreign
        return (
            LeverState(
                lever=self.name, value=self._wanted.text, held_for_s=age_s, foreign=foreign
            ),
        )

    def _work(
        self, wanted: ThreadWishes | None, _superseded: Superseded
    ) -> tuple[LeverResult, ...]:
        started_s = time.monotonic()
        if wanted is not None:
            refused = attempt(self.name, wanted.text, self._spec.check)
            if not refused.ok:
                return (refused,)
        swept = self._sweep.give_back() if wanted is None else self._sweep.give(wanted)
        self._foreign = self._foreign or swept.foreign > 0
        self.foreign_total += swept.foreign
        if not swept.moved and not swept.problems:
            return ()
        error = " ".join(swept.problems or ())
        value = ORIGINAL if wanted is None else wanted.text
        return (self._result(value, error, took_s=time.monotonic() - started_s),)
