"""The lever that advises the kernel on a process's private pages by process_madvise(2).

``cold`` makes them the next to be reclaimed, ``pageout`` reclaims them now, ``willneed`` reads
them back from swap. A thread makes the calls, some megabytes at a time.

What is read back is charged to the group that it was swapped out of, whoever asks for it. A file
that is read in is charged to whoever asks, so mappings of files are left out of ``willneed``: the
kernel would read the file there, not the changed pages in swap.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.files import read_bytes
from stallward.actuator.kernel.memory.mappings import (
    ADVICE_NUMBERS,
    Advise,
    Mapping,
    mappings,
    process_madvise,
)
from stallward.actuator.kernel.privileges import CAP_SYS_NICE, may_have
from stallward.actuator.levers.base.lever import PlannedWrite
from stallward.actuator.levers.base.plugin import ProcessSource
from stallward.actuator.levers.base.worker import OneShotLever, Superseded
from stallward.actuator.record.lever_result import LeverResult, attempt
from stallward.agent.desired import MIB, DesiredState, PageAdvice

CALL_BYTES: Final = 32 * MIB
"""The most bytes that one call advises on."""
_CALL_RANGES: Final = 256
SKIPPED: Final = frozenset({errno.EINVAL, errno.ENOMEM, errno.EFAULT, errno.EBUSY, errno.EAGAIN})
"""Errors at which a range is skipped: it is locked, has huge pages, or was unmapped meanwhile."""

_MOST_RANGES: Final = 1 << 16
"""The most ranges of one process; their list takes some 8 MB."""
_KERNELS: Final = b"[v"
"""How the names of vdso, vvar and vsyscall begin."""


def pieces(found: Iterator[Mapping], most_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield (address, bytes) of mappings, in pieces of at most ``most_bytes``.

    A process may map terabytes that it never touches, so the pieces of one are limited.
    """
    left = _MOST_RANGES
    for mapping in found:
        last = min(mapping.end, mapping.start + left * most_bytes)
        for address in range(mapping.start, last, most_bytes):
            left -= 1
            yield address, min(most_bytes, mapping.end - address)


def private_ranges(maps: bytes, *, files: bool = True) -> Iterator[tuple[int, int]]:
    """Yield (address, bytes) of the private writable ranges of /proc/PID/maps, in pieces.

    A piece is at most what one call takes.

    Args:
        maps: The content of /proc/PID/maps.
        files: Whether mappings of files are among them.
    """
    own = (one for one in mappings(maps) if one.own and not one.name.startswith(_KERNELS))
    return pieces((one for one in own if files or not one.inode), CALL_BYTES)


def why_no_advice(proc: Path) -> str:
    """Say why the pages of other processes cannot be advised on here; empty if they can."""
    major, minor = (int(part) for part in os.uname().release.split(".")[:2])
    if (major, minor) < (5, 10):
        return "no process_madvise (Linux 5.10 or newer has it)"
    if not may_have(CAP_SYS_NICE, proc):
        return f"process_madvise needs {CAP_SYS_NICE}"
    return ""


class PageAdviceLever(OneShotLever[PageAdvice, PageAdvice | None]):
    """Gives an advice once whenever another one is wanted.

    Args:
        name: The lever's name, e.g. ``pages:hog0``.
        source: The processes whose pages are advised on.
        advice_of: Takes the advice from a desired state.
        proc: The /proc directory.
    """

    def __init__(
        self,
        name: str,
        source: ProcessSource,
        advice_of: Callable[[DesiredState], PageAdvice | None],
        proc: Path,
    ) -> None:
        self._source, self._proc = source, proc
        super().__init__(name, why_no_advice(proc), advice_of, cancel=None)

    def plan(self, granted: DesiredState) -> tuple[PlannedWrite, ...]:
        """One planned write if an advice would be given."""
        advice = self._new_target(granted)
        if advice is None:
            return ()
        target = f"process_madvise on {len(self._source.members())} processes"
        undo = "nothing to undo: pages come back when they are needed"
        return (PlannedWrite(lever=self.name, target=target, before="", after=advice, undo=undo),)

    def _work(
        self, advice: PageAdvice | None, superseded: Superseded
    ) -> tuple[LeverResult, ...] | None:
        if advice is None:
            return ()
        started_s, total, errors = time.monotonic(), 0, []
        for pid in self._source.members():
            if superseded():
                return None
            advised: list[int] = []
            result = attempt(
                self.name,
                advice,
                lambda: advised.append(self._one(pid, advice, superseded)),  # noqa: B023
            )
            total += sum(advised)
            if not result.ok:
                errors.append(result.error)
        value, error = f"{advice} {total} bytes", errors[0] if errors else ""
        return (self._result(value, error, took_s=time.monotonic() - started_s),)

    def _one(self, pid: int, advice: PageAdvice, superseded: Superseded) -> int:
        """Advise on one process; return the bytes advised on."""
        self._source.check()
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            return 0
        try:
            # The descriptor pins the process; only now are its membership and its ranges read.
            maps = read_bytes(self._proc / str(pid) / "maps")
            if not self._source.holds(pid) or maps is None:
                return 0
            ranges = list(private_ranges(maps, files=advice != "willneed"))
            number = ADVICE_NUMBERS[advice]
            return advise_ranges(process_madvise, pidfd, ranges, number, superseded)
        except ProcessLookupError:
            return 0
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            raise KernelFileError(
                f"process {pid}", f"process_madvise failed ({reason})", number=error.errno or 0
            ) from error
        finally:
            os.close(pidfd)


def advise_in_calls(
    advise: Advise, pidfd: int, ranges: Sequence[tuple[int, int]], number: int
) -> Iterator[int]:
    """Give an advice for ranges, many in each call, yielding what each call advised on, in bytes.

    A call ends at a range that the kernel refuses; the next one begins behind that.

    Args:
        advise: The system call.
        pidfd: The process.
        ranges: (address, bytes) of each range; one that the kernel refuses is left out.
        number: The advice, one of :data:`ADVICE_NUMBERS`.

    Raises:
        OSError: If the kernel refuses for another reason than what the range is.
    """
    at = 0
    while at < len(ranges):
        end, size = at, 0
        while end < len(ranges) and end - at < _CALL_RANGES and size < CALL_BYTES:
            size += ranges[end][1]
            end += 1
        try:
            done = advise(pidfd, list(ranges[at:end]), number)
        except OSError as error:
            if error.errno not in SKIPPED:
                raise
            done = 0
        advised = done
        while at < end and done >= ranges[at][1]:
            done -= ranges[at][1]
            at += 1
        if at < end:
            at += 1  # the range that the kernel stopped at
        yield advised


def advise_ranges(
    advise: Advise,
    pidfd: int,
    ranges: Sequence[tuple[int, int]],
    number: int,
    superseded: Superseded,
) -> int:
    """Make the calls of :func:`advise_in_calls` until ``superseded()``; return the bytes."""
    total, calls = 0, advise_in_calls(advise, pidfd, ranges, number)
    while not superseded() and (advised := next(calls, None)) is not None:
        total += advised
    return total
