"""The pages of one process at one time, by mapping."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping as Map
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np

from stallward.actuator.errors import KernelFileError, ProcessEndedError, ProcessError
from stallward.actuator.kernel.files import ABSENT, failure
from stallward.actuator.kernel.memory.mappings import Mapping, mappings
from stallward.actuator.kernel.process_identity import stat_fields
from stallward.actuator.kernel.refusals import Place, next_step
from stallward.actuator.sensors.page_tables.page_runs import (
    FILE,
    PAGE_BYTES,
    PAGE_SHIFT,
    PRESENT,
    SWAPPED,
    PageRuns,
)
from stallward.actuator.sensors.page_tables.pagemap import MOST_READ_BYTES, read, scan
from stallward.actuator.sensors.page_tables.smaps import REFERENCED, RSS, SWAP, parse_smaps

Method = Literal["scan", "read"]
"""How page tables are read: by PAGEMAP_SCAN, or by the file with an entry for each page."""

_KERNEL_HALF: Final = 1 << 63


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingPages:
    """The pages of one mapping."""

    mapping: Mapping
    present: int
    """Pages in memory that the process can reach without a fault."""
    file: int
    """Those of them that belong to a file or to shared memory."""
    swapped: int
    referenced: int | None = None
    """Pages that were touched since the referenced bits were cleared; ``None`` before that."""

    @property
    def reserved(self) -> int:
        """Pages of address space without an entry in the page tables."""
        return max((self.mapping.length >> PAGE_SHIFT) - self.present - self.swapped, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessReading:
    """The pages of a process at one time."""

    time_s: float
    """CLOCK_MONOTONIC when the reading began."""
    took_s: float
    """How long it took."""
    mappings: tuple[MappingPages, ...]
    """By address."""
    cleared_s: float | None = None
    """CLOCK_MONOTONIC when the referenced bits were cleared."""


class ProcessPages:
    """Reads one process again and again, and never another one that has its pid.

    Every reading opens the files anew: an open one would belong to the memory that the process had
    before it ran another program.

    Args:
        proc: The /proc directory.
        pid: The process.

    Raises:
        ProcessEndedError: If there is no such process.
        ProcessError: If this user may not look into it.
    """

    def __init__(self, proc: Path, pid: int) -> None:
        self.pid = pid
        self._folder = proc / str(pid)
        self._start_ticks = self._ticks()
        self._cleared_s: float | None = None
        self.method: Method = "scan"
        """How page tables are read; known after the first reading."""

    def read(self) -> ProcessReading:
        """Read the state of all pages.

        Raises:
            ProcessEndedError: If the process has ended.
            ProcessError: If this user may not look into it.
        """
        begin_s = time.monotonic()
        found = [one for one in mappings(self._content("maps")) if one.end <= _KERNEL_HALF]
        if not found:
            self._refuse_empty()
        runs = self._runs(found)
        wide = [one for one in found if one.length > MOST_READ_BYTES and self.method == "read"]
        smaps = self._content("smaps") if wide or self._cleared_s is not None else b""
        counted = _counts(found, runs)
        for one in wide:
            counted[one.start] = self._wide(one, smaps)
        referenced = self._referenced(smaps)
        if self._ticks() != self._start_ticks:
            raise self._ended()
        return ProcessReading(
            time_s=begin_s,
            took_s=time.monotonic() - begin_s,
            mappings=tuple(
                MappingPages(
                    mapping=one,
                    present=counted[one.start][0],
                    file=counted[one.start][1],
                    swapped=counted[one.start][2],
                    referenced=None if referenced is None else referenced.get(one.start, 0),
                )
                for one in found
            ),
            cleared_s=self._cleared_s,
        )

    def clear_referenced(self) -> None:
        """Clear the referenced bits of all pages; from now on, readings say what was touched.

        The kernel takes the pages for less used than they are then, should it need memory.

        Raises:
            ProcessEndedError: If the process has ended.
            ProcessError: If this user may not do so.
        """
        path = self._folder / "clear_refs"
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(fd, b"1")
            finally:
                os.close(fd)
        except OSError as error:
            raise self._failed(path, error, "written") from error
        self._cleared_s = time.monotonic()

    def _runs(self, found: Sequence[Mapping]) -> PageRuns:
        path = self._folder / "pagemap"
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                runs = scan(fd, found[0].start, found[-1].end) if self.method == "scan" else None
                if runs is not None:
                    return runs
                self.method = "read"
                return read(fd, found)
            finally:
                os.close(fd)
        except OSError as error:
            raise self._failed(path, error, "read") from error

    def _wide(self, mapping: Mapping, smaps: bytes) -> tuple[int, int, int]:
        """The pages of a mapping that is too large to be read page by page."""
        path = self._folder / "smaps"
        present = parse_smaps(smaps, RSS, path).get(mapping.start, 0) >> PAGE_SHIFT
        swapped = parse_smaps(smaps, SWAP, path).get(mapping.start, 0) >> PAGE_SHIFT
        return present, 0 if mapping.file is None else present, swapped

    def _referenced(self, smaps: bytes) -> Map[int, int] | None:
        if self._cleared_s is None:
            return None
        sizes = parse_smaps(smaps, REFERENCED, self._folder / "smaps")
        return {start: size // PAGE_BYTES for start, size in sizes.items()}

    def _content(self, name: str) -> bytes:
        path = self._folder / name
        try:
            return path.read_bytes()
        except OSError as error:
            raise self._failed(path, error, "read") from error

    def _ticks(self) -> int:
        path = self._folder / "stat"
        content = self._content("stat")
        try:
            return int(stat_fields(content, path)[19])
        except KernelFileError as error:
            raise ProcessError(f"Process {self.pid}: {error.cause}.") from error

    def _refuse_empty(self) -> None:
        state = stat_fields(self._content("stat"), self._folder / "stat")[0]
        if state in {b"Z", b"X", b"x"}:
            raise self._ended()
        raise ProcessError(
            f"Process {self.pid} has no memory of its own: it is a thread of the kernel.",
            next_step="Name another process.",
        )

    def _ended(self) -> ProcessEndedError:
        return ProcessEndedError(f"Process {self.pid} has ended.")

    def _failed(self, path: Path, error: OSError, what: str) -> ProcessError:
        if error.errno in ABSENT and not (self._folder / "stat").exists():
            return ProcessEndedError(
                f"There is no process {self.pid}, or it has ended.",
                next_step="`ps` lists those that run.",
            )
        if error.errno in ABSENT:
            return self._ended()  # it ends right now
        if isinstance(error, PermissionError):
            return ProcessError(
                f"{path.name} of process {self.pid} cannot be {what}: {error.strerror}.",
                next_step=next_step(error.errno or 0, path, place=Place.PROCESS),
            )
        told = failure(path, error, what)
        return ProcessError(f"Process {self.pid}: {told.cause}.")


def _counts(found: Sequence[Mapping], runs: PageRuns) -> dict[int, tuple[int, int, int]]:
    """First address of a mapping -> its pages that are present, of a file, and swapped."""
    borders = np.array([(one.start, one.end) for one in found], dtype=np.uint64)
    pages = (borders >> np.uint64(PAGE_SHIFT)).astype(np.int64)
    columns = [
        np.diff(runs.below(mask, value, pages), axis=1)[:, 0]
        for mask, value in (
            (PRESENT, PRESENT),
            (PRESENT | FILE, PRESENT | FILE),
            (PRESENT | SWAPPED, SWAPPED),
        )
    ]
    counts = np.stack(columns, axis=1).tolist()
    return {one.start: (a, b, c) for one, (a, b, c) in zip(found, counts, strict=True)}
