"""What the whole machine did meanwhile: idle processors, major faults, and what its disks did."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineUse:
    """What a machine did in a span of time, of itself and of everything that ran on it."""

    idle_s: float = 0.0
    """Time in which a processor had nothing to run, also because all waited for a disk; the sum
    over the processors."""
    major_faults: int = 0
    """Page faults that read from a disk or from swap."""
    disk_requests: int = 0
    """Reads and writes that disks finished."""
    disk_bytes: int = 0
    """What they read and wrote."""


class MachineWatch:
    """Counts from the moment on in which it is made.

    Args:
        proc: The /proc directory; its vmstat tells the faults.
    """

    def __init__(self, proc: Path) -> None:
        self._vmstat = proc / "vmstat"
        self._before = self._now()

    def since(self) -> MachineUse:
        """What happened since."""
        before, now = self._before, self._now()
        return MachineUse(
            idle_s=max(now.idle_s - before.idle_s, 0.0),
            major_faults=max(now.major_faults - before.major_faults, 0),
            disk_requests=max(now.disk_requests - before.disk_requests, 0),
            disk_bytes=max(now.disk_bytes - before.disk_bytes, 0),
        )

    def _now(self) -> MachineUse:
        cpu, disks = psutil.cpu_times(), psutil.disk_io_counters(perdisk=False)
        return MachineUse(
            idle_s=cpu.idle + getattr(cpu, "iowait", 0.0),
            major_faults=_major_faults(self._vmstat.read_text(encoding="ascii")),
            disk_requests=0 if disks is None else disks.read_count + disks.write_count,
            disk_bytes=0 if disks is None else disks.read_bytes + disks.write_bytes,
        )


def _major_faults(vmstat: str) -> int:
    """``pgmajfault`` of /proc/vmstat; 0 if the kernel does not count it."""
    for line in vmstat.splitlines():
        name, _, value = line.partition(" ")
        if name == "pgmajfault":
            return int(value)
    return 0
