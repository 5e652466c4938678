"""Evicting a group's pages once: memory.reclaim, or on v1 a limit that holds for a moment.

v1 has memory.force_empty too, but that takes everything and cannot be told where to stop. A
limit below the usage is refused until so much is reclaimed, so it is written step by step and
taken back at once after each: between the two the group could hit it, for microseconds.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError, LeverError
from stallward.actuator.journal_entries import FileValue
from stallward.actuator.kernelfile import read_text, write_text
from stallward.actuator.levers.lever import PlannedWrite
from stallward.actuator.levers.originals import Originals
from stallward.actuator.levers.quiet import QuietLever
from stallward.actuator.levers.result import LeverResult, attempt
from stallward.actuator.levers.worker import Superseded, Worker
from stallward.agent.desired import MIB, DesiredState

STEP_BYTES: Final = 64 * MIB
"""At most this much is reclaimed by one write: about 0.1 s."""
STUCK_TRIES: Final = 5
"""Writes in a row that may reclaim nothing before it is given up."""
_LEAST_LEFT_BYTES: Final = 64 * 4096
"""So close to the target is near enough: the kernel reclaims in batches."""
_NOT_ALL: Final = frozenset({errno.EAGAIN, errno.EBUSY, errno.EINTR})


def read_usage(path: Path) -> int:
    """The bytes that a group uses.

    Raises:
        LeverError: If they cannot be read.
    """
    text = read_text(path)
    if text is None or not text.isdigit():
        raise LeverError(f"{path}: no usage to be read ({text!r}).")
    return int(text)


def reclaim(path: Path, size_bytes: int) -> None:
    """Have the kernel reclaim ``size_bytes`` by memory.reclaim; less is no failure.

    Raises:
        KernelFileError: If it does not know how.
    """
    try:
        write_text(path, str(size_bytes))
    except KernelFileError as error:
        if error.number not in _NOT_ALL:
            raise


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimSpec:
    """What makes a reclaim lever.

    Attributes:
        name: E.g. ``reclaim:hog0``.
        usage: The file with the bytes in use.
        file: v2 memory.reclaim; ``None`` on v1.
        limit: v1 memory.limit_in_bytes; ``None`` on v2.
        target_of: Down to how many bytes a state wants the group.
        missing: Why it cannot be used; empty if it can.
        lock: Held while the v1 limit is written.
        check: Called before each step; raises to refuse it.
    """

    name: str
    usage: Path
    target_of: Callable[[DesiredState], int | None]
    file: Path | None = None
    limit: Path | None = None
    missing: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)
    check: Callable[[], None] = field(default=lambda: None)


@dataclass(frozen=True, slots=True)
class _Wish:
    target_bytes: int | None
    swappiness: int | None

    def __str__(self) -> str:
        return str(self.target_bytes)


class ReclaimLever(QuietLever):
    """Evicts pages whenever another target is wished; nothing is held afterwards.

    Args:
        spec: The description.
        originals: Keeps the journal.
    """

    held = False

    def __init__(self, spec: ReclaimSpec, originals: Originals) -> None:
        self.name = spec.name
        self._spec = spec
        self._originals = originals
        self._wanted: int | None = None
        self._takes_swappiness = True
        self._worker: Worker[_Wish] = Worker(spec.name, self._work)

    @property
    def missing(self) -> tuple[str, ...]:
        """Why it cannot be used; empty if it can."""
        return (f"{self.name}: {self._spec.missing}",) if self._spec.missing else ()

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._worker.busy

    def apply(self, granted: DesiredState, now_s: float) -> tuple[LeverResult, ...]:
        """Start evicting if another target is wished; stop if none is."""
        target = self._spec.target_of(granted)
        if target == self._wanted:
            return ()
        self._wanted = target
        if self._spec.missing:
            if target is None:
                return ()
            error = self._spec.missing
            return (LeverResult(lever=self.name, value=str(target), ok=False, error=error),)
        if target is not None or self._worker.busy:
            self._worker.ask(_Wish(target, granted.tuning.swappiness))
        return ()

    def poll(self, now_s: float) -> tuple[LeverResult, ...]:
        """What has been evicted."""
        return self._worker.poll(now_s)

    def plan(self, granted: DesiredState) -> tuple[PlannedWrite, ...]:
        """One line if pages would be evicted."""
        target = self._spec.target_of(granted)
        if target is None or target == self._wanted or self._spec.missing:
            return ()
        plan = PlannedWrite(
            lever=self.name,
            target=str(self._spec.file or self._spec.limit),
            before=f"{read_text(self._spec.usage)} bytes in use",
            after=f"reclaim down to {target} bytes",
            undo="nothing to undo: the group reads its pages back when it needs them",
        )
        return (plan,)

    def restore(self, now_s: float) -> tuple[LeverResult, ...]:
        """Stop evicting."""
        self._wanted = None
        if self._worker.busy:
            self._worker.ask(_Wish(None, None))
        return ()

    def finish(self, deadline_s: float) -> tuple[LeverResult, ...]:
        """Wait for the thread."""
        if self._worker.wait(deadline_s):
            self._worker.stop()
        return self._worker.poll(time.monotonic())

    def _work(self, wish: _Wish, superseded: Superseded) -> tuple[LeverResult, ...] | None:
        if wish.target_bytes is None:
            return ()
        reached: list[int | None] = []
        run = partial(self._evict, wish, superseded)
        result = attempt(self.name, str(wish.target_bytes), lambda: reached.append(run()))
        if result.ok and reached == [None]:
            return None
        value = str(reached[0]) if reached else result.value
        return (
            LeverResult(
                lever=self.name,
                value=value,
                ok=result.ok,
                error=result.error,
                took_ms=result.took_ms,
            ),
        )

    def _evict(self, wish: _Wish, superseded: Superseded) -> int | None:
        """Evict down to the target; the usage then, or ``None`` if a newer wish came in."""
        target, stuck = wish.target_bytes or 0, 0
        while (usage := read_usage(self._spec.usage)) > target + _LEAST_LEFT_BYTES:
            if superseded():
                return None
            self._spec.check()
            self._step(max(target, usage - STEP_BYTES), usage, wish.swappiness)
            stuck = 0 if read_usage(self._spec.usage) < usage else stuck + 1
            if stuck >= STUCK_TRIES:
                raise LeverError(
                    f"{usage} bytes in use cannot be reclaimed to {target}.",
                    next_step="Give the node more swap.",
                )
        return usage

    def _step(self, step: int, usage: int, swappiness: int | None) -> None:
        spec = self._spec
        if spec.file is not None:
            self._reclaim(spec.file, usage - step, swappiness)
        elif spec.limit is not None:
            with spec.lock:
                self._limit_for_a_moment(spec.limit, step)

    def _reclaim(self, path: Path, size: int, swappiness: int | None) -> None:
        if swappiness is not None and self._takes_swappiness:
            try:
                write_text(path, f"{size} swappiness={min(swappiness, 200)}")
            except KernelFileError as error:
                if error.number in _NOT_ALL:
                    return
                if error.number != errno.EINVAL:
                    raise
                self._takes_swappiness = False  # a kernel that takes only the size
            else:
                return
        reclaim(path, size)

    def _limit_for_a_moment(self, path: Path, step: int) -> None:
        now = read_text(path)
        if now is None:
            raise LeverError(f"{path} is not there.")
        if now.isdigit() and int(now) <= step:
            return
        self._originals.ensure(FileValue(path, now))
        try:
            write_text(path, str(step))
        except KernelFileError as error:
            if error.number not in _NOT_ALL:
                raise
        else:
            write_text(path, now)
