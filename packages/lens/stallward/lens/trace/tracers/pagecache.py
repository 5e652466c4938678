"""Page-cache hits and misses of the node and of processes, as cachestat and cachetop show them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from stallward.actuator.kernel.files import read_bytes
from stallward.actuator.kernel.process_table import parse_seen
from stallward.actuator.sensors.files.flat import SignalFile, flat_counts
from stallward.actuator.sensors.files.meminfo import MeminfoParser, MemoryInfo
from stallward.lens.errors import LensError
from stallward.lens.trace.columns import Column, ColumnType, Table, Value
from stallward.lens.trace.page_cache import PageCacheLens
from stallward.lens.trace.process_reader import name_in
from stallward.lens.trace.targets import Members, Target

if TYPE_CHECKING:
    from stallward.actuator.sensors.page_cache.counters import PageCacheCount

NODE_NAME: Final = "(node)"
"""What the row of the whole machine has as its name."""

TABLE: Final = Table(
    kind="pagecache",
    what="page-cache hits and misses of the node and of each process",
    key=("pid",),
    sparse=True,
    columns=(
        Column(
            name="pid",
            source="eBPF",
            meaning="the process; empty in the row of the whole machine",
            heading="PID",
        ),
        Column(
            name="name",
            source="stat, field 2",
            meaning=f"the program's name; `{NODE_NAME}` in the row of the whole machine",
            type=ColumnType.TEXT,
            heading="name",
        ),
        Column(
            name="page_cache_hits",
            source="eBPF",
            meaning="lookups that found the page, since the trace began",
            counter=True,
            heading="hits/s",
        ),
        Column(
            name="page_cache_misses",
            source="eBPF",
            meaning="lookups whose page had to be brought in, since the trace began",
            counter=True,
            heading="misses/s",
        ),
        Column(
            name="hit_ratio",
            source="eBPF",
            meaning="share of hits in the lookups since the tick before; empty without lookups",
            type=ColumnType.NUMBER,
            heading="hit ratio",
        ),
        Column(
            name="memory_buffer_bytes",
            source="meminfo, Buffers",
            meaning="page cache of raw disks; of the whole machine only",
            heading="buffers",
        ),
        Column(
            name="memory_cached_bytes",
            source="meminfo, Cached",
            meaning="page cache; of the whole machine only",
            heading="cached",
        ),
        Column(
            name="dirty_bytes",
            source="meminfo, Dirty",
            meaning="waits to be written back; of the whole machine only",
            heading="dirty",
        ),
        Column(
            name="dirtied_pages",
            source="vmstat, nr_dirtied",
            meaning="pages that were written to in memory; of the whole machine only",
            counter=True,
            heading="dirtied/s",
        ),
    ),
)


class PageCacheTracer:
    """Traces page-cache lookups.

    Args:
        proc: The /proc directory.
        page_cache: Counts the lookups; closed with this.
        target: Which processes; all if ``None``. There is a row for each that has looked pages
            up since the tick before.

    Raises:
        LensError: If the kernel does not allow the lookups to be counted.
    """

    table = TABLE

    def __init__(self, proc: Path, *, page_cache: PageCacheLens, target: Target | None) -> None:
        if page_cache.absent:
            raise LensError(
                f"Page-cache hits and misses cannot be counted: {page_cache.absent.rstrip('.')}.",
                next_step="It takes eBPF: root, and Linux 6.12 or later. `trace node` has "
                "refaults, which need neither: pages that were missed soon after their reclaim.",
            )
        self._proc = proc
        self._page_cache = page_cache
        self._meminfo = SignalFile(proc / "meminfo", MeminfoParser(), MemoryInfo(), one_piece=True)
        self._vmstat: SignalFile[int | None] = SignalFile(proc / "vmstat", _dirtied, None)
        self._before: dict[int | None, tuple[int, int]] = {}
        self._names: dict[int, str] = {}
        self._started: dict[int, int | None] = {}
        """When each process was started; ``None`` once it has ended."""
        self._earlier: dict[int | None, tuple[int, int]] = {}
        """The lookups of earlier processes with the same pid."""
        self._members = None if target is None else Members(target)

    @property
    def missing(self) -> tuple[str, ...]:
        """What could not be read so far, and why."""
        return self._page_cache.missing

    def read(self) -> list[dict[str, Value]]:
        """Read the row of the node, and one of each process.

        Raises:
            LensError: If the kernel refuses to go on.
        """
        self._page_cache.read()
        total = self._page_cache.node
        if total is None:
            raise LensError(f"The kernel has stopped counting: {self._page_cache.absent}.")
        info = self._meminfo.read()
        node: dict[str, Value] = {
            "pid": None,
            "name": NODE_NAME,
            **self._lookups(None, total.hits, total.misses),
            "memory_buffer_bytes": info.buffer_bytes,
            "memory_cached_bytes": info.cached_bytes,
            "dirty_bytes": info.dirty_bytes,
            "dirtied_pages": self._vmstat.read(),
        }
        members = self._members
        pids = self._page_cache.pids() if members is None else members.pids()
        rows = [node]
        for pid in sorted(pids):
            count = self._page_cache.count(pid)
            if count is None or not self._has_grown(pid, count):
                continue
            self._look_at(pid)
            row: dict[str, Value] = {"pid": pid, "name": self._names.get(pid)}
            rows.append(row | self._lookups(pid, count.hits, count.misses))
        return rows

    def _has_grown(self, pid: int, count: PageCacheCount) -> bool:
        return self._before.get(pid, (0, 0)) != (count.hits, count.misses)

    def _lookups(self, pid: int | None, hits: int, misses: int) -> dict[str, Value]:
        hits_before, misses_before = self._before.get(pid, (0, 0))
        self._before[pid] = (hits, misses)
        new = hits - hits_before + misses - misses_before
        earlier = self._earlier.get(pid, (0, 0))
        return {
            "page_cache_hits": hits - earlier[0],
            "page_cache_misses": misses - earlier[1],
            "hit_ratio": round((hits - hits_before) / new, 4) if new > 0 else None,
        }

    def _look_at(self, pid: int) -> None:
        """Take the name of a process, and note where another one has its pid now."""
        path = f"{self._proc}/{pid}/stat"
        stat = read_bytes(path)
        started = parse_seen(stat, path, pid).start_time_ticks if stat else None
        if started not in {None, self._started.get(pid, started)}:
            self._earlier[pid] = self._before.get(pid, (0, 0))
        self._started[pid] = started
        if stat:  # otherwise it has ended, and had the name that is known
            self._names[pid] = name_in(stat)

    def close(self) -> None:
        """Close every file, and detach from the kernel."""
        self._page_cache.close()
        self._meminfo.close()
        self._vmstat.close()


def _dirtied(content: bytes, path: Path) -> int | None:
    return flat_counts(content, (b"nr_dirtied",), path)[0]
