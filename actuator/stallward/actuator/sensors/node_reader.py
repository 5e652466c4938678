"""The counters of the whole machine."""

from __future__ import annotations

from pathlib import Path

from stallward.actuator.sensors.files.meminfo import MeminfoParser, MemoryInfo
from stallward.actuator.sensors.files.psi import PsiReader
from stallward.actuator.sensors.files.signal_file import AnySignal, SignalFile
from stallward.actuator.sensors.files.vmstat import vmstat_file
from stallward.agent.sample import NodeSample


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
