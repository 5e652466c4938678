"""The counters of the whole machine."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from stallward.actuator.sensors.files.meminfo import MeminfoParser, MemoryInfo
from stallward.actuator.sensors.files.psi import PsiReader
from stallward.actuator.sensors.files.signal_file import AnySignal, SignalFile
from stallward.actuator.sensors.files.vmstat import vmstat_file
from stallward.agent.sample import GroupSample, NodeSample, PsiTotals


class NodeReader:
    """/proc/pressure, /proc/meminfo and /proc/vmstat.

    Args:
        proc: Where /proc is.
    """

    def __init__(self, proc: Path) -> None:
        self._psi = PsiReader(proc / "pressure", machine=True)
        meminfo, vmstat = proc / "meminfo", proc / "vmstat"
        self._meminfo = SignalFile(meminfo, MeminfoParser(), MemoryInfo(), one_piece=True)
        self._vmstat = vmstat_file(vmstat)
        self.info = MemoryInfo()
        """As of the last read."""
        self._read_before = False
        self.signals: tuple[AnySignal, ...] = (*self._psi.signals, self._meminfo, self._vmstat)

    def read(self, *, whole: bool = True) -> NodeSample:
        """The present values; absent ones are ``None``.

        Args:
            whole: Whether to read also stalls for io and CPU, which only a zone that is the whole
                machine decides by; they stay as they were otherwise.
        """
        info, stat = self._meminfo.read(), self._vmstat.read()
        whole = whole or not self._read_before
        self._read_before = True
        self.info = info
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
        )


def machine_zone(root: GroupSample, node: NodeSample, info: MemoryInfo) -> GroupSample:
    """The zone ``/``.

    What means the same in a group and on the machine is taken over: its memory in use counts
    the page cache, as a group's does.

    Args:
        root: What the root group of a hierarchy has; all absent where there is none.
        node: The machine's counters.
        info: Of the same read.
    """
    used = None
    if info.total_bytes is not None and info.free_bytes is not None:
        used = max(info.total_bytes - info.free_bytes, 0)
    swap = None
    if info.swap_total_bytes is not None and info.swap_free_bytes is not None:
        swap = max(info.swap_total_bytes - info.swap_free_bytes, 0)
    found: dict[str, Any] = {
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
    absent = {name: value for name, value in found.items() if getattr(root, name) is None}
    return replace(root, psi=_psi(root.psi, node.psi), **absent)


def _psi(root: PsiTotals, node: PsiTotals) -> PsiTotals:
    missing = {
        field.name: getattr(node, field.name)
        for field in fields(PsiTotals)
        if getattr(root, field.name) is None
    }
    return replace(root, **missing)
