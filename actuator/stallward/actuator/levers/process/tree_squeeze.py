"""Squeezing a process tree: paging it out by process_madvise(2), down to a limit.

No kernel limit holds a tree. While it is paused its private pages are paged out until it holds
no more than the limit; while it runs, what it holds above that is only marked cold (the kernel
takes those pages first), once a second: paging out what is in use would come back as faults.
So a limit on a tree that runs is a wish, and is not reported as being in force.

Shared pages, also those that forked processes still share, and locked ones stay. A thread of
its own does it, step by step.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError, LeverError
from stallward.actuator.kernel.files import read_bytes
from stallward.actuator.kernel.process_table import read_seen
from stallward.actuator.kernel.process_trees import ProcessTree
from stallward.actuator.levers.base.exempt_processes import ExemptProcesses
from stallward.actuator.levers.base.lever import PlannedWrite, QuietLever
from stallward.actuator.levers.base.worker import Superseded, Worker
from stallward.actuator.levers.process.page_advice import (
    Advise,
    private_ranges,
    process_madvise,
    why_no_advice,
)
from stallward.actuator.record.lever_result import LeverResult
from stallward.agent.desired import MIB, DesiredState

AGAIN_S: Final = 1.0
"""How often a tree that is limited is looked at."""
NEAR_BYTES: Final = MIB
"""So close to the limit is near enough."""
_RANGES_PER_CALL: Final = 64
_COLD: Final = 20
_PAGEOUT: Final = 21
"""MADV_COLD, MADV_PAGEOUT (asm-generic/mman-common.h)."""
_SKIPPED: Final = frozenset({errno.EINVAL, errno.ENOMEM, errno.EFAULT, errno.EBUSY, errno.EAGAIN})
"""Of one call: a range is locked, of huge pages of its own, or unmapped meanwhile."""
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class _Wish:
    limit_bytes: int | None
    paused: bool


class TreeSqueeze(QuietLever):
    """The memory limit of one process tree.

    Args:
        tree: Its processes.
        proc: Where /proc is.
        wish_of: What a state wants: the limit (``None`` for none) and whether the tree is paused.
        spared: Processes whose pages are left alone.
        name: What the lever is called; by default ``limit:`` and the tree's name.
        once: Whether to squeeze once per wish, and not to keep at it.
        advise: The system call.
    """

    held = False
    """Nothing is to be undone: pages come back when they are needed."""

    def __init__(
        self,
        tree: ProcessTree,
        proc: Path,
        wish_of: Callable[[DesiredState], tuple[int | None, bool]],
        *,
        spared: ExemptProcesses | None = None,
        name: str = "",
        once: bool = False,
        advise: Advise = process_madvise,
    ) -> None:
        self.name = name or f"limit:{tree.name}"
        self._tree = tree
        self._proc = proc
        self._wish_of = wish_of
        self._spared = spared or ExemptProcesses()
        self._advise = advise
        self._once = once
        self._wish = _Wish(None, paused=False)
        self._failed = False
        self._again_at_s = 0.0
        self._why = why_no_advice(proc)
        self._worker: Worker[_Wish] = Worker(self.name, self._work)

    @property
    def missing(self) -> tuple[str, ...]:
        """Why a tree cannot be squeezed here; that it is not held to its limit is no lack."""
        return (f"{self.name}: {self._why}",) if self._why else ()

    @property
    def limit_bytes(self) -> int | None:
        """The limit that the tree is being brought to, while it is paused."""
        holds = self._wish.paused and not self._failed and not self._why
        return self._wish.limit_bytes if holds else None

    @property
    def busy(self) -> bool:
        """Whether pages are being taken now."""
        return self._worker.busy

    @property
    def idle(self) -> bool:
        """Whether no limit is wished for, or all that was wished for is done."""
        return (self._once or self._wish.limit_bytes is None) and not self._worker.busy

    def apply(self, granted: DesiredState, now_s: float) -> tuple[LeverResult, ...]:
        """Start squeezing, go on with it once a second, or stop."""
        wish = _Wish(*self._wish_of(granted))
        changed, self._wish = wish != self._wish, wish
        if self._why:
            if not changed or wish.limit_bytes is None:
                return ()
            return (self._result(str(wish.limit_bytes), self._why, 0.0),)
        wanted = wish.limit_bytes is not None
        again = wanted and not self._once and now_s >= self._again_at_s
        if changed or (again and not self._worker.busy):
            self._failed = self._failed and not changed
            self._again_at_s = now_s + AGAIN_S
            if wanted or self._worker.busy:
                self._worker.ask(wish)
        return ()

    def poll(self, now_s: float) -> tuple[LeverResult, ...]:
        """What has been paged out."""
        return self._worker.poll(now_s)

    def plan(self, granted: DesiredState) -> tuple[PlannedWrite, ...]:
        """One line if pages would be taken."""
        wish = _Wish(*self._wish_of(granted))
        if wish.limit_bytes is None or wish == self._wish or self._why:
            return ()
        plan = PlannedWrite(
            lever=self.name,
            target=f"process_madvise on {len(self._tree.pids())} processes",
            before=f"{sum(self._held().values())} bytes resident",
            after=f"{'paged out' if wish.paused else 'cold'} down to {wish.limit_bytes} bytes",
            undo="nothing to undo: pages come back when they are needed",
        )
        return (plan,)

    def restore(self, now_s: float) -> tuple[LeverResult, ...]:
        """Stop squeezing."""
        self._wish = _Wish(None, paused=False)
        if self._worker.busy:
            self._worker.ask(self._wish)
        return ()

    def finish(self, deadline_s: float) -> tuple[LeverResult, ...]:
        """Wait for the thread."""
        if self._worker.wait(deadline_s):
            self._worker.stop()
        return self._worker.poll(time.monotonic())

    def _result(self, value: str, error: str, took_s: float) -> LeverResult:
        return LeverResult(
            lever=self.name, value=value, ok=not error, error=error, took_ms=took_s * 1e3
        )

    def _work(self, wish: _Wish, superseded: Superseded) -> tuple[LeverResult, ...] | None:
        if wish.limit_bytes is None:
            return ()
        started_s, before = time.monotonic(), sum(self._held().values())
        if before <= wish.limit_bytes + NEAR_BYTES:
            return ()
        error = ""
        try:
            if wish.paused:
                self._take(wish.limit_bytes, _PAGEOUT, superseded)
            else:
                self._take(wish.limit_bytes, _COLD, superseded)
        except (KernelFileError, LeverError, OSError) as failure:
            error = str(failure)
        if superseded():
            return None
        after = sum(self._held().values())
        if not error and wish.paused and after > wish.limit_bytes + NEAR_BYTES:
            error = f"{after} bytes stay resident: they are shared or locked, or no swap is free"
        if wish.paused:
            told, self._failed = self._failed, bool(error)
            if told and error and after == before:
                return ()  # said once
        value = f"{before - after} of {before} bytes paged out" if wish.paused else "cold"
        return (self._result(value, error, time.monotonic() - started_s),)

    def _held(self) -> dict[int, int]:
        """Resident bytes of every member."""
        found = {}
        for pid in self._tree.pids():
            with suppress(KernelFileError):
                found[pid] = _resident(self._proc, pid)
        return found

    def _take(self, limit_bytes: int, advice: int, superseded: Superseded) -> None:
        """Advise on the largest processes until the rest is within the limit."""
        held = self._held()
        left = sum(held.values())
        spared = self._spared.pids()
        for pid in sorted(held, key=lambda pid: -held[pid]):
            if left <= limit_bytes or superseded():
                return
            if pid in spared:
                continue
            for _ in self._advise_on(pid, advice):
                now = _resident(self._proc, pid) if advice == _PAGEOUT else 0
                left -= held[pid] - now
                held[pid] = now
                if left <= limit_bytes or superseded():
                    break

    def _advise_on(self, pid: int, advice: int) -> Iterator[None]:
        """Advise on one process, yielding between two calls."""
        member = self._tree.members.get(pid)
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            return
        try:
            # The descriptor pins the process; only now is it looked at whether it is the member.
            seen = read_seen(self._proc, pid)
            maps = read_bytes(self._proc / str(pid) / "maps")
            if member is None or seen is None or seen.ref != member.ref or maps is None:
                return
            ranges = list(private_ranges(maps))
            for at in range(0, len(ranges), _RANGES_PER_CALL):
                try:
                    self._advise(pidfd, ranges[at : at + _RANGES_PER_CALL], advice)
                except ProcessLookupError:
                    return
                except OSError as error:
                    if error.errno not in _SKIPPED:
                        raise
                yield
        finally:
            os.close(pidfd)


def _resident(proc: Path, pid: int) -> int:
    """Resident bytes of a process; 0 if it is gone."""
    fields = (read_bytes(proc / str(pid) / "statm") or b"").split()
    return int(fields[1]) * _PAGE_BYTES if len(fields) > 1 and fields[1].isdigit() else 0
