"""The counters of the whole machine."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from stallward.actuator.sensors.files.cpu import MachineCpu, parse_machine_cpu
from stallward.actuator.sensors.files.flat import AnySignal, SignalFile
from stallward.actuator.sensors.files.meminfo import MeminfoParser, MemoryInfo, vmstat_file
from stallward.actuator.sensors.files.psi import PsiReader
from stallward.agent.sample import GroupSample, NodeSample, PsiTotals


class NodeReader:
    """Reads /proc/pressure, /proc/meminfo, /proc/vmstat and the first line of /proc/stat.

    Args:
        proc: The /proc directory.
    """

    def __init__(self, proc: Path) -> None:
        self._psi = PsiReader(proc / "pressure", machine=True)
        meminfo, vmstat = proc / "meminfo", proc / "vmstat"
        self._meminfo = SignalFile(meminfo, MeminfoParser(), MemoryInfo(), one_piece=True)
        self._vmstat = vmstat_file(vmstat)
        self._cpu = SignalFile(proc / "stat", parse_machine_cpu, MachineCpu(), one_piece=True)
        self.info = MemoryInfo()
        """The memory information of the last read."""
        self.page_cache: tuple[int, int] | None = None
        """Hits and misses in the page cache; whoever counts them sets them."""
        self._read_before = False
        self.signals: tuple[AnySignal, ...] = (
            *self._psi.signals,
            self._meminfo,
            self._vmstat,
            self._cpu,
        )

    def read(self, *, whole: bool = True) -> NodeSample:
        """Read the machine's counters; absent ones are ``None``.

        Args:
            whole: Whether to read the stalls for I/O and CPU, and the CPU time, too. They are
                needed at every tick only where the zone is the whole machine; else the last
                values are returned.
        """
        info, stat = self._meminfo.read(), self._vmstat.read()
        whole = whole or not self._read_before
        self._read_before = True
        self.info = info
        cpu = self._cpu.read() if whole else self._cpu.value
        hits, misses = self.page_cache or (None, None)
        return NodeSample(
            psi=self._psi.read(io_too=whole, cpu_too=whole),
            memory_total_bytes=info.total_bytes,
            memory_available_bytes=info.available_bytes,
            dirty_bytes=info.dirty_bytes,
            writeback_bytes=info.writeback_bytes,
            swap_total_bytes=info.swap_total_bytes,
            swap_free_bytes=info.swap_free_bytes,
            swap_in_pages=stat.swap_in_pages,
            swap_out_pages=stat.swap_out_pages,
            major_faults=stat.major_faults,
            refault_file_pages=stat.refault_file_pages,
            refault_anon_pages=stat.refault_anon_pages,
            scan_kswapd_pages=stat.scan_kswapd_pages,
            scan_direct_pages=stat.scan_direct_pages,
            steal_kswapd_pages=stat.steal_kswapd_pages,
            steal_direct_pages=stat.steal_direct_pages,
            allocation_stalls=stat.allocation_stalls,
            cpu_time_us=cpu.time_us,
            cpu_idle_us=cpu.idle_us,
            page_cache_hits=hits,
            page_cache_misses=misses,
        )


def machine_zone(root: GroupSample, node: NodeSample, info: MemoryInfo) -> GroupSample:
    """Make the sample of the zone ``/``.

    Signals that a group and the machine have in common are filled in from the machine's. Memory in
    use includes the page cache, as in a group.

    Args:
        root: The sample of a hierarchy's root group; all absent where there is none.
        node: The machine's counters.
        info: The machine's memory, from the same read.
    """
    used = None
    if info.total_bytes is not None and info.free_bytes is not None:
        used = max(info.total_bytes - info.free_bytes, 0)
    swap = None
    if info.swap_total_bytes is not None and info.swap_free_bytes is not None:
        swap = max(info.swap_total_bytes - info.swap_free_bytes, 0)
    machine: dict[str, Any] = {
        "memory_usage_bytes": used,
        "anon_bytes": info.anon_bytes,
        "file_bytes": info.file_bytes,
        "inactive_file_bytes": info.inactive_file_bytes,
        "swap_bytes": swap,
        "dirty_bytes": node.dirty_bytes,
        "writeback_bytes": node.writeback_bytes,
        "refault_file_pages": node.refault_file_pages,
        "refault_anon_pages": node.refault_anon_pages,
        "major_faults": node.major_faults,
    }
    filled = {name: value for name, value in machine.items() if getattr(root, name) is None}
    return replace(root, psi=_psi(root.psi, node.psi), **filled)


def _psi(root: PsiTotals, node: PsiTotals) -> PsiTotals:
    missing = {
        field.name: getattr(node, field.name)
        for field in fields(PsiTotals)
        if getattr(root, field.name) is None
    }
    return replace(root, **missing)
