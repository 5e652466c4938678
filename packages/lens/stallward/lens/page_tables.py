"""The pages of one process at one time, by mapping."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import time
from collections.abc import Mapping as Map
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from stallward.actuator.errors import KernelFileError, ProcessEndedError, ProcessError, SensorError
from stallward.actuator.kernel.files import ABSENT, failure
from stallward.actuator.kernel.memory.mappings import Mapping, mappings
from stallward.actuator.kernel.process_table import stat_fields
from stallward.actuator.kernel.refusals import Place, next_step

PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
PAGE_SHIFT: Final = PAGE_BYTES.bit_length() - 1

# PAGE_IS_* of include/uapi/linux/fs.h.
FILE: Final = 1 << 2
"""The page belongs to a file, or to shared memory."""
PRESENT: Final = 1 << 3
SWAPPED: Final = 1 << 4
ZERO: Final = 1 << 5
"""The page is the one of zeros, which all processes share: it was only read."""
HUGE: Final = 1 << 6

Pages = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PageRuns:
    """Runs of pages with an entry in the page tables, by address, without overlap."""

    begins: Pages
    """The number of the first page of each run."""
    ends: Pages
    """The number of the page after its last one."""
    states: Pages
    """Bits such as ``PRESENT`` and ``FILE``."""

    def below(self, mask: int, value: int, pages: Pages) -> Pages:
        """For each of the page numbers, how many pages before it have ``value`` under ``mask``.

        Args:
            mask: The bits to look at.
            value: What they must be.
            pages: Numbers of pages.
        """
        chosen = (self.states & mask) == value
        begins, ends = self.begins[chosen], self.ends[chosen]
        counted = np.concatenate([[0], np.cumsum(ends - begins)])
        # The runs that begin before a page count whole, and the last of them up to the page.
        number = np.searchsorted(begins, pages, side="right")
        if not begins.size:
            return np.zeros(pages.shape, dtype=np.int64)
        over = np.maximum(ends[np.maximum(number - 1, 0)] - pages, 0)
        return np.asarray(counted[number] - np.where(number > 0, over, 0))


def concatenate(parts: list[PageRuns]) -> PageRuns:
    """Runs that follow each other, as one."""
    empty = np.empty(0, dtype=np.int64)
    return PageRuns(
        begins=np.concatenate([empty, *(part.begins for part in parts)]),
        ends=np.concatenate([empty, *(part.ends for part in parts)]),
        states=np.concatenate([empty, *(part.states for part in parts)]),
    )


def runs_of(entries: NDArray[np.uint64], first_page: int) -> PageRuns:
    """The runs in entries of /proc/PID/pagemap.

    Args:
        entries: An entry for each page; bit 63 says that it is present, 62 that it is in swap,
            and 61 that it belongs to a file (Documentation/admin-guide/mm/pagemap.rst).
        first_page: The number of the first page.
    """
    top = entries >> np.uint64(61)
    known = ((top & 4) > 0) * PRESENT + ((top & 2) > 0) * SWAPPED
    states = np.where(known > 0, known + ((top & 1) > 0) * FILE, 0).astype(np.int64)
    starts = np.flatnonzero(np.diff(states, prepend=-1))
    stops = np.append(starts[1:], states.size)
    kept = states[starts] > 0
    return PageRuns(
        begins=starts[kept] + first_page,
        ends=stops[kept] + first_page,
        states=states[starts[kept]],
    )


RSS: Final = b"Rss"
SWAP: Final = b"Swap"
REFERENCED: Final = b"Referenced"
_KIB: Final = 1024
_LINES: Final = {
    key: re.compile(rb"^(?:([0-9a-f]{1,16})-[0-9a-f]{1,16} |%b: *(.*)$)" % key, re.MULTILINE)
    for key in (RSS, SWAP, REFERENCED)
}
_SIZE: Final = re.compile(rb"(\d{1,15}) kB")


def parse_smaps(content: bytes, key: bytes, path: Path | str) -> Map[int, int]:
    """The bytes of each mapping under a key, by the mapping's first address.

    Args:
        content: The file.
        key: ``RSS``, ``SWAP`` or ``REFERENCED``.
        path: The file's path, for errors.

    Raises:
        SensorError: If the content is malformed or cut short.
    """
    if content and not content.endswith(b"\n"):
        raise SensorError(path, f"cut short: {content[-60:]!r}")
    found: dict[int, int] = {}
    start = -1
    for match in _LINES[key].finditer(content):
        if match[1] is not None:
            start = int(match[1], 16)
            continue
        size = _SIZE.fullmatch(match[2])
        if start < 0 or size is None:
            raise SensorError(path, f"not a size in kB: {match[0][:60]!r}")
        found[start] = int(size[1]) * _KIB
    return found


# ---------- Reads the state of all pages of a process from /proc/PID/pagemap
# The kernel reports runs of equal pages by the ioctl PAGEMAP_SCAN since 6.7, and skips what has no
# entry. Before, there is only the file with 8 bytes for each page of address space.

MOST_READ_BYTES: Final = 1 << 36
"""The most address space of one mapping that is read page by page: its entries take 128 MiB."""
_SCAN: Final = 0xC060_6610
"""PAGEMAP_SCAN: _IOWR('f', 16, struct pm_scan_arg)."""
_RUNS: Final = 1 << 14
"""Runs that one call returns."""
_PIECE_ENTRIES: Final = 1 << 18
_NO_SCAN: Final = frozenset({errno.ENOTTY, errno.EINVAL})


class _ScanArgument(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "size", "flags", "start", "end", "walk_end", "vec", "vec_len", "max_pages",
            "category_inverted", "category_mask", "category_anyof_mask", "return_mask",
        )
    ]  # fmt: skip


def scan(fd: int, begin: int, end: int) -> PageRuns | None:
    """Ask for the runs of pages between two addresses; ``None`` if the kernel cannot say.

    Args:
        fd: An open /proc/PID/pagemap.
        begin: The first address, at a page.
        end: The address after the last one.

    Raises:
        OSError: If the process has no memory any more.
    """
    found = np.empty((_RUNS, 3), dtype=np.uint64)
    parts = []
    while begin < end:
        argument = _ScanArgument(
            size=ctypes.sizeof(_ScanArgument),
            start=begin,
            end=end,
            vec=found.ctypes.data,
            vec_len=_RUNS,
            category_anyof_mask=PRESENT | SWAPPED,
            return_mask=PRESENT | SWAPPED | FILE | HUGE | ZERO,
        )
        passed = bytearray(argument)
        try:
            count = fcntl.ioctl(fd, _SCAN, passed, True)
        except OSError as error:
            if error.errno in _NO_SCAN:
                return None
            raise
        runs = found[:count].astype(np.int64)
        pages = runs[:, :2] >> PAGE_SHIFT
        parts.append(PageRuns(pages[:, 0], pages[:, 1], runs[:, 2]))
        reached = _ScanArgument.from_buffer(passed).walk_end
        if reached <= begin:
            break
        begin = reached
    return concatenate(parts)


def read(fd: int, mappings: Sequence[Mapping]) -> PageRuns:
    """Read the entries of all pages of some mappings.

    Args:
        fd: An open /proc/PID/pagemap.
        mappings: The mappings, by address; those of more than ``MOST_READ_BYTES`` are left out.

    Raises:
        OSError: If the process has no memory any more.
    """
    parts = []
    for mapping in mappings:
        if mapping.length > MOST_READ_BYTES:
            continue
        page, last = mapping.start >> PAGE_SHIFT, mapping.end >> PAGE_SHIFT
        while page < last:
            data = os.pread(fd, 8 * min(last - page, _PIECE_ENTRIES), 8 * page)
            entries = np.frombuffer(data[: len(data) // 8 * 8], dtype=np.uint64)
            if not entries.size:
                break
            parts.append(runs_of(entries, page))
            page += entries.size
    return concatenate(parts)


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
