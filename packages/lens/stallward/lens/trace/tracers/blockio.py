"""Block I/O per disk, and per process as biotop shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from stallward.actuator.errors import ActuatorError
from stallward.actuator.kernel.files import read_bytes
from stallward.lens.errors import LensError
from stallward.lens.trace.block_io.disks import parse_diskstats
from stallward.lens.trace.columns import Column, ColumnType, Table, Value
from stallward.lens.trace.process_reader import ProcessReader
from stallward.lens.trace.targets import Members, Target

if TYPE_CHECKING:
    from stallward.lens.trace.block_io.counters import BlockCount, Origin

BPF: Final = "ebpf"
PROCESS_IO: Final = "io"
DISKS: Final = "diskstats"

TABLE: Final = Table(
    kind="blockio",
    what="block I/O of each disk and process",
    key=("pid", "name", "disk", "direction", "source"),
    sparse=True,
    columns=(
        Column(
            name="pid",
            source="eBPF",
            meaning="the process that made the requests; empty in the row of a whole disk",
            heading="PID",
        ),
        Column(
            name="name",
            source="eBPF",
            meaning="its name when it made them",
            type=ColumnType.TEXT,
            heading="name",
        ),
        Column(
            name="direction",
            source="eBPF",
            meaning="`R` for reading, `W` for writing, `-` for anything else, such as discarding",
            type=ColumnType.TEXT,
            heading="D",
        ),
        Column(
            name="disk",
            source="diskstats",
            meaning="the disk; empty where only the process is known",
            type=ColumnType.TEXT,
            heading="disk",
        ),
        Column(name="major", source="diskstats", meaning="the number of its driver"),
        Column(name="minor", source="diskstats", meaning="its number there"),
        Column(
            name="requests",
            source="eBPF, or diskstats",
            meaning="requests that have ended",
            counter=True,
            heading="I/O/s",
        ),
        Column(
            name="io_bytes",
            source="eBPF, diskstats, or io",
            meaning="their bytes",
            counter=True,
            heading="bytes/s",
        ),
        Column(
            name="io_time_us",
            source="eBPF, or diskstats",
            meaning="the time from making a request to its end, summed up; by `requests` it is "
            "the mean (AVGms of biotop)",
            counter=True,
            per="requests",
            heading="mean",
        ),
        Column(
            name="source",
            source="the tracer",
            meaning=f"where the row is from: `{BPF}` counts requests where they are made, since "
            f"the trace began; `{DISKS}` has whole disks, since boot; `{PROCESS_IO}` (without "
            "eBPF) has what a process had read and dirtied, since it started",
            type=ColumnType.TEXT,
            heading="from",
        ),
    ),
)


class BlockCounters(Protocol):
    """Counts block I/O by process, disk and direction."""

    def read(self) -> dict[Origin, BlockCount]:
        """Take the counts since the last read; returns the totals that changed."""

    def close(self) -> None:
        """Detach from the kernel."""


OpenBlockCounters = Callable[[Path], BlockCounters]
"""Opens the counters, with sysfs given; raises an ``ActuatorError`` if it cannot."""


def open_block_counters(sys: Path) -> BlockCounters:
    """Open the counters of this machine."""
    from stallward.lens.trace.block_io.counters import BlockIoCounters  # noqa: PLC0415 - it needs numpy

    return BlockIoCounters(sys)


class BlockIoTracer:
    """Traces block I/O.

    Where eBPF is not allowed, ``missing`` says so, and the rows of processes say that they are
    from /proc/PID/io: no requests, no times, no disk, and writing counts when memory is dirtied.

    Args:
        proc: The /proc directory.
        sys: Where sysfs is.
        target: Which processes; all if ``None``.
        every: All processes, for /proc/PID/io where there is neither eBPF nor a target.
        open_: Opens the counters.

    Raises:
        LensError: If there is no diskstats.
    """

    table = TABLE

    def __init__(
        self,
        proc: Path,
        sys: Path,
        *,
        target: Target | None,
        every: Target,
        open_: OpenBlockCounters = open_block_counters,
    ) -> None:
        self._diskstats = proc / "diskstats"
        if read_bytes(self._diskstats) is None:
            raise LensError(
                f"There is no {self._diskstats}.", next_step="The kernel needs CONFIG_BLOCK."
            )
        self._reader = ProcessReader(proc)
        self._target = target
        self._every = every
        self._counters: BlockCounters | None = None
        self._absent = ""
        self._before: dict[tuple[int, str], int] = {}
        self._members = None if target is None else Members(target)
        try:
            self._counters = open_(sys)
        except ActuatorError as error:
            self._absent = f"requests of processes by eBPF: {error.cause}"

    @property
    def missing(self) -> tuple[str, ...]:
        """What could not be read so far, and why."""
        return (self._absent,) if self._absent else ()

    def read(self) -> list[dict[str, Value]]:
        """Read a row for each disk and direction, and for each process that did something."""
        rows: list[dict[str, Value]] = []
        names: dict[tuple[int, int], str] = {}
        content = read_bytes(self._diskstats) or b""
        for disk in parse_diskstats(content, self._diskstats):
            names[disk.major, disk.minor] = disk.name
            for direction, count in (("R", disk.read), ("W", disk.written)):
                rows.append(
                    {
                        "pid": None,
                        "name": None,
                        "direction": direction,
                        "disk": disk.name,
                        "major": disk.major,
                        "minor": disk.minor,
                        "requests": count.requests,
                        "io_bytes": count.bytes,
                        "io_time_us": count.time_us,
                        "source": DISKS,
                    }
                )
        rows += self._requests(names) if self._counters is not None else self._process_io()
        return rows

    def _requests(self, names: dict[tuple[int, int], str]) -> Iterator[dict[str, Value]]:
        assert self._counters is not None
        wanted = None if self._members is None else self._members.pids()
        for origin, count in self._counters.read().items():
            if wanted is not None and origin.pid not in wanted:
                continue
            yield {
                "pid": origin.pid,
                "name": origin.name,
                "direction": origin.direction,
                "disk": names.get((origin.major, origin.minor)),
                "major": origin.major,
                "minor": origin.minor,
                "requests": count.requests,
                "io_bytes": count.bytes,
                "io_time_us": count.time_ns // 1000,
                "source": BPF,
            }

    def _process_io(self) -> Iterator[dict[str, Value]]:
        target = self._target or self._every
        for pid in target.pids():
            reading = self._reader.read(pid, maps=False)
            if reading is None:
                continue
            sums = {"R": reading.io.read_bytes, "W": reading.io.written_bytes}
            for direction, size in sums.items():
                if size is None or self._before.get((pid, direction), 0) == size:
                    continue
                self._before[pid, direction] = size
                yield {
                    "pid": pid,
                    "name": reading.name,
                    "direction": direction,
                    "io_bytes": size,
                    "source": PROCESS_IO,
                }

    def close(self) -> None:
        """Detach from the kernel."""
        if self._counters is not None:
            self._counters.close()
            self._counters = None
