"""The memory of the node, and of a cgroup: appendix D of the thesis, and more."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.kernel.files import why_unreadable
from stallward.actuator.sensors.files.meminfo import MemoryInfo
from stallward.actuator.sensors.group_reader import GroupReader
from stallward.actuator.sensors.node_reader import NodeReader
from stallward.agent.sample import GroupSample, NodeSample, PsiTotals
from stallward.lens.errors import LensError
from stallward.lens.trace.columns import (
    Column,
    Table,
    Value,
    kib,
    percent,
)
from stallward.lens.trace.page_cache import PageCacheLens

_TOTAL: Final = "node_memory_total_bytes"


def _size(name: str, key: str, meaning: str, heading: str = "") -> Column:
    return Column(
        name=f"node_{name}_bytes", source=f"meminfo, {key}", meaning=meaning, heading=heading
    )


def _count(name: str, source: str, meaning: str, heading: str = "") -> Column:
    return Column(
        name=f"node_{name}", source=source, meaning=meaning, counter=True, heading=heading
    )


def _group(
    name: str, source: str, meaning: str, heading: str = "", *, counter: bool = False
) -> Column:
    return Column(
        name=f"group_{name}", source=source, meaning=meaning, counter=counter, heading=heading
    )


def _stalls(place: str, source: str) -> tuple[Column, ...]:
    return tuple(
        Column(
            name=f"{place}_psi_{resource}_{line}_us",
            source=f"{source.format(resource)}, {line} total",
            meaning=f"stalled on {resource}; `trace psi` also has the averages",
            counter=True,
            heading=f"{place} {resource} {line}" if resource != "cpu" else "",
        )
        for resource in ("memory", "io", "cpu")
        for line in ("some", "full")
    )


_NODE: Final = (
    _size("memory_total", "MemTotal", "memory of the machine", "total"),
    _size("memory_free", "MemFree", "used for nothing at all", "free"),
    _size(
        "memory_used",
        "MemTotal - MemFree - Buffers - Cached - SReclaimable",
        "used, as free(1) said until procps 4.0",
        "used",
    ),
    _size("memory_available", "MemAvailable", "could be had without swapping", "available"),
    _size("memory_shared", "Shmem", "shared memory and tmpfs", "shared"),
    _size("memory_buffer", "Buffers", "page cache of raw disks", "buffers"),
    _size(
        "memory_cache",
        "Cached + SReclaimable",
        "page cache, and what the kernel can give up, as vmstat(8) says",
        "cache",
    ),
    _size("swap_total", "SwapTotal", "swap", "swap"),
    _size("swap_used", "SwapTotal - SwapFree", "swap in use", "swap used"),
    _size("swap_free", "SwapFree", "swap that is free"),
    _size("anon", "AnonPages + Shmem", "needs swap to be reclaimed", "anon"),
    _size("file", "Cached + Buffers - Shmem", "pages of files", "file"),
    _size("inactive_file", "Inactive(file)", "the part of them that is reclaimed first"),
    _size("dirty", "Dirty", "waits to be written back", "dirty"),
    _size("writeback", "Writeback", "is being written back", "writeback"),
    _count("swap_in_pages", "vmstat, pswpin", "pages swapped in", "swapped in/s"),
    _count("swap_out_pages", "vmstat, pswpout", "pages swapped out", "swapped out/s"),
    _count("major_faults", "vmstat, pgmajfault", "page faults that waited for I/O", "major/s"),
    _count(
        "refault_file_pages",
        "vmstat, workingset_refault_file",
        "pages of files that came back soon after they were reclaimed",
        "file refaults/s",
    ),
    _count(
        "refault_anon_pages",
        "vmstat, workingset_refault_anon",
        "the same for anonymous pages",
        "anon refaults/s",
    ),
    _count("scan_kswapd_pages", "vmstat, pgscan_kswapd", "pages that kswapd looked at"),
    _count("scan_direct_pages", "vmstat, pgscan_direct", "pages that allocations looked at"),
    _count("steal_kswapd_pages", "vmstat, pgsteal_kswapd", "pages that kswapd reclaimed"),
    _count(
        "steal_direct_pages",
        "vmstat, pgsteal_direct",
        "pages that allocations reclaimed",
        "direct reclaim/s",
    ),
    _count("allocation_stalls", "vmstat, allocstall*", "allocations that had to reclaim"),
    _count("page_cache_hits", "eBPF", "page-cache lookups that found the page", "cache hits/s"),
    _count("page_cache_misses", "eBPF", "page-cache lookups that brought it in", "cache misses/s"),
    _count("cpu_time_us", "stat, cpu", "time of all processors"),
    _count("cpu_idle_us", "stat, idle + iowait", "the part in which they had nothing to run"),
    *_stalls("node", "pressure/{0}"),
)
_GROUP: Final = (
    _group("memory_usage_bytes", "memory.current", "memory in use", "group used"),
    _group("memory_limit_bytes", "memory.max", "limit; empty without one", "group limit"),
    _group("anon_bytes", "memory.stat", "anonymous and shared memory", "group anon"),
    _group("file_bytes", "memory.stat", "pages of files", "group file"),
    _group("inactive_file_bytes", "memory.stat", "the part that is reclaimed first"),
    _group("swap_bytes", "memory.swap.current", "in swap", "group swap"),
    _group("dirty_bytes", "memory.stat", "waits to be written back"),
    _group("writeback_bytes", "memory.stat", "is being written back"),
    _group("refault_file_pages", "memory.stat", "refaults of files", counter=True),
    _group("refault_anon_pages", "memory.stat", "refaults of anonymous pages", counter=True),
    _group("major_faults", "memory.stat", "major page faults", "group major/s", counter=True),
    _group("cpu_usage_us", "cpu.stat", "processor time", "group CPU", counter=True),
    _group("working_set_bytes", "memory.stat", "estimated from refaults, as in recordings"),
    _group("oom_kills", "memory.events", "kills by the kernel", counter=True),
    _group("max_events", "memory.events", "usage was about to exceed the limit", counter=True),
    *_stalls("group", "{0}.pressure"),
)
_THESIS_SIZES: Final = (
    ("FreeRAM", "Freep", "node_memory_free_bytes"),
    ("UsedRAM", "Usedp", "node_memory_used_bytes"),
    ("AvailableRAM", "Availablep", "node_memory_available_bytes"),
    ("SharedRAM", "Sharedp", "node_memory_shared_bytes"),
    ("BufferRAM", "Bufferp", "node_memory_buffer_bytes"),
    ("CacheRAM", "Cachep", "node_memory_cache_bytes"),
)

TABLE: Final = Table(
    kind="node",
    what="the memory of the node, and of a cgroup",
    appendix="D",
    columns=(*_NODE, *_GROUP),
    thesis=(
        kib("TotalRAM", _TOTAL),
        *(
            column
            for size, share, name in _THESIS_SIZES
            for column in (
                kib(size, name),
                percent(share, name, _TOTAL),
            )
        ),
        kib("TotalSwap", "node_swap_total_bytes"),
        kib("UsedSwap", "node_swap_used_bytes"),
        kib("AvailableSwap", "node_swap_free_bytes"),
        percent("Usedswapp", "node_swap_used_bytes", "node_swap_total_bytes"),
    ),
)


class NodeTracer:
    """Traces the memory of the node.

    Args:
        proc: The /proc directory.
        page_cache: Counts page-cache lookups; closed with this.
        group: A group that is traced beside it.

    Raises:
        LensError: If /proc has no meminfo.
    """

    table = TABLE

    def __init__(
        self, proc: Path, *, page_cache: PageCacheLens, group: Cgroup | None = None
    ) -> None:
        if not (proc / "meminfo").exists():
            raise LensError(f"There is no {proc / 'meminfo'}.", next_step="Mount proc there.")
        self._node = NodeReader(proc)
        self._group = None if group is None else GroupReader(group)
        self._page_cache = page_cache
        why = why_unreadable(proc / "pressure/memory")
        self._no_psi = (f"pressure stall information: {why}",) if why else ()

    @property
    def missing(self) -> tuple[str, ...]:
        """What could not be read at the last tick, and why."""
        group = () if self._group is None else self._group.signals
        faults = (file.fault for file in (*self._node.signals, *group))
        known = tuple(str(fault) for fault in faults if fault is not None)
        return (*known, *self._no_psi, *self._page_cache.missing)

    def read(self) -> list[dict[str, Value]]:
        """Read the one row of a tick."""
        self._page_cache.read()
        sample = self._node.read()
        row = _node_row(sample, self._node.info)
        lookups = self._page_cache.node
        row["node_page_cache_hits"] = None if lookups is None else lookups.hits
        row["node_page_cache_misses"] = None if lookups is None else lookups.misses
        if self._group is not None:
            row |= _group_row(self._group.read(time.monotonic()))
        return [row]

    def close(self) -> None:
        """Close every file, and detach from the kernel."""
        self._page_cache.close()
        group = () if self._group is None else self._group.signals
        for file in (*self._node.signals, *group):
            file.close()


def _node_row(sample: NodeSample, info: MemoryInfo) -> dict[str, Value]:
    cached = _less(info.cached_bytes, -(info.reclaimable_slab_bytes or 0))
    used = _less(info.total_bytes, info.free_bytes, info.buffer_bytes, cached)
    row: dict[str, Value] = {
        "node_memory_free_bytes": info.free_bytes,
        "node_memory_used_bytes": used,
        "node_memory_shared_bytes": info.shared_bytes,
        "node_memory_buffer_bytes": info.buffer_bytes,
        "node_memory_cache_bytes": cached,
        "node_swap_used_bytes": _less(info.swap_total_bytes, info.swap_free_bytes),
        "node_anon_bytes": info.anon_bytes,
        "node_file_bytes": info.file_bytes,
        "node_inactive_file_bytes": info.inactive_file_bytes,
    }
    for column in _NODE:
        field = column.name.removeprefix("node_")
        if column.name not in row and hasattr(sample, field):
            row[column.name] = getattr(sample, field)
    return row | _stall_row("node", sample.psi)


def _less(whole: int | None, *parts: int | None) -> int | None:
    """``whole`` without ``parts``; ``None`` if one of them is not known."""
    known = [part for part in parts if part is not None]
    return None if whole is None or len(known) < len(parts) else max(whole - sum(known), 0)


def _group_row(sample: GroupSample) -> dict[str, Value]:
    names = [column.name for column in _GROUP if "_psi_" not in column.name]
    row: dict[str, Value] = {name: getattr(sample, name.removeprefix("group_")) for name in names}
    return row | _stall_row("group", sample.psi)


def _stall_row(place: str, psi: PsiTotals) -> dict[str, Value]:
    return {f"{place}_psi_{name}": getattr(psi, name) for name in PsiTotals.__slots__}
