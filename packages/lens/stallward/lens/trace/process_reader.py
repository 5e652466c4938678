"""One process at one time: its stat, status, io and sizes of mappings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from stallward.actuator.errors import KernelFileError, SensorError
from stallward.actuator.kernel.files import read_bytes
from stallward.actuator.kernel.process_table import Seen, parse_seen, stat_fields
from stallward.actuator.kernel.refusals import Place, next_step
from stallward.actuator.sensors.files.cpu import IoBytes
from stallward.actuator.sensors.files.flat import is_count, parse_partly, parse_single
from stallward.actuator.sensors.files.process_files import (
    ProcessStatus,
    parse_process_io,
    parse_status,
)
from stallward.actuator.sensors.processes.tree_process import parse_used
from stallward.lens.errors import LensError
from stallward.lens.trace.memory_maps import MapSizes, parse_map_sizes

T = TypeVar("T")

ROLLUP: Final = "smaps_rollup"
SMAPS: Final = "smaps"
_NO_IO: Final = IoBytes()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessReading:
    """One process at one time; absent values are ``None``."""

    seen: Seen
    name: str
    """As the kernel has it: 15 bytes of the program's name, unless it has set another one."""
    state: str
    """One letter, as in ps(1)."""
    status: ProcessStatus
    virtual_bytes: int | None
    cpu_usage_us: int | None
    minor_faults: int | None
    major_faults: int | None
    oom_score: int | None
    io: IoBytes
    maps: MapSizes | None
    """``None`` where they were not asked for, or may not be read."""


class ProcessReader:
    """Reads processes, and keeps in mind what could not be read.

    Args:
        proc: The /proc directory.
    """

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self.missing: dict[str, str] = {}
        """Why files could not be read, by their name."""

    def read(self, pid: int, *, maps: bool, use: bool = True) -> ProcessReading | None:
        """Read one process; ``None`` if it has ended, or is a thread of the kernel.

        Args:
            pid: The process.
            maps: Whether to read the sizes of its mappings, too, for which the kernel walks
                through its page tables.
            use: Whether to read its I/O and how readily the OOM killer takes it, too.

        Raises:
            LensError: If its stat or status cannot be understood.
        """
        folder = f"{self._proc}/{pid}"
        try:
            stat, content = read_bytes(f"{folder}/stat"), read_bytes(f"{folder}/status")
            if not stat or not content:
                return None
            seen = parse_seen(stat, f"{folder}/stat", pid)
            status, fault = parse_partly(parse_status, content, f"{folder}/status")
        except KernelFileError as error:
            raise LensError(f"Process {pid} cannot be read: {error}") from error
        if status is None:
            raise LensError(f"Process {pid} cannot be read: {fault}")
        if seen.ended or seen.kernel or status.rss_bytes is None:  # the last: it is just ending
            return None
        fields = stat_fields(stat, f"{folder}/stat")
        used, _ = parse_partly(parse_used, stat, f"{folder}/stat")
        cpu_usage_us, major_faults = used or (None, None)
        io = self._optional(folder, "io") if use else None
        score = self._optional(folder, "oom_score") if use else None
        return ProcessReading(
            seen=seen,
            name=name_in(stat),
            state=fields[0].decode("ascii", "replace"),
            status=status,
            virtual_bytes=int(fields[20]) if is_count(fields[20]) else None,
            cpu_usage_us=cpu_usage_us,
            minor_faults=int(fields[7]) if is_count(fields[7]) else None,
            major_faults=major_faults,
            oom_score=parse_partly(parse_single, score, Path(folder))[0] if score else None,
            io=(parse_partly(parse_process_io, io, f"{folder}/io")[0] if io else None) or _NO_IO,
            maps=self._maps(folder) if maps else None,
        )

    def sum_of_stat(self, pid: int, places: tuple[int, ...]) -> int:
        """Add up some numbers in the stat of a process, from field 3 on; 0 if it has ended."""
        path = f"{self._proc}/{pid}/stat"
        try:
            fields = stat_fields(read_bytes(path) or b"", path)
        except KernelFileError:
            return 0
        return sum(int(fields[place]) for place in places if is_count(fields[place]))

    def _maps(self, folder: str) -> MapSizes | None:
        content = self._optional(folder, ROLLUP)
        if not content:
            return None
        try:
            return parse_map_sizes(content, f"{folder}/{ROLLUP}")
        except SensorError as error:
            self.missing[ROLLUP] = str(error)
            return None

    def _optional(self, folder: str, name: str) -> bytes | None:
        """Read a file that not every kernel has, or that not every user may read."""
        try:
            return read_bytes(f"{folder}/{name}")
        except KernelFileError as error:
            self.missing[name] = f"{error.path}: {error.what}"
            return None


def name_in(stat: bytes) -> str:
    """The name of a process in its stat."""
    return stat[stat.find(b"(") + 1 : stat.rfind(b")")].decode("utf-8", "replace")


def check_readable(proc: Path, pid: int, name: str) -> None:
    """Check that a file about a process may be read, and say so before a trace begins.

    Raises:
        LensError: If it may not, or this kernel has none.
    """
    path = f"{proc}/{pid}/{name}"
    try:
        content = read_bytes(path)
    except KernelFileError as error:
        raise LensError(
            f"Process {pid} cannot be traced: {error.path}: {error.what}.",
            next_step=next_step(error.number, path, place=Place.PROCESS),
        ) from error
    if content is None and read_bytes(f"{proc}/{pid}/stat") is not None:
        raise LensError(
            f"Process {pid} cannot be traced: there is no {path}.",
            next_step="smaps needs a kernel with CONFIG_PROC_PAGE_MONITOR, and smaps_rollup one "
            "from 4.14 on.",
        )
