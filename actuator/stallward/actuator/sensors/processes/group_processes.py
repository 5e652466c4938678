"""Counters summed over the processes of one group."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from stallward.actuator.errors import SensorError
from stallward.actuator.sensors.processes.members import Members
from stallward.actuator.sensors.processes.tracked_process import EndedError, TrackedProcess
from stallward.agent.sample import ProcessSample

_TICKS_PER_S = 100  # USER_HZ, the same on every architecture that runs this
_START_MARGIN_TICKS = 5

Counts = tuple[int, int, int]
"""The run delay in microseconds, bytes read and bytes written."""
Readings = tuple[int | None, int | None, int | None]
"""The same of one process; ``None`` for a counter that was never known."""
_ZERO: Final[Counts] = (0, 0, 0)
_UNKNOWN: Final = (None, None, None)
_FEW: Final = 8
"""How many processes a tick can read besides those whose turn it is."""


class GroupProcesses:
    """The processes of one group, and counters summed over them.

    A sum never falls: the counters of ended processes stay in it. A process that moves in from
    another group counts from then on. Sums are unknown until each process was read once.

    Args:
        members: Lists the processes.
        slot: The slot; -1 for the protected application.
        proc: The /proc directory.
    """

    def __init__(self, members: Members, slot: int, proc: Path) -> None:
        self.slot = slot
        self.tracked: dict[int, TrackedProcess] = {}
        """The processes by pid."""
        self.arrivals: list[TrackedProcess] = []
        """New processes; the user of this list clears it."""
        self.fault: SensorError | None = None
        """Why the last listing failed or lacks some; ``None`` if it did not."""
        self._members = members
        self._proc = proc
        self._pids: frozenset[int] | None = None
        self._unread: set[int] = set()
        self._absent_before: dict[int, float | None] = {}
        self._counted: dict[int, Readings] = {}
        self._unknown: tuple[set[int], set[int], set[int]] = (set(), set(), set())
        """For each of :data:`Counts`, the processes whose counter is not known now."""
        self._totals = _ZERO
        self._complete = False
        self._listed_ticks: float | None = None

    def look(self, keep: int) -> bool:
        """Add new processes and drop those that left; returns whether anything changed.

        Args:
            keep: How many processes may keep their files open.
        """
        try:
            pids = self._members.pids()
            self.fault = self._members.fault
        except SensorError as error:
            self.fault = error
            return False
        before_ticks = self._listed_ticks
        self._listed_ticks = time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS_PER_S
        if pids is self._pids:
            return False
        self._pids = pids
        for pid in self.tracked.keys() - pids:
            self._forget(pid)
        for pid in sorted(pids - self.tracked.keys()):
            process = TrackedProcess(self._proc, pid, self.slot, keep=len(self.tracked) < keep)
            self.tracked[pid] = process
            self.arrivals.append(process)
            self._unread.add(pid)
            self._absent_before[pid] = before_ticks
        self._complete = self._complete or not self._unread
        return True

    def take_turn(self, process: TrackedProcess, now_s: float, pss_bytes: int | None) -> bool:
        """Read one process; returns whether it still exists."""
        before = process.sample
        try:
            process.read(now_s, pss_bytes)
        except EndedError:
            self._forget(process.pid)
            self._pids = None  # its pid may be used again already, so compare the whole list
            return False
        if process.sample is not None:
            self._count(process, process.sample, stale=process.sample is before)
            self._unread.discard(process.pid)
        self._complete = self._complete or not self._unread
        return True

    def _count(self, process: TrackedProcess, sample: ProcessSample, *, stale: bool) -> None:
        pid, io = process.pid, process.io
        last: Readings = self._counted.get(pid, _ZERO)
        readings: Readings = (sample.run_delay_us, io.read_bytes, io.written_bytes)
        for unknown, reading in zip(self._unknown, readings, strict=True):
            _mark(unknown, pid, stale or reading is None)
        if pid not in self._counted:
            before = self._absent_before.pop(pid, None)
            if before is not None and sample.start_time_ticks + _START_MARGIN_TICKS < before:
                last = readings  # it was in another group before
        self._counted[pid] = tuple(map(_known, readings, last))  # type: ignore[assignment]
        if readings != last:
            delay, read, written = map(_growth, readings, last)
            total = self._totals
            self._totals = (total[0] + delay, total[1] + read, total[2] + written)

    def _forget(self, pid: int) -> None:
        process = self.tracked.pop(pid, None)
        if process is not None:
            process.close()
        for known in (self._unread, *self._unknown):
            known.discard(pid)
        self._counted.pop(pid, None)
        self._absent_before.pop(pid, None)
        self._complete = self._complete or not self._unread

    @property
    def unread(self) -> int:
        """How many processes have not been read yet."""
        return len(self._unread)

    @property
    def sums(self) -> tuple[int | None, int | None, int | None]:
        """Run delay in microseconds, bytes read from storage, bytes written to it."""
        if not self._complete:
            return _UNKNOWN
        (delay_us, read, written), (no_delay, no_read, no_written) = self._totals, self._unknown
        return (
            None if no_delay else delay_us,
            None if no_read else read,
            None if no_written else written,
        )

    @property
    def read_bytes(self) -> int | None:
        """Bytes that the processes have read from storage."""
        return self.sums[1]

    def read_now(self, now_s: float) -> bool:
        """Read all processes again in this tick; false if there are too many or none."""
        self.look(_FEW)
        if not 0 < len(self.tracked) <= _FEW:
            return False
        for process in tuple(self.tracked.values()):
            sample = process.sample
            self.take_turn(process, now_s, None if sample is None else sample.pss_bytes)
        return True

    def close(self) -> None:
        """Close every file."""
        self._members.close()
        for process in self.tracked.values():
            process.close()


def _known(now: int | None, last: int | None) -> int | None:
    return last if now is None else now


def _growth(now: int | None, last: int | None) -> int:
    """How much a counter grew; what it was before it became known does not count."""
    return 0 if now is None or last is None else max(now - last, 0)


def _mark(pids: set[int], pid: int, wanted: bool) -> None:
    if wanted:
        pids.add(pid)
    else:
        pids.discard(pid)
