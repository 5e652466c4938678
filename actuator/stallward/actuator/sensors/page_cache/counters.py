"""Page-cache hits and misses per process, per cgroup and of the node, counted by eBPF.

docs/explanation/page-cache.md says what is counted, how exactly and at what cost. The programs are
in :mod:`~stallward.actuator.sensors.page_cache.programs`. They and their maps belong to this
process alone: when it closes their descriptors, or is killed, the kernel removes them.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from stallward.actuator.errors import ActuatorError, NodeError
from stallward.actuator.kernel.bpf import (
    ARRAY,
    PERCPU_ARRAY,
    PERCPU_HASH,
    TRACEPOINT,
    BpfSyscall,
    Btf,
    Drain,
    possible_cpus,
)
from stallward.actuator.sensors.page_cache.programs import NAMES, PROGRAMS
from stallward.actuator.sensors.page_cache.steps import (
    COUNT_BYTES,
    KEY_BYTES,
    THREAD_BYTES,
    THREADS,
    Kernel,
    Maps,
    pending_pages,
)

# ---------- Finds out in which of the watched groups a cgroup is, by the cgroup's id in the kernel

_KERNFS_HANDLE: Final = 0xFE
"""The type of a file handle that holds the id of a directory (FILEID_KERNFS)."""
_MAX_KNOWN: Final = 8192


class CgroupIds:
    """Finds the directory of a cgroup by its id, without walking the hierarchy.

    A cgroup that has been removed meanwhile is in no group. Ids are never used again.

    Args:
        root: The root of the v2 hierarchy; without one no cgroup is in any group.
        groups: The directories of the watched groups.
    """

    def __init__(self, root: Path | None, groups: Sequence[Path | None]) -> None:
        self._groups = [_folder(path) for path in groups]
        self._known: dict[int, tuple[int, ...]] = {}
        self._root = root
        self.denied = False
        """Whether the kernel has refused to say which cgroup is which (CAP_DAC_READ_SEARCH)."""
        self._open = ctypes.CDLL(None, use_errno=True).open_by_handle_at

    def replace(self, index: int, path: Path | None) -> None:
        """Watch another group in place of one."""
        self._groups[index] = _folder(path)
        self._known.clear()

    def groups_of(self, number: int) -> tuple[int, ...]:
        """The indices of the watched groups that a cgroup is, or is below."""
        known = self._known.get(number)
        if known is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            path = f"{self._path(number)}/"
            known = tuple(
                i for i, group in enumerate(self._groups) if group and path.startswith(group)
            )
            self._known[number] = known
        return known

    def _path(self, number: int) -> str:
        """The directory of a cgroup; empty if the cgroup does not exist any more."""
        if self._root is None:
            return ""
        handle = ctypes.create_string_buffer(struct.pack("<IiQ", 8, _KERNFS_HANDLE, number), 16)
        mount = fd = -1
        try:
            mount = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
            fd = self._open(mount, handle, flags)
            if fd < 0:
                self.denied = self.denied or ctypes.get_errno() == errno.EPERM
                return ""
            return str(Path(f"/proc/self/fd/{fd}").readlink())
        except OSError:
            return ""
        finally:
            for opened in (mount, fd):
                if opened >= 0:
                    os.close(opened)


def _folder(path: Path | None) -> str | None:
    return None if path is None else f"{os.path.realpath(path)}/"


BTF: Final = "kernel/btf/vmlinux"
"""The kernel's type information, below sysfs."""
_ENTRIES: Final = 2048
"""How many pairs of cgroup and process are counted apart between two reads."""
_BATCH: Final = 256
_MAX_BATCHES: Final = 8
"""How many batches one read takes; the rest waits for the next read."""
_MAX_PROCESSES: Final = 4096
"""How many processes have their totals kept: those that looked pages up last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageCacheCount:
    """Page-cache lookups since the counters were opened."""

    hits: int = 0
    """Lookups that found the page."""
    misses: int = 0
    """Lookups whose page had to be brought in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageCacheAbsent:
    """Says why nothing is counted on this node."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PageCacheReading:
    """All counts at one time."""

    node: PageCacheCount
    groups: tuple[PageCacheCount | None, ...]
    """The count of each group with its descendants since it is counted; ``None`` for a group
    without a directory, and where the kernel does not say which cgroup is which."""


class PageCacheCounters:
    """Counters that are attached to the kernel until this object is closed.

    Args:
        bpf: The system call.
        kernel: What the kernel is like.
        sys: Where sysfs is.
        groups: Directories in the v2 hierarchy of the groups that are counted apart.
        cgroup_root: The root of that hierarchy, if there is one.

    Raises:
        ActuatorError: If the kernel lacks or refuses something; nothing stays attached.
    """

    def __init__(
        self,
        bpf: BpfSyscall,
        kernel: Kernel,
        *,
        sys: Path,
        groups: Sequence[Path | None] = (),
        cgroup_root: Path | None = None,
    ) -> None:
        self._bpf = bpf
        self._map_fds: list[int] = []
        self._program_fds: list[int] = []
        self._cpus = possible_cpus(sys)
        self._node = [0, 0]
        self._unnamed = [0, 0]
        self._groups = [None if path is None else [0, 0] for path in groups]
        self._cgroups = CgroupIds(cgroup_root, groups)
        self._processes: dict[int, list[int]] = {}
        try:
            self._maps = self._make_maps()
            self._attach(kernel)
            if self._sees_one_page_too_many():
                kernel.last_index_is_behind = True
                _close(self._program_fds)
                self._attach(kernel)
        except BaseException:
            self.close()
            raise
        size = {"key_size": KEY_BYTES, "value_size": COUNT_BYTES, "cpus": self._cpus}
        self._drain = Drain(bpf, self._maps.counts, batch=_BATCH, **size)

    def replace(self, index: int, path: Path | None) -> None:
        """Count another group in place of one, from 0 on.

        Args:
            index: Which of the groups.
            path: The directory of the other one; ``None`` for none.
        """
        self._groups[index] = None if path is None else [0, 0]
        self._cgroups.replace(index, path)

    def _attach(self, kernel: Kernel) -> None:
        for program in PROGRAMS:
            hook = kernel.tracepoint(program.tracepoint, program.arguments)
            code = program.make(kernel, self._maps)
            fd = self._bpf.load_program(
                program.name, code, attach_type=TRACEPOINT, attach_to=hook.type_id
            )
            self._program_fds.append(fd)
            self._program_fds.append(self._bpf.attach(program.tracepoint, fd))

    def _sees_one_page_too_many(self) -> bool:
        """Whether the programs count two pages for a read of one page (of a longer file)."""
        fd = os.open("/proc/self/exe", os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.pread(fd, 1, 0)
        finally:
            os.close(fd)
        thread = threading.get_native_id()
        key = struct.pack("<I", thread % THREADS)
        return pending_pages(self._bpf.lookup(self._maps.threads, key, THREAD_BYTES)) == 2

    def _make_maps(self) -> Maps:
        def make(name: str, kind: int, key_size: int, value_size: int, entries: int) -> int:
            fd = self._bpf.create_map(
                name, kind, key_size=key_size, value_size=value_size, max_entries=entries
            )
            self._map_fds.append(fd)
            return fd

        return Maps(
            counts=make("sw_counts", PERCPU_HASH, KEY_BYTES, COUNT_BYTES, _ENTRIES),
            overflow=make("sw_overflow", PERCPU_ARRAY, 4, COUNT_BYTES, 1),
            threads=make("sw_threads", ARRAY, 4, THREAD_BYTES, THREADS),
        )

    def read(self) -> PageCacheReading:
        """Add the counts since the last read, in bounded time; returns the totals so far.

        Raises:
            BpfRefusedError: If the kernel refuses it.
        """
        taken = 0
        for _ in range(_MAX_BATCHES):
            count, more = self._drain.take()
            taken += count
            if count:
                self._add(count)
            if not more:
                break
        if taken > _ENTRIES // 2:  # it may have been full
            self._unnamed = self._overflow()
        while len(self._processes) > _MAX_PROCESSES:
            del self._processes[next(iter(self._processes))]
        return PageCacheReading(
            node=_count([a + b for a, b in zip(self._node, self._unnamed, strict=True)]),
            groups=self._counts_of_groups(),
        )

    def _counts_of_groups(self) -> tuple[PageCacheCount | None, ...]:
        denied = self._cgroups.denied
        return tuple(None if denied or one is None else _count(one) for one in self._groups)

    def _add(self, count: int) -> None:
        keys = struct.unpack_from(f"<{2 * count}Q", self._drain.keys)
        values = np.frombuffer(
            memoryview(self._drain.values), np.int64, count=count * self._cpus * 2
        )
        sums = values.reshape(count, self._cpus, 2).sum(axis=1).tolist()
        for cgroup, process, (hits, misses) in zip(keys[::2], keys[1::2], sums, strict=True):
            # Taken out and put in again, so that the most recently active ones are last.
            own = self._processes.pop(process, None) or [0, 0]
            self._processes[process] = own
            for total in (own, self._node, *self._of(cgroup)):
                total[0] += hits
                total[1] += misses

    def _of(self, cgroup: int) -> list[list[int]]:
        """The totals of the groups that a cgroup is in."""
        totals = (self._groups[i] for i in self._cgroups.groups_of(cgroup))
        return [total for total in totals if total is not None]

    def process(self, pid: int) -> PageCacheCount:
        """The lookups of one process up to the last read."""
        return _count(self._processes.get(pid, [0, 0]))

    def pids(self) -> frozenset[int]:
        """The processes that have looked pages up, up to the last read."""
        return frozenset(self._processes)

    def _overflow(self) -> list[int]:
        """The counts of processes beyond those that the map has room for between two reads."""
        values = self._bpf.lookup(self._maps.overflow, bytes(4), COUNT_BYTES * self._cpus)
        sums = np.frombuffer(values, np.int64).reshape(self._cpus, 2).sum(axis=0)
        return [int(sums[0]), int(sums[1])]

    def close(self) -> None:
        """Detach from the kernel; a second call does nothing."""
        _close(self._program_fds)
        _close(self._map_fds)


def _close(fds: list[int]) -> None:
    while fds:
        os.close(fds.pop())


def _count(total: Sequence[int]) -> PageCacheCount:
    return PageCacheCount(hits=total[0], misses=total[1])


def _whole(path: Path) -> bytes:
    """Read a big file into one piece of memory, which goes back to the system afterwards.

    Raises:
        NodeError: If it cannot be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise NodeError(
            f"there is no {path}: this kernel was built without CONFIG_DEBUG_INFO_BTF"
        ) from error
    except OSError as error:
        raise NodeError(f"{path}: {error.strerror}") from error


def open_page_cache(
    *,
    sys: Path,
    groups: Sequence[Path | None] = (),
    cgroup_root: Path | None = None,
    bpf: BpfSyscall | None = None,
) -> PageCacheCounters | PageCacheAbsent:
    """Start counting if this node allows it; takes about 0.2 s.

    Args:
        sys: Where sysfs is.
        groups: See :class:`PageCacheCounters`.
        cgroup_root: See :class:`PageCacheCounters`.
        bpf: The system call; this machine's if not given.
    """
    btf_path = sys / BTF
    try:
        kernel = Kernel(Btf(_whole(btf_path), btf_path, NAMES))
        return PageCacheCounters(
            bpf or BpfSyscall(), kernel, sys=sys, groups=groups, cgroup_root=cgroup_root
        )
    except ActuatorError as error:
        return PageCacheAbsent(reason=str(error))
