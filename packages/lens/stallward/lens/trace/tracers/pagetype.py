"""Anonymous against file-backed pages of processes: appendix F of the thesis, and more."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.files import read_bytes
from stallward.lens.errors import LensError
from stallward.lens.trace.columns import Column, Row, Table, ThesisColumn, Value, kib
from stallward.lens.trace.memory_maps import (
    MappingKinds,
    MapSizes,
    parse_map_sizes,
    parse_mapping_kinds,
)
from stallward.lens.trace.process_reader import SMAPS, ProcessReader
from stallward.lens.trace.targets import Target
from stallward.lens.trace.tracers.process import IDENTITY


def _size(name: str, source: str, meaning: str, heading: str = "") -> Column:
    return Column(name=name, source=source, meaning=meaning, heading=heading)


_BY_MAPPING: Final = "smaps, Rss by mapping"


def _filebacked(row: Row) -> Value:
    total, anon = row["rss_bytes"], row["anon_mapping_bytes"]
    return (total - anon) // 1024 if isinstance(total, int) and isinstance(anon, int) else None


TABLE: Final = Table(
    kind="pagetype",
    what="anonymous against file-backed pages of each process",
    key=("pid",),
    appendix="F",
    columns=(
        *IDENTITY,
        _size(
            "anon_mapping_bytes",
            _BY_MAPPING,
            "in mappings without a file, as pmap -x says `[ anon ]`; the heap included",
            "anon mappings",
        ),
        _size("rss_bytes", "smaps, Rss", "resident set size", "RSS"),
        _size(
            "file_mapping_bytes",
            _BY_MAPPING,
            "in mappings of files; a page that was written to privately is anonymous there",
            "file mappings",
        ),
        _size("shmem_mapping_bytes", _BY_MAPPING, "in mappings of shared memory", "shared memory"),
        _size("heap_bytes", _BY_MAPPING, "in the heap, a part of the first", "heap"),
        _size("stack_bytes", _BY_MAPPING, "in the stack of the first thread", "stack"),
        _size(
            "anon_bytes",
            "status, RssAnon + RssShmem",
            "anonymous and shared pages, whatever their mapping; they need swap to be reclaimed",
            "anon pages",
        ),
        _size("file_bytes", "status, RssFile", "pages of files", "file pages"),
        _size(
            "anonymous_bytes",
            "smaps, Anonymous",
            "anonymous pages without shared memory, private copies of file pages included",
        ),
        _size("private_clean_bytes", "smaps, Private_Clean", "private, as on disk"),
        _size("private_dirty_bytes", "smaps, Private_Dirty", "private and written to", "dirty"),
        _size("shared_clean_bytes", "smaps, Shared_Clean", "shared, as on disk"),
        _size("shared_dirty_bytes", "smaps, Shared_Dirty", "shared and written to"),
        _size("referenced_bytes", "smaps, Referenced", "touched since the kernel last looked"),
        _size("lazy_free_bytes", "smaps, LazyFree", "given back by MADV_FREE, and not yet taken"),
        _size("anon_huge_bytes", "smaps, AnonHugePages", "anonymous, in huge pages"),
        _size("swap_bytes", "smaps, Swap", "in swap", "swap"),
        _size("locked_bytes", "smaps, Locked", "locked by mlock(2)"),
        Column(name="mappings", source="smaps", meaning="mappings", heading="mappings"),
    ),
    thesis=(
        kib("sum", "anon_mapping_bytes"),
        kib("totalRSS", "rss_bytes"),
        ThesisColumn(
            name="filebacked",
            of="`rss_bytes` - `anon_mapping_bytes`",
            unit="kB",
            value=_filebacked,
        ),
    ),
)
_SUMS: Final = (
    "rss_bytes",
    "anonymous_bytes",
    "private_clean_bytes",
    "private_dirty_bytes",
    "shared_clean_bytes",
    "shared_dirty_bytes",
    "referenced_bytes",
    "lazy_free_bytes",
    "anon_huge_bytes",
    "swap_bytes",
    "locked_bytes",
)


class PageTypeTracer:
    """Traces the kinds of pages of processes.

    Args:
        proc: The /proc directory.
        target: Which processes.
    """

    table = TABLE

    def __init__(self, proc: Path, target: Target) -> None:
        self._proc = proc
        self._reader = ProcessReader(proc)
        self._target = target
        self._unread: dict[int, str] = {}

    @property
    def missing(self) -> tuple[str, ...]:
        """What could not be read so far, and why."""
        return tuple(self._unread.values())

    def read(self) -> list[dict[str, Value]]:
        """Read all processes of the target, a row each; without one whose smaps is refused."""
        rows = []
        for pid in self._target.pids():
            reading = self._reader.read(pid, maps=False, use=False)
            content = self._smaps(pid)
            if reading is None or content is None:
                continue
            path = f"{self._proc}/{pid}/{SMAPS}"
            try:
                sizes, kinds = parse_map_sizes(content, path), parse_mapping_kinds(content, path)
            except KernelFileError as error:
                raise LensError(f"Process {pid} cannot be read: {error}") from error
            rows.append(
                {
                    "pid": pid,
                    "start_time_ticks": reading.seen.start_time_ticks,
                    "name": reading.name,
                    "anon_bytes": reading.status.anon_bytes,
                    "file_bytes": reading.status.file_bytes,
                    **_columns(sizes, kinds),
                }
            )
        return rows

    def _smaps(self, pid: int) -> bytes | None:
        try:
            return read_bytes(f"{self._proc}/{pid}/{SMAPS}") or None
        except KernelFileError as error:
            self._unread[pid] = str(error)
            return None

    def close(self) -> None:
        """Do nothing: no file is kept open."""


def _columns(sizes: MapSizes, kinds: MappingKinds) -> dict[str, Value]:
    return {
        "anon_mapping_bytes": kinds.anon_bytes,
        "file_mapping_bytes": kinds.file_bytes,
        "shmem_mapping_bytes": kinds.shmem_bytes,
        "heap_bytes": kinds.heap_bytes,
        "stack_bytes": kinds.stack_bytes,
        "mappings": kinds.mappings,
        **{name: getattr(sizes, name) for name in _SUMS},
    }
