"""The memory, faults and I/O of processes: appendix B of the thesis, and more."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from stallward.lens.trace.columns import (
    Column,
    ColumnType,
    Row,
    Table,
    ThesisColumn,
    Value,
    kib,
)
from stallward.lens.trace.page_cache import PageCacheLens
from stallward.lens.trace.process_reader import ProcessReader, ProcessReading
from stallward.lens.trace.targets import Target

PID: Final = Column(name="pid", source="the target", meaning="the process", heading="PID")
IDENTITY: Final = (
    PID,
    Column(
        name="start_time_ticks",
        source="stat, field 22",
        meaning="when it started; with the pid it identifies the process for good",
    ),
    Column(
        name="name",
        source="stat, field 2",
        meaning="the program's name, 15 bytes at most",
        type=ColumnType.TEXT,
        heading="name",
    ),
)
RESIDENT: Final = (
    Column(
        name="anon_bytes",
        source="status, RssAnon + RssShmem",
        meaning="resident anonymous and shared memory, which needs swap to be reclaimed",
        heading="anon",
    ),
    Column(
        name="file_bytes",
        source="status, RssFile",
        meaning="resident pages of files",
        heading="file",
    ),
)
FAULTS: Final = (
    Column(
        name="minor_faults",
        source="stat, field 10",
        meaning="page faults that needed no I/O",
        counter=True,
        heading="minor/s",
    ),
    Column(
        name="major_faults",
        source="stat, field 12",
        meaning="page faults that waited for I/O",
        counter=True,
        heading="major/s",
    ),
)
CPU: Final = Column(
    name="cpu_usage_us",
    source="stat, fields 14 and 15",
    meaning="processor time of all threads, in steps of 10 ms",
    counter=True,
    heading="CPU",
)


def _size(
    name: str, source: str, meaning: str, heading: str = "", where: str = "smaps_rollup"
) -> Column:
    return Column(name=name, source=f"{where}, {source}", meaning=meaning, heading=heading)


def _pss_again(row: Row) -> Value:
    shared, private = row["shared_proportional_bytes"], row["private_bytes"]
    if not isinstance(shared, int) or not isinstance(private, int):
        return None
    return (shared + private) // 1024


TABLE: Final = Table(
    kind="process",
    what="the memory, page faults and I/O of each process",
    key=("pid",),
    appendix="B",
    columns=(
        *IDENTITY,
        _size("pss_bytes", "Pss", "proportional set size: a shared page counts in parts", "PSS"),
        _size("rss_bytes", "Rss", "resident set size", "RSS"),
        _size(
            "private_bytes",
            "Private_*",
            "what no other process maps: unique set size (USS)",
            "USS",
        ),
        _size("shared_bytes", "Shared_*", "what another process also maps"),
        _size(
            "shared_proportional_bytes",
            "Pss - Private_*",
            "the process's part in what is shared",
        ),
        _size("swap_bytes", "Swap", "in swap", "swap"),
        _size("swap_pss_bytes", "SwapPss", "in swap; what is shared counts in parts"),
        *RESIDENT,
        _size("pss_anon_bytes", "Pss_Anon", "the anonymous part of the PSS (Linux 5.9)"),
        _size("pss_file_bytes", "Pss_File", "its part in files"),
        _size("pss_shmem_bytes", "Pss_Shmem", "its part in shared memory"),
        _size("private_dirty_bytes", "Private_Dirty", "private and written to"),
        _size("shared_dirty_bytes", "Shared_Dirty", "shared and written to"),
        _size("referenced_bytes", "Referenced", "touched since the kernel last looked"),
        _size("lazy_free_bytes", "LazyFree", "given back by MADV_FREE, and not yet taken"),
        _size("anon_huge_bytes", "AnonHugePages", "in huge pages"),
        _size("locked_bytes", "Locked", "locked by mlock(2)"),
        _size("virtual_bytes", "field 23", "address space", where="stat"),
        *FAULTS,
        Column(
            name="page_cache_hits",
            source="eBPF",
            meaning="page-cache lookups that found the page, since the trace began",
            counter=True,
            heading="hits/s",
        ),
        Column(
            name="page_cache_misses",
            source="eBPF",
            meaning="page-cache lookups whose page had to be brought in, since the trace began",
            counter=True,
            heading="misses/s",
        ),
        Column(
            name="io_read_bytes",
            source="io, read_bytes",
            meaning="what the process had read from storage",
            counter=True,
            heading="read/s",
        ),
        Column(
            name="io_written_bytes",
            source="io, write_bytes",
            meaning="what it dirtied for storage, when it dirtied it",
            counter=True,
            heading="written/s",
        ),
        CPU,
        Column(
            name="threads",
            source="status, Threads",
            meaning="threads",
        ),
        Column(
            name="state",
            source="stat, field 3",
            meaning="R running, S sleeping, D in an uninterruptible wait, T stopped",
            type=ColumnType.TEXT,
            heading="state",
        ),
        Column(
            name="oom_score",
            source="oom_score",
            meaning="how readily the OOM killer takes it, 0 to 2000",
        ),
    ),
    thesis=(
        ThesisColumn(name="Name", of="`name`", value=lambda row: row["name"]),
        kib("Pss", "pss_bytes"),
        ThesisColumn(
            name="Sum",
            of="`shared_proportional_bytes` + `private_bytes`",
            unit="kB",
            value=_pss_again,
        ),
        kib("Rss", "rss_bytes"),
        kib("Private", "private_bytes"),
        kib("Shared1", "shared_bytes"),
        kib("Shared", "shared_proportional_bytes"),
        kib("Swap", "swap_bytes"),
        kib("SwapPss", "swap_pss_bytes"),
    ),
)


class ProcessTracer:
    """Traces processes.

    Args:
        proc: The /proc directory.
        target: Which processes.
        maps_every: At which ticks smaps_rollup is read, whose cost grows with the resident memory:
            1 for all, 10 for every tenth, 0 for none.
        page_cache: Counts page-cache lookups; closed with this.
    """

    table = TABLE

    def __init__(
        self, proc: Path, target: Target, *, maps_every: int = 1, page_cache: PageCacheLens
    ) -> None:
        self._reader = ProcessReader(proc)
        self._target = target
        self._maps_every = maps_every
        self._reads = 0
        self._page_cache = page_cache

    @property
    def missing(self) -> tuple[str, ...]:
        """What could not be read so far, and why."""
        return (*self._reader.missing.values(), *self._page_cache.missing)

    def read(self) -> list[dict[str, Value]]:
        """Read all processes of the target, a row each."""
        self._page_cache.read()
        maps = self._maps_every > 0 and self._reads % self._maps_every == 0
        self._reads += 1
        rows = []
        for pid in self._target.pids():
            reading = self._reader.read(pid, maps=maps)
            if reading is not None:
                row, lookups = process_row(reading), self._page_cache.count(pid)
                row["page_cache_hits"] = None if lookups is None else lookups.hits
                row["page_cache_misses"] = None if lookups is None else lookups.misses
                rows.append(row)
        return rows

    def close(self) -> None:
        """Close every file, and detach from the kernel."""
        self._page_cache.close()


def process_row(reading: ProcessReading) -> dict[str, Value]:
    """The columns of one process, without page-cache lookups."""
    maps, status = reading.maps, reading.status
    private = None if maps is None else maps.private_bytes
    pss = None if maps is None else maps.pss_bytes
    row: dict[str, Value] = {
        "pid": reading.seen.pid,
        "start_time_ticks": reading.seen.start_time_ticks,
        "name": reading.name,
        "pss_bytes": pss,
        "rss_bytes": status.rss_bytes if maps is None else maps.rss_bytes,
        "private_bytes": private,
        "shared_bytes": None if maps is None else maps.shared_bytes,
        "shared_proportional_bytes": None
        if pss is None or private is None
        else max(pss - private, 0),
        "swap_bytes": status.swap_bytes if maps is None else maps.swap_bytes,
        "anon_bytes": status.anon_bytes,
        "file_bytes": status.file_bytes,
        "virtual_bytes": reading.virtual_bytes,
        "minor_faults": reading.minor_faults,
        "major_faults": reading.major_faults,
        "io_read_bytes": reading.io.read_bytes,
        "io_written_bytes": reading.io.written_bytes,
        "cpu_usage_us": reading.cpu_usage_us,
        "threads": status.threads,
        "state": reading.state,
        "oom_score": reading.oom_score,
    }
    for name in _ONLY_IN_MAPS:
        row[name] = None if maps is None else getattr(maps, name)
    return row


_ONLY_IN_MAPS: Final = (
    "swap_pss_bytes",
    "pss_anon_bytes",
    "pss_file_bytes",
    "pss_shmem_bytes",
    "private_dirty_bytes",
    "shared_dirty_bytes",
    "referenced_bytes",
    "lazy_free_bytes",
    "anon_huge_bytes",
    "locked_bytes",
)
