"""Reads the resident sets of the programs in groups while they run."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.kernel.files import read_text
from stallward.env.sandbox.watch import PeriodicWatch

_PERIOD_S: Final = 0.25
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidentReading:
    """The resident sets at one time."""

    time_s: float
    """CLOCK_MONOTONIC."""
    resident_bytes: tuple[int, ...]
    """The sum over the processes of each group."""


class ResidentWatch(PeriodicWatch):
    """Reads /proc/PID/statm of all processes four times a second; a context manager.

    The thesis reads the same file. Samples have the resident set of processes only while a
    controller wants to see processes.

    Args:
        groups: The groups.
        proc: The /proc directory.
    """

    def __init__(self, groups: Sequence[Cgroup], proc: Path) -> None:
        super().__init__("resident-watch", _PERIOD_S)
        self._groups = groups
        self._proc = proc
        self._readings: list[ResidentReading] = []

    @property
    def readings(self) -> tuple[ResidentReading, ...]:
        """What was read so far, by time."""
        return tuple(self._readings)

    def _look(self) -> None:
        resident = tuple(resident_bytes(group, self._proc) for group in self._groups)
        self._readings.append(ResidentReading(time_s=time.monotonic(), resident_bytes=resident))


def resident_bytes(group: Cgroup, proc: Path) -> int:
    """The resident sets of a group's processes together; those that end meanwhile count 0."""
    pages = 0
    for pid in group.pids(recursive=True):
        parts = (read_text(proc / str(pid) / "statm") or "").split()
        if len(parts) > 1 and parts[1].isdigit():
            pages += int(parts[1])
    return pages * _PAGE_BYTES
