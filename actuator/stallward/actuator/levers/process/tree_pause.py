"""The pause of a process tree by SIGSTOP and SIGCONT to every member.

This is weaker than freezing a cgroup, and programs can see it. A parent outside the tree sees its
child stop (a shell says "Stopped"). A program may catch SIGCONT. A process that waits in the
kernel for a disk stops only when the wait ends. Parents are stopped before their children and
continued after them, so that a parent in the tree hardly ever sees a child stop: only one that is
running when the signal comes may.

Processes that are forked meanwhile are found and stopped at later ticks; within a few ticks the
whole tree is stopped. Only processes that this lever stopped are continued: one that another
program had stopped stays stopped, and one that another program continues runs until the next
pause.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from stallward.actuator.errors import JournalError, KernelFileError
from stallward.actuator.journal.entries import Stopped
from stallward.actuator.kernel.process_table import Seen, look_at, read_seen, why_no_pidfd
from stallward.actuator.kernel.process_trees import ProcessTree
from stallward.actuator.levers.base.file_lever import RETRY_S
from stallward.actuator.levers.base.lever import ExemptProcesses, LeverDefaults, PlannedWrite
from stallward.actuator.levers.base.originals import Originals
from stallward.actuator.record.lever_result import LeverResult
from stallward.agent.desired import DesiredState, ProcessRef
from stallward.agent.sample import LeverState

BATCH: Final = 100
"""How many processes share one message to the journal and have their pidfds open at once."""


@dataclass(slots=True, kw_only=True)
class Batch:
    """The outcome for the processes that were to be signalled."""

    done: list[ProcessRef] = field(default_factory=list)
    already: list[ProcessRef] = field(default_factory=list)
    """Processes that another program had stopped already."""
    gone: list[ProcessRef] = field(default_factory=list)
    refused: dict[ProcessRef, str] = field(default_factory=dict)
    """Why a process could not be signalled."""


def batches(refs: Iterable[ProcessRef]) -> Iterator[tuple[ProcessRef, ...]]:
    """Yield the processes, at most :data:`BATCH` at a time."""
    todo = tuple(refs)
    for start in range(0, len(todo), BATCH):
        yield todo[start : start + BATCH]


def stop(
    proc: Path, refs: Iterable[ProcessRef], hold: Callable[[list[ProcessRef]], None]
) -> Batch:
    """Send SIGSTOP to those processes that run.

    Args:
        proc: The /proc directory.
        refs: The processes, parents first, at most :data:`BATCH`.
        hold: Called with the processes to stop, before the first is stopped; an error that it
            raises prevents all of it.
    """
    batch = Batch()
    with contextlib.ExitStack() as stack:
        running: list[tuple[ProcessRef, int]] = []
        for ref in refs:
            fd = _open(ref, batch)
            if fd < 0:
                continue
            stack.callback(os.close, fd)
            # The descriptor pins one process; the start time says whether it is the right one.
            seen = _look_at(proc, ref, batch)
            if seen is not None and seen.ended:
                batch.gone.append(ref)
            elif seen is not None and seen.stopped:
                batch.already.append(ref)
            elif seen is not None:
                running.append((ref, fd))
        if running:
            hold([ref for ref, _ in running])
        for ref, fd in running:
            _send(ref, fd, signal.SIGSTOP, batch)
    return batch


def send(proc: Path, refs: Iterable[ProcessRef], number: signal.Signals) -> Batch:
    """Send a signal to processes, one after the other."""
    batch = Batch()
    for ref in refs:
        fd = _open(ref, batch)
        if fd < 0:
            continue
        try:
            if _look_at(proc, ref, batch) is not None:
                _send(ref, fd, number, batch)
        finally:
            os.close(fd)
    return batch


def _open(ref: ProcessRef, batch: Batch) -> int:
    try:
        return os.pidfd_open(ref.pid)
    except ProcessLookupError:
        batch.gone.append(ref)
    except OSError as error:
        batch.refused[ref] = os.strerror(error.errno or 0)
    return -1


def _look_at(proc: Path, ref: ProcessRef, batch: Batch) -> Seen | None:
    """Read a process; ``None``, and noted in ``batch``, if it is gone or cannot be read now.

    One that cannot be read may still be stopped, and must not be taken for gone.
    """
    try:
        seen = look_at(proc, ref.pid)
    except KernelFileError as error:
        batch.refused[ref] = error.cause
        return None
    if seen is None or seen.ref != ref:
        batch.gone.append(ref)
        return None
    return seen


def _send(ref: ProcessRef, fd: int, number: signal.Signals, batch: Batch) -> None:
    try:
        signal.pidfd_send_signal(fd, number)
    except ProcessLookupError:
        batch.gone.append(ref)
    except OSError as error:
        batch.refused[ref] = os.strerror(error.errno or 0)
    else:
        batch.done.append(ref)


ROUNDS: Final = 3
"""How often one tick looks again for processes forked while it stopped the others."""
CONFIRM_S: Final = 1.0
"""A process that is not stopped after this time is reported."""
LOOKED_AT: Final = 32
"""How many of the stopped processes one check reads, in turn."""


class TreePause(LeverDefaults):
    """The pause of one process tree.

    Args:
        slot: The slot's index.
        tree: The slot's processes.
        proc: The /proc directory.
        originals: Keeps the journal.
        exempt: Processes that are never stopped.
    """

    def __init__(
        self,
        slot: int,
        tree: ProcessTree,
        proc: Path,
        originals: Originals,
        *,
        exempt: ExemptProcesses | None = None,
    ) -> None:
        self.name = f"pause:{tree.name}"
        self._slot = slot
        self._tree = tree
        self._proc = proc
        self._originals = originals
        self._exempt = exempt or ExemptProcesses()
        self._stopped: dict[ProcessRef, float] = {}
        """The time at which each process was stopped."""
        self._confirmed: set[ProcessRef] = set()
        """The stopped processes that have been seen stopped."""
        self._aside: set[ProcessRef] = set()
        """Processes that another program continued or that could not be stopped, until the next
        pause."""
        self._turn: list[ProcessRef] = []
        self._retry_at_s = 0.0
        self._paused = False
        self.foreign_total = 0
        self.why_missing = why_no_pidfd()

    @property
    def held(self) -> bool:
        """Whether any process is stopped by this lever."""
        return bool(self._stopped)

    @property
    def idle(self) -> bool:
        """Whether the tree runs: while it is paused, each tick looks for new processes."""
        return not self._paused and not self._stopped

    def requested(self) -> bool:
        """Whether any member is stopped by this lever."""
        return bool(self._stopped)

    def frozen(self) -> bool:
        """Whether every member is stopped now; read from the kernel."""
        members = [read_seen(self._proc, pid) for pid in self._tree.pids()]
        alive = [seen for seen in members if seen is not None and not seen.ended]
        return bool(alive) and all(seen.stopped for seen in alive)

    def _wanted(self, granted: DesiredState) -> bool:
        """Whether a state pauses the slot; a slot that is to end must run."""
        desire = granted.slot(self._slot)
        return desire.paused and not desire.terminated

    def apply(self, granted: DesiredState, now_s: float) -> tuple[LeverResult, ...]:
        """Stop running members, or continue stopped ones; continue those that left the tree."""
        if not self._wanted(granted):
            return tuple(self._thaw(now_s))
        if self.missing:
            return (self._result("SIGSTOP", self.missing[0]),)
        if now_s < self._retry_at_s:
            return ()
        begun, self._paused = not self._paused, True
        if begun:
            self._aside.clear()
        return tuple(self._pause(now_s, begun=begun))

    def _pause(self, now_s: float, *, begun: bool) -> list[LeverResult]:
        started_s, total, error = time.monotonic(), Batch(), ""
        for _ in range(ROUNDS):
            self._tree.refresh()
            new = self._running()
            if not new:
                break
            try:
                for part in batches(new):
                    _merge(total, stop(self._proc, part, self._hold))
                    self._stopped.update(dict.fromkeys(total.done, now_s))
            except JournalError as failure:
                error = str(failure)
                self._retry_at_s = now_s + RETRY_S
                break
        self._forget(total.gone)
        self._forget([*total.refused])
        self._aside.update(total.refused)
        results = self._continue_former_members(now_s)
        if total.refused and not error:
            ref, why = next(iter(total.refused.items()))
            error = f"{len(total.refused)} processes cannot be stopped, e.g. {ref.pid}: {why}"
        if total.done or error or (begun and total.already):
            value = f"SIGSTOP to {len(total.done)}"
            results.append(self._result(value, error, took_s=time.monotonic() - started_s))
        return results

    def _running(self) -> list[ProcessRef]:
        """The members to stop, parents first."""
        exempt = self._exempt.pids()
        members = sorted(self._tree.members.values(), key=lambda seen: seen.age_order)
        return [
            seen.ref
            for seen in members
            if not seen.ended
            and seen.pid not in exempt
            and seen.ref not in self._stopped
            and seen.ref not in self._aside
        ]

    def _hold(self, refs: list[ProcessRef]) -> None:
        self._originals.ensure_all([_entry(ref) for ref in refs])

    def _continue_former_members(self, now_s: float) -> list[LeverResult]:
        """Continue processes that have left the tree or are exempt now."""
        exempt, members = self._exempt.pids(), self._tree.members
        left = [ref for ref in self._stopped if ref.pid not in members or ref.pid in exempt]
        return self._continue(left, now_s) if left else []

    def _thaw(self, now_s: float) -> list[LeverResult]:
        self._paused, self._retry_at_s = False, 0.0
        self._aside.clear()
        return self._continue(list(self._stopped), now_s) if self._stopped else []

    def _continue(self, refs: list[ProcessRef], now_s: float) -> list[LeverResult]:
        """Continue processes, children before their parents."""
        started_s = time.monotonic()
        refs.sort(key=lambda ref: (ref.start_time_ticks, ref.pid), reverse=True)
        batch = send(self._proc, refs, signal.SIGCONT)
        self._forget([*batch.done, *batch.gone])
        error = ""
        if batch.refused:  # they are tried again
            ref, why = next(iter(batch.refused.items()))
            error = f"{len(batch.refused)} processes cannot be continued, e.g. {ref.pid}: {why}"
        if not batch.done and not error:
            return []
        value = f"SIGCONT to {len(batch.done)}"
        return [self._result(value, error, took_s=time.monotonic() - started_s)]

    def _forget(self, refs: Iterable[ProcessRef]) -> None:
        """Forget processes for which nothing is left to undo."""
        refs = list(refs)
        for ref in refs:
            self._stopped.pop(ref, None)
            self._confirmed.discard(ref)
        self._originals.release_all([_entry(ref) for ref in refs])

    def look(self, now_s: float) -> tuple[LeverResult, ...]:
        """Check some of the stopped processes: they may run again, not stop, or have ended."""
        continued: list[ProcessRef] = []
        late: list[ProcessRef] = []
        gone: list[ProcessRef] = []
        for ref in self._next_looked_at():
            try:
                seen = look_at(self._proc, ref.pid)
            except KernelFileError:
                continue  # the next look may be able to read it
            if seen is None or seen.ref != ref or seen.ended:
                gone.append(ref)
            elif seen.stopped:
                self._confirmed.add(ref)
            elif ref in self._confirmed:
                continued.append(ref)
            elif now_s - self._stopped[ref] > CONFIRM_S:
                late.append(ref)
                self._stopped[ref] = now_s  # not reported at every look
        self._forget([*gone, *continued])
        self._aside.update(continued)
        self.foreign_total += len(continued)
        results = []
        if continued:
            error = (
                f"another program continued {_some(continued)}; left alone until the next pause"
            )
            results.append(self._result("SIGSTOP", error))
        if late:
            error = f"{_some(late)} are not stopped after {CONFIRM_S:g} s"
            results.append(self._result("SIGSTOP", error, took_s=CONFIRM_S))
        return tuple(results)

    def _next_looked_at(self) -> list[ProcessRef]:
        if not self._turn:
            self._turn = list(self._stopped)
        refs, self._turn = self._turn[:LOOKED_AT], self._turn[LOOKED_AT:]
        return [ref for ref in refs if ref in self._stopped]

    def plan(self, granted: DesiredState) -> tuple[PlannedWrite, ...]:
        """One planned write for the processes that :meth:`apply` would stop or continue."""
        if self._wanted(granted):
            count, number, undo = len(self._running()), "SIGSTOP", "SIGCONT to the same"
        else:
            count, number, undo = len(self._stopped), "SIGCONT", ""
        if not count:
            return ()
        return (
            PlannedWrite(
                lever=self.name,
                target=f"{count} processes of {self._tree.name}",
                before=f"{len(self._stopped)} stopped",
                after=number,
                undo=undo,
            ),
        )

    def restore(self, now_s: float) -> tuple[LeverResult, ...]:
        """Continue every process that this lever stopped."""
        return tuple(self._thaw(now_s))

    def states(self, now_s: float) -> tuple[LeverState, ...]:
        """Processes left running, if any; the slot's state shows the pause itself."""
        if not self._aside:
            return ()
        value = f"{len(self._aside)} processes left running"
        return (LeverState(lever=self.name, value=value, foreign=True),)


def _entry(ref: ProcessRef) -> Stopped:
    return Stopped(ref.pid, ref.start_time_ticks)


def _some(refs: list[ProcessRef]) -> str:
    return f"{len(refs)} processes (e.g. {refs[0].pid})"


def _merge(total: Batch, part: Batch) -> None:
    total.done += part.done
    total.already += part.already
    total.gone += part.gone
    total.refused.update(part.refused)
