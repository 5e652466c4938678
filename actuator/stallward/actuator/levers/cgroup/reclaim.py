"""Evicting a group's pages once: by memory.reclaim, or on v1 by a temporary limit.

v1 has memory.force_empty, too, but that evicts everything. The kernel refuses a limit below the
usage until enough is reclaimed, so the limit is written step by step and taken back at once after
each step: only in the microseconds between the two could the group hit it. Then it waits, where
it can be made to (see ``oom_wait``).
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stallward.actuator.errors import KernelFileError, KillsAgainError, LeverError
from stallward.actuator.journal.entries import FileValue
from stallward.actuator.kernel.files import ABSENT, read_text, write_text
from stallward.actuator.kernel.memory.limit_writes import (
    is_rounded,
    write_interruptibly,
    write_watched,
)
from stallward.actuator.levers.base.file_lever import ORIGINAL
from stallward.actuator.levers.base.lever import PlannedWrite
from stallward.actuator.levers.base.originals import Originals
from stallward.actuator.levers.base.worker import OneShotLever, Superseded
from stallward.actuator.record.lever_result import LeverResult, attempt
from stallward.agent.desired import MIB, DesiredState
from stallward.agent.errors import StallwardError

if TYPE_CHECKING:
    from stallward.actuator.levers.cgroup.oom_wait import OomWait

# ---------- Why the kernel does not take more memory from a group: what protects it, or keeps it from swap
# What is protected by memory.min is not reclaimed at all, and what is protected by memory.low only
# when nothing else is left. Anonymous pages can only go to swap, of which each group above may have
# its share limited (Documentation/admin-guide/cgroup-v2.rst).

_MORE_SWAP: Final = "Give the node more swap."
_MOST_GROUPS: Final = 64
"""How many groups below one are looked at."""


def why_unreclaimable(folder: Path) -> tuple[str, str]:
    """Say why no more can be reclaimed from a group, and what to do.

    Args:
        folder: The group, in the hierarchy of the memory controller.

    Returns:
        The cause, empty if none of its settings is one, and the next step.
    """
    causes, steps = [], []
    for name in ("memory.min", "memory.low"):
        for group in _group_and_children(folder):
            held = _number(group / name)
            if held:
                causes.append(f"{name} of {group} protects {held} bytes")
                steps.append(
                    f"Lower {name} there (in Kubernetes, MemoryQoS sets it to the requests)."
                )
                break
    for group in (folder, *folder.parents):
        limit = _number(group / "memory.swap.max")
        if limit is None and not (group / "memory.swap.max").exists():
            break
        used = _number(group / "memory.swap.current") or 0
        if limit is not None and used >= limit:
            causes.append(f"memory.swap.max of {group} is {limit}, and {used} bytes are used")
            steps.append(
                "Raise memory.swap.max there (systemd: MemorySwapMax=; Kubernetes: swapBehavior "
                "LimitedSwap)."
            )
            break
    if _number(folder / "memory.swappiness") == 0:
        causes.append(f"memory.swappiness of {folder} is 0")
        steps.append("Raise memory.swappiness there.")
    return "; ".join(causes), " ".join(steps) or _MORE_SWAP


def _group_and_children(folder: Path) -> Iterator[Path]:
    yield folder
    try:
        with os.scandir(folder) as entries:
            folders = (
                Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)
            )
            yield from islice(folders, _MOST_GROUPS)
    except OSError:
        return


def _number(path: Path) -> int | None:
    """The number in a file; ``None`` without a limit, or if it cannot be read."""
    try:
        text = read_text(path)
    except KernelFileError:
        return None
    return int(text) if text and text.isdigit() else None


STEP_BYTES: Final = 64 * MIB
"""The most that one write reclaims, in about 0.1 s."""
STUCK_TRIES: Final = 5
"""Writes in a row that may reclaim nothing before the lever gives up."""
LEAST_LEFT_BYTES: Final = 64 * 4096
"""A usage this close to the target is near enough: the kernel reclaims in batches."""
_NOT_ALL: Final = frozenset({errno.EAGAIN, errno.EBUSY, errno.EINTR})


def read_usage(path: Path) -> int:
    """Read the bytes that a group uses.

    Raises:
        LeverError: If they cannot be read.
    """
    text = read_text(path)
    if text is None or not text.isdigit():
        raise LeverError(f"{path}: the usage cannot be read ({text!r}).")
    return int(text)


def reclaim(path: Path, size_bytes: int) -> None:
    """Reclaim ``size_bytes`` by memory.reclaim; reclaiming less counts as success.

    Raises:
        KernelFileError: If the kernel does not support it.
    """
    try:
        write_interruptibly(path, str(size_bytes))
    except KernelFileError as error:
        if error.number not in _NOT_ALL:
            raise


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimSpec:
    """The description of a reclaim lever."""

    name: str
    """The lever's name, e.g. ``reclaim:hog0``."""
    usage: Path
    """The file with the bytes in use."""
    target_of: Callable[[DesiredState], int | None]
    """Takes the bytes to reclaim down to from a desired state."""
    file: Path | None = None
    """The file v2 memory.reclaim; ``None`` on v1."""
    limit: Path | None = None
    """The file v1 memory.limit_in_bytes; ``None`` on v2."""
    wait: OomWait | None = None
    """Has the group wait for memory under a temporary limit (v1)."""
    missing: str = ""
    """Why the lever cannot be used; empty if it can."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while the v1 limit is written."""
    check: Callable[[], None] = field(default=lambda: None)
    """Called before each step; raises to refuse it."""


@dataclass(frozen=True, slots=True)
class _Request:
    target_bytes: int | None
    swappiness: int | None

    def __str__(self) -> str:
        return str(self.target_bytes)


