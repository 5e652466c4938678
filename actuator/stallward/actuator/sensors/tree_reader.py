"""The counters of a process tree, summed over its processes.

Reading a process takes four files and about 60 us, so only a part of a large tree is read at each
tick, in turn; sums use the last reading of each process. Counters never fall: when a process ends,
its usage up to the last reading is kept, and the rest is lost. They count from the first reading
of the tree.

Memory is the sum of the resident sets, so a page that several processes of the tree share counts
once for each. PSS would count it once, but reading it takes a lock that a starved process holds.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import ClassVar, Final, Literal

from stallward.actuator.errors import KernelFileError, SensorError
from stallward.actuator.kernel.process_trees import ProcessTree
from stallward.actuator.sensors.files.flat import AnySignal
from stallward.actuator.sensors.processes.tree_process import Reading, Used, read_member
from stallward.agent.sample import GroupSample

READ_PER_SAMPLE: Final = 16
"""How many processes of all trees together one sample reads, in about 1 ms."""
_LEAST: Final = 3
"""How many processes of each tree one sample reads at least."""
NO_PSI: Final = "psi: a process tree has none of its own; the machine's is in `node`"
_COUNTERS: Final = tuple(field.name for field in fields(Used))


@dataclass(slots=True)
class _Totals:
    """The usage of a tree since it was first read; ``None`` for a counter never readable."""

    cpu_us: int | None = None
    major_faults: int | None = None
    run_delay_us: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None

    def add(self, now: Used, before: Used, *, started_here: bool) -> None:
        """Add what a process has used since ``before``, which lacks what was never readable."""
        for name in _COUNTERS:
            value, old = getattr(now, name), getattr(before, name)
            if value is None:
                continue
            if old is None:  # a process that started in this tree has used all of it here
                old = 0 if started_here else value
            setattr(self, name, (getattr(self, name) or 0) + max(value - old, 0))


def _kept(now: Used, before: Used) -> Used:
    """``now``, with the last known counters in place of those that cannot be read."""
    names = (name for name in _COUNTERS if getattr(now, name) is None)
    return replace(now, **{name: getattr(before, name) for name in names})


def _with_known(now: Reading, before: Reading) -> Reading:
    """``now``, with the last known sizes in place of those that cannot be understood."""
    known = now.lost - before.lost
    if not known:
        return now
    sizes = {name: getattr(before.status, name) for name in known}
    return replace(now, status=replace(now.status, **sizes), lost=now.lost & before.lost)


class TreeReader:
    """Reads one tree.

    Args:
        proc: The /proc directory.
        tree: The tree; the caller refreshes it.
        trees: How many trees there are: one sample reads a part of each.
    """

    kind: ClassVar[Literal["tree"]] = "tree"
    signals: tuple[AnySignal, ...] = ()
    """Empty, since no file of a tree is kept open; ``faults`` lists the errors."""
    demand = limits = frozen = signals

    def __init__(self, proc: Path, tree: ProcessTree, trees: int = 1) -> None:
        self.name = tree.name
        self._proc = proc
        self._tree = tree
        self._share = max(READ_PER_SAMPLE // trees, _LEAST)
        self._readings: dict[int, Reading] = {}
        self._turn: list[int] = []
        self._totals = _Totals()
        self._started_here: dict[int, bool] = {}
        """By member: whether it started in this tree, rather than joined it later."""
        self._youngest_ticks: int | None = None
        """The start time of the youngest member at the last read."""
        self._absent: set[str] = set()
        self.faults: tuple[str, ...] = ()
        """The errors of the last read."""

    @property
    def absent(self) -> tuple[str, ...]:
        """The signals of a group that a tree lacks, and why."""
        empty = () if self._tree.members else ("every signal: no process of it is there",)
        return (NO_PSI, *empty, *sorted(self._absent))

    def read(self, now_s: float, *, turn: bool = True) -> GroupSample:
        """Read the tree; all signals are absent while it is empty.

        Args:
            now_s: CLOCK_MONOTONIC.
            turn: Whether a group would read all of its files; of a tree each sample reads a part.
        """
        self._update_members()
        faults: list[KernelFileError] = []
        for pid in self._due():
            try:
                faults += self._take(pid)
            except KernelFileError as error:
                faults.append(error)
        self.faults = tuple(map(str, faults))
        return self._sum()

    def _update_members(self) -> None:
        """Note new members and forget those that are gone."""
        members, youngest = self._tree.members, self._youngest_ticks
        for pid in [pid for pid in self._started_here if pid not in members]:
            del self._started_here[pid]
            self._readings.pop(pid, None)
        for pid, seen in members.items():
            ticks = seen.start_time_ticks
            if pid not in self._started_here:
                self._started_here[pid] = youngest is not None and ticks >= youngest
            self._youngest_ticks = max(self._youngest_ticks or 0, ticks)

    def _due(self) -> list[int]:
        """The members to read now: first those never read, then the others in turn."""
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

    def _take(self, pid: int) -> list[SensorError]:
        """Read one process; return what could not be understood."""
        member, before = self._tree.members[pid], self._readings.get(pid)
        faults: list[SensorError] = []
        reading = read_member(self._proc, pid, self._absent, faults)
        if reading is None or reading.seen.start_time_ticks != member.start_time_ticks:
            member.ended = True
            self._readings.pop(pid, None)
            return []
        now = reading.seen
        member.group, member.session = now.group, now.session
        member.ended, member.stopped = now.ended, now.stopped
        used = Used() if before is None else before.used
        self._totals.add(reading.used, used, started_here=self._started_here[pid])
        reading = replace(reading, used=_kept(reading.used, used))
        self._readings[pid] = reading if before is None else _with_known(reading, before)
        return faults

    def _sum(self) -> GroupSample:
        live = [reading for reading in self._readings.values() if not reading.seen.ended]
        if not live:
            return GroupSample(name=self.name)
        anon, file = _total(live, "anon_bytes"), _total(live, "file_bytes")
        totals = self._totals
        return GroupSample(
            name=self.name,
            memory_usage_bytes=None if anon is None or file is None else anon + file,
            anon_bytes=anon,
            file_bytes=file,
            swap_bytes=_total(live, "swap_bytes"),
            major_faults=totals.major_faults,
            cpu_usage_us=totals.cpu_us,
            run_delay_us=totals.run_delay_us,
            io_read_bytes=totals.read_bytes,
            io_written_bytes=totals.written_bytes,
            frozen=all(r.seen.stopped for r in live),
        )


def _total(live: list[Reading], name: str) -> int | None:
    """The sum of a size over processes; ``None`` where it was never known of one of them."""
    if any(name in reading.lost for reading in live):
        return None
    # A process that is exiting has no memory of its own any more.
    return sum(getattr(reading.status, name) or 0 for reading in live)
