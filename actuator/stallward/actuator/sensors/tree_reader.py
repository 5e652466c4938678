"""The counters of a process tree, summed over its processes.

A process is read whole (four files, about 60 us), so a large tree is read in turn, a part at
each tick; sums are of what was read last. Counters only grow: what a process used until it was
read last is kept when it ends, what it used after that is lost. They count from when the tree
was first read.

Memory is the sum of the resident sets: pages that processes of the tree share count once for
each (PSS would not, but reading it takes a lock that a starved process holds).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.process_trees import ProcessTree
from stallward.actuator.sensors.files.signal_file import AnySignal
from stallward.actuator.sensors.processes.tree_process import Reading, Used, read_member
from stallward.agent.sample import GroupSample

READ_PER_SAMPLE: Final = 16
"""Processes that one sample reads, of all trees together: about 1 ms."""
_LEAST: Final = 3
"""But at least this many of each."""
NO_PSI: Final = "psi: a process tree has none of its own; the machine's is in `node`"
_COUNTERS: Final = tuple(field.name for field in fields(Used))


@dataclass(slots=True)
class _Totals:
    """What a tree has used since it was first read; ``None`` for what was never readable."""

    cpu_us: int | None = None
    major_faults: int | None = None
    run_delay_us: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None

    def add(self, now: Used, before: Used | None) -> None:
        for name in _COUNTERS:
            value = getattr(now, name)
            if value is None:
                continue
            growth = 0
            if before is not None:
                growth = max(value - (getattr(before, name) or 0), 0)
            setattr(self, name, (getattr(self, name) or 0) + growth)


class TreeReader:
    """Reads one tree.

    Args:
        proc: Where /proc is.
        tree: The tree; somebody else refreshes it.
        share: How many processes of it one sample may read.
    """

    signals: tuple[AnySignal, ...] = ()
    """A tree is read from no file that stays open: what goes wrong is among ``faults``."""
    demand = limits = frozen = signals

    def __init__(self, proc: Path, tree: ProcessTree, share: int = READ_PER_SAMPLE) -> None:
        self.name = tree.name
        self._proc = proc
        self._tree = tree
        self._share = share
        self._readings: dict[int, Reading] = {}
        self._turn: list[int] = []
        self._totals = _Totals()
        self._born_here: dict[int, bool] = {}
        """By member: whether it has started in this tree, and not just joined it."""
        self._youngest_ticks: int | None = None
        """The start of the youngest member there was at the last read."""
        self._absent: set[str] = set()
        self.faults: tuple[str, ...] = ()
        """What could not be read or understood in the last read."""

    @property
    def absent(self) -> tuple[str, ...]:
        """What of a group a tree does not have, and why."""
        empty = () if self._tree.members else ("every signal: no process of it is there",)
        return (NO_PSI, *empty, *sorted(self._absent))

    def read(self) -> GroupSample:
        """The present values; all absent while the tree is empty."""
        self._meet()
        faults = []
        for pid in self._due():
            try:
                self._take(pid)
            except KernelFileError as error:
                faults.append(str(error))
        self.faults = tuple(faults)
        return self._sum()

    def _meet(self) -> None:
        """Take note of who has come and gone."""
        members, youngest = self._tree.members, self._youngest_ticks
        for pid in [pid for pid in self._born_here if pid not in members]:
            del self._born_here[pid]
            self._readings.pop(pid, None)
        for pid, seen in members.items():
            ticks = seen.start_time_ticks
            if pid not in self._born_here:
                self._born_here[pid] = youngest is not None and ticks >= youngest
            self._youngest_ticks = max(self._youngest_ticks or 0, ticks)

    def _due(self) -> list[int]:
        """Whom to read now: who was never read, then the others in turn."""
        members = self._tree.members
        due = [pid for pid in members if pid not in self._readings][: self._share]
        spare = min(self._share - len(due), len(self._readings))
        while spare > 0:
            if not self._turn:
                self._turn = list(self._readings)
            pid = self._turn.pop()
            if pid in members and pid in self._readings:
                due.append(pid)
            spare -= 1
        return due

    def _take(self, pid: int) -> None:
        member, before = self._tree.members[pid], self._readings.get(pid)
        reading = read_member(self._proc, pid, self._absent)
        if reading is None or reading.seen.start_time_ticks != member.start_time_ticks:
            member.ended = True
            self._readings.pop(pid, None)
            return
        now = reading.seen
        member.group, member.session = now.group, now.session
        member.ended, member.stopped = now.ended, now.stopped
        if before is not None:
            self._totals.add(reading.used, before.used)
        else:  # all that it has used, it has used in this tree; or nothing yet
            self._totals.add(reading.used, Used() if self._born_here[pid] else None)
        self._readings[pid] = reading

    def _sum(self) -> GroupSample:
        live = [reading for reading in self._readings.values() if not reading.seen.ended]
        if not live:
            return GroupSample(name=self.name)
        # What is exiting has no memory of its own any more.
        anon = sum(r.status.anon_bytes or 0 for r in live)
        file = sum(r.status.file_bytes or 0 for r in live)
        totals = self._totals
        return GroupSample(
            name=self.name,
            memory_usage_bytes=anon + file,
            anon_bytes=anon,
            file_bytes=file,
            swap_bytes=sum(r.status.swap_bytes or 0 for r in live),
            major_faults=totals.major_faults,
            cpu_usage_us=totals.cpu_us,
            run_delay_us=totals.run_delay_us,
            io_read_bytes=totals.read_bytes,
            io_written_bytes=totals.written_bytes,
            frozen=all(r.seen.stopped for r in live),
        )


def share_of(trees: int) -> int:
    """How many processes of each tree a sample may read, of so many trees."""
    return max(READ_PER_SAMPLE // max(trees, 1), _LEAST)