class ReclaimLever(OneShotLever[int, _Request]):
    """Evicts pages once for each new target.

    Args:
        spec: The description.
        originals: Keeps the journal.
    """

    def __init__(self, spec: ReclaimSpec, originals: Originals) -> None:
        self._spec = spec
        self._originals = originals
        self._takes_swappiness = True
        self._taken_from: FileValue | None = None
        """The entry that undoes a temporary limit, until that is taken back."""
        self._noted_here = False
        """Whether that entry is of this lever, and not of the lever of the limit."""
        self._step_bytes = 0
        """That limit."""
        super().__init__(spec.name, spec.missing, spec.target_of, cancel=_Request(None, None))

    @property
    def held(self) -> bool:
        """Whether a temporary limit may be in force or about to be."""
        return self._taken_from is not None or (self._spec.limit is not None and self._worker.busy)

    def _request(self, target: int, granted: DesiredState) -> _Request:
        return _Request(target, granted.tuning.swappiness)

    def plan(self, granted: DesiredState) -> tuple[PlannedWrite, ...]:
        """One planned write if pages would be evicted."""
        target = self._new_target(granted)
        if target is None:
            return ()
        plan = PlannedWrite(
            lever=self.name,
            target=str(self._spec.file or self._spec.limit),
            before=f"{read_text(self._spec.usage)} bytes in use",
            after=f"reclaim down to {target} bytes",
            undo="nothing to undo: the group reads its pages back when it needs them",
        )
        return (plan,)

    def _work(self, request: _Request, superseded: Superseded) -> tuple[LeverResult, ...] | None:
        if request.target_bytes is None:
            if self._taken_from is None:
                return ()
            with self._spec.lock:
                return (attempt(self.name, ORIGINAL, self._take_back),)
        reached: list[int | None] = []
        run = partial(self._evict, request, superseded)
        result = attempt(self.name, str(request.target_bytes), lambda: reached.append(run()))
        if result.ok and reached == [None]:
            return None
        return (replace(result, value=str(reached[0])) if reached else result,)

    def _evict(self, request: _Request, superseded: Superseded) -> int | None:
        """Evict down to the target; return the usage, or ``None`` if a newer request came in."""
        target, stuck = request.target_bytes or 0, 0
        while (usage := read_usage(self._spec.usage)) > target + LEAST_LEFT_BYTES:
            if superseded():
                return None
            self._spec.check()
            self._step(max(target, usage - STEP_BYTES), usage, request.swappiness)
            stuck = 0 if read_usage(self._spec.usage) < usage else stuck + 1
            if stuck >= STUCK_TRIES:
                why, step = why_unreclaimable(self._spec.usage.parent)
                because = f": {why}" if why else ""
                raise LeverError(
                    f"{usage} bytes in use cannot be reclaimed to {target}{because}.",
                    next_step=step,
                )
        return usage

    def _step(self, step: int, usage: int, swappiness: int | None) -> None:
        spec = self._spec
        if spec.file is not None:
            self._reclaim(spec.file, usage - step, swappiness)
        elif spec.limit is not None:
            with spec.lock:
                self._limit_briefly(spec.limit, step)

    def _reclaim(self, path: Path, size: int, swappiness: int | None) -> None:
        if swappiness is not None and self._takes_swappiness:
            try:
                write_interruptibly(path, f"{size} swappiness={min(swappiness, 200)}")
            except KernelFileError as error:
                if error.number in _NOT_ALL:
                    return
                if error.number != errno.EINVAL:
                    raise
                self._takes_swappiness = False  # this kernel takes only the size
            else:
                return
        reclaim(path, size)

    def _limit_briefly(self, path: Path, step: int) -> None:
        self._take_back()
        now = read_text(path)
        if now is None:
            raise LeverError(f"{path} is not there.")
        if now.isdigit() and int(now) <= step:
            return
        self._step_bytes, values = step, (now, str(step))
        entry = FileValue(path, now)
        self._noted_here = not self._originals.moved(path)
        if self._noted_here:
            self._originals.ensure(entry, values)
        else:  # the original is noted already
            self._originals.touch_again(path, values)
        self._taken_from = entry
        self._begin_wait()
        try:
            theirs = write_watched(path, str(step), partial(is_rounded, asked_bytes=step))
        except KernelFileError as error:
            if error.number in _NOT_ALL:  # nothing was set
                self._settle()
                return
            self._take_back()  # the look at what was written may be what failed
            raise
        else:
            # What another program set meanwhile stays, or comes back in place of the old limit.
            if is_rounded(read_text(path) or str(step), step):
                write_text(path, theirs or now)
            self._settle()
        finally:
            if self._taken_from is None and self._spec.wait is not None:
                self._spec.wait.end(self.name)

    def _begin_wait(self) -> None:
        """Have the group wait under the limit; without that it could kill, for microseconds.

        Raises:
            KillsAgainError: If another program lets the kernel kill in the group.
        """
        if self._spec.wait is None:
            return
        try:
            self._spec.wait.begin(self.name)
        except KillsAgainError:
            self._settle()
            raise
        except (StallwardError, OSError):
            return

    def _take_back(self) -> None:
        """Take back a temporary limit that could not be taken back before."""
        entry = self._taken_from
        if entry is None:
            return
        try:
            # Another value is another program's.
            if is_rounded(read_text(entry.path) or "", self._step_bytes):
                write_text(entry.path, entry.value)
        except KernelFileError as error:
            if error.number not in ABSENT:
                raise
        self._settle()
        if self._spec.wait is not None:
            self._spec.wait.end(self.name)

    def _settle(self) -> None:
        if self._taken_from is not None and self._noted_here:
            self._originals.settle(self._taken_from)
        self._taken_from = None
