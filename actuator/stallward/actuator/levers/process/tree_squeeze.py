"""Squeezing a process tree: paging it out by process_madvise(2), down to a limit.

The kernel has no memory limit for a process tree. While the tree is paused, its private pages are
paged out until no more than the limit is resident. While it runs, the pages above the limit are
only marked cold once a second (the kernel reclaims those first): pages in use that are paged out
would come back as faults. So the limit of a running tree is not enforced, and not reported as
being in force.

Shared pages, also those that forked processes still share, and locked ones stay. A thread does
the work, step by step.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError, LeverError
from stallward.actuator.kernel.files import read_bytes
from stallward.actuator.kernel.memory.mappings import ADVICE_NUMBERS, Advise, process_madvise
from stallward.actuator.kernel.process_table import read_seen
from stallward.actuator.kernel.process_trees import ProcessTree
from stallward.actuator.levers.base.lever import ExemptProcesses, PlannedWrite
from stallward.actuator.levers.base.worker import Superseded, Worker, WorkerLever
from stallward.actuator.levers.process.page_advice import (
    advise_in_calls,
    private_ranges,
    why_no_advice,
)
from stallward.actuator.record.lever_result import LeverResult
from stallward.agent.desired import MIB, DesiredState

AGAIN_S: Final = 1.0
"""How often a tree with a limit is squeezed again."""
NEAR_BYTES: Final = MIB
"""A tree that exceeds its limit by no more than this is left alone."""
_COLD: Final = ADVICE_NUMBERS["cold"]
_PAGEOUT: Final = ADVICE_NUMBERS["pageout"]
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class _Request:
    limit_bytes: int | None
    paused: bool


class TreeSqueeze(WorkerLever["_Request"]):
    """The memory limit of one process tree.

    Args:
        tree: The slot's processes.
        proc: The /proc directory.
        request_of: Takes from a state the limit (``None`` for none) and whether the tree is
            paused.
        exempt: Processes whose pages are left alone.
        name: The lever's name; by default ``limit:`` and the tree's name.
        once: Whether to squeeze once per request instead of again and again.
        advise: The system call.
    """

    held = False
    """False: there is nothing to undo, since pages come back when they are needed."""

    def __init__(
        self,
        tree: ProcessTree,
        proc: Path,
        request_of: Callable[[DesiredState], tuple[int | None, bool]],
        *,
        exempt: ExemptProcesses | None = None,
        name: str = "",
        once: bool = False,
        advise: Advise = process_madvise,
    ) -> None:
        self.name = name or f"limit:{tree.name}"
        self._tree = tree
        self._proc = proc
        self._request_of = request_of
        self._exempt = exempt or ExemptProcesses()
        self._advise = advise
        self._once = once
        self._request = _Request(None, paused=False)
        self._failed = False
        self._again_at_s = 0.0
        self.why_missing = why_no_advice(proc)
        self._worker: Worker[_Request] = Worker(self.name, self._work)

    hard = False
    """No limit is set: nothing fails."""

    def wait(self, deadline_s: float) -> bool:
        """Wait for what is under way; whether it has ended."""
        return self._worker.wait(deadline_s)

    @property
    def limit_bytes(self) -> int | None:
        """The limit to which the tree is squeezed while it is paused; ``None`` while it runs."""
        holds = self._request.paused and not self._failed and not self.why_missing
        return self._request.limit_bytes if holds else None

    @property
    def busy(self) -> bool:
        """Whether pages are being paged out or marked now."""
        return self._worker.busy

    @property
    def idle(self) -> bool:
        """Whether no limit is wanted, or a one-shot squeeze is done."""
        return (self._once or self._request.limit_bytes is None) and not self._worker.busy

    def apply(self, granted: DesiredState, now_s: float) -> tuple[LeverResult, ...]:
        """Start squeezing, repeat it once a second, or stop."""
        request = _Request(*self._request_of(granted))
        changed, self._request = request != self._request, request
        if self.why_missing:
            if not changed or request.limit_bytes is None:
                return ()
            return (self._result(str(request.limit_bytes), self.why_missing),)
        wanted = request.limit_bytes is not None
        again = wanted and not self._once and now_s >= self._again_at_s
        if changed or (again and not self._worker.busy):
            self._failed = self._failed and not changed
            self._again_at_s = now_s + AGAIN_S
            if wanted or self._worker.busy:
                self._worker.ask(request)
        return ()

    def plan(self, granted: DesiredState) -> tuple[PlannedWrite, ...]:
        """One planned write if pages would be paged out or marked."""
        request = _Request(*self._request_of(granted))
        if request.limit_bytes is None or request == self._request or self.why_missing:
            return ()
        way = "paged out" if request.paused else "cold"
        plan = PlannedWrite(
            lever=self.name,
            target=f"process_madvise on {len(self._tree.pids())} processes",
            before=f"{sum(self._held().values())} bytes resident",
            after=f"{way} down to {request.limit_bytes} bytes",
            undo="nothing to undo: pages come back when they are needed",
        )
        return (plan,)

    def restore(self, now_s: float) -> tuple[LeverResult, ...]:
        """Stop squeezing."""
        self._request = _Request(None, paused=False)
        if self._worker.busy:
            self._worker.ask(self._request)
        return ()

    def _work(self, request: _Request, superseded: Superseded) -> tuple[LeverResult, ...] | None:
        if request.limit_bytes is None:
            return ()
        started_s, before = time.monotonic(), sum(self._held().values())
        if before <= request.limit_bytes + NEAR_BYTES:
            return ()
        error = ""
        try:
            self._take(request.limit_bytes, _PAGEOUT if request.paused else _COLD, superseded)
        except (KernelFileError, LeverError, OSError) as failure:
            error = str(failure)
        if superseded():
            return None
        after = sum(self._held().values())
        if not error and request.paused and after > request.limit_bytes + NEAR_BYTES:
            error = f"{after} bytes stay resident: they are shared or locked, or no swap is free"
        if request.paused:
            reported, self._failed = self._failed, bool(error)
            if reported and error and after == before:
                return ()  # reported once
        value = f"{before - after} of {before} bytes paged out" if request.paused else "cold"
        return (self._result(value, error, took_s=time.monotonic() - started_s),)

    def _held(self) -> dict[int, int]:
        """The resident bytes of every member."""
        resident = {}
        for pid in self._tree.pids():
            with suppress(KernelFileError):
                resident[pid] = _resident(self._proc, pid)
        return resident

    def _take(self, limit_bytes: int, advice: int, superseded: Superseded) -> None:
        """Advise on the largest processes until the rest is within the limit."""
        held = self._held()
        left = sum(held.values())
        exempt = self._exempt.pids()
        for pid in sorted(held, key=lambda pid: -held[pid]):
            if left <= limit_bytes or superseded():
                return
            if pid in exempt:
                continue
            for advised in self._advise_on(pid, advice):
                if advised and advice == _PAGEOUT:
                    now = _resident(self._proc, pid)
                    left -= held[pid] - now
                    held[pid] = now
                if left <= limit_bytes or superseded():
                    break
            if advice == _COLD:
                left -= held[pid]  # how many of its pages a call marked is not known

    def _advise_on(self, pid: int, advice: int) -> Iterator[int]:
        """Advise on one process, yielding the bytes of each call."""
        member = self._tree.members.get(pid)
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            return
        try:
            # The descriptor pins the process. Only now can be checked that it is the member.
            seen = read_seen(self._proc, pid)
            maps = read_bytes(self._proc / str(pid) / "maps")
            if member is None or seen is None or seen.ref != member.ref or maps is None:
                return
            yield from advise_in_calls(self._advise, pidfd, list(private_ranges(maps)), advice)
        except ProcessLookupError:
            return
        finally:
            os.close(pidfd)


def _resident(proc: Path, pid: int) -> int:
    """The resident bytes of a process; 0 if it has ended."""
    fields = (read_bytes(proc / str(pid) / "statm") or b"").split()
    return int(fields[1]) * _PAGE_BYTES if len(fields) > 1 and fields[1].isdigit() else 0
