"""The counters of one group, from its files and its processes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.kernel.target import is_unbound
from stallward.actuator.sensors.files.cpu import (
    CpuStat,
    IoBytes,
    cpu_stat_parser,
    parse_io_stat,
    parse_throttled_v1,
)
from stallward.actuator.sensors.files.flat import AnySignal, SignalFile, parse_frozen
from stallward.actuator.sensors.files.memcg import (
    GroupMemory,
    MemoryEvents,
    MemoryReader,
    SwapRoom,
)
from stallward.actuator.sensors.files.psi import PsiReader
from stallward.actuator.sensors.processes.group_processes import GroupProcesses
from stallward.actuator.sensors.working_set import RefaultCounters, WorkingSet
from stallward.agent.sample import GroupSample, PsiTotals

PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_NO_MEMORY: Final = GroupMemory()
_NO_PSI: Final = PsiTotals()
_NO_CPU: Final = CpuStat()
_NO_IO: Final = IoBytes()


@dataclass(frozen=True, slots=True, kw_only=True)
class EveryTick:
    """The files of a group that are read every tick, besides its memory stall and usage."""

    stat: bool = False
    """Whether memory.stat and the memory in swap are read."""
    limit: bool = False
    io_stall: bool = False
    cpu_stall: bool = False
    cpu: bool = False
    """Whether cpu.stat is read."""
    frozen: bool = False


# The features of a policy (stallward.agent.observation.raw) and the guard's budgets need these.
ZONE: Final = EveryTick(stat=True, limit=True, io_stall=True, cpu_stall=True)
PROTECTED: Final = EveryTick(stat=True, io_stall=True)
SLOT: Final = EveryTick(stat=True, io_stall=True, cpu=True, frozen=True)
FAR_SLOT: Final = EveryTick(frozen=True)
"""A slot beyond those that a policy sees."""
WHOLE: Final = EveryTick(
    stat=True, limit=True, io_stall=True, cpu_stall=True, cpu=True, frozen=True
)


class GroupReader:
    """Reads the counters of one group; all are absent while the group does not exist.

    Counters that change slowly, or that neither policy nor guard needs, are read in turn: a file
    costs some 25 us of a tick under pressure, since caches are cold.

    Args:
        group: The group. Of the whole machine (``/``) only the root directory's files are read.
        every_tick: The files to read every tick; the others are read in turn.
        processes: The group's processes, where they are read.
    """

    kind: ClassVar[Literal["group"]] = "group"

    def __init__(
        self,
        group: Cgroup,
        *,
        every_tick: EveryTick = WHOLE,
        processes: GroupProcesses | None = None,
    ) -> None:
        unified, memory, cpu_v1 = group.unified_dir, group.memory_dir, group.v1_dir("cpu")
        self.group = group
        self._unbound = is_unbound(group)
        self.every_tick = every_tick
        """The files to read every tick."""
        self.processes = processes
        self.pss_bytes: int | None = None
        """The sum over the processes; the sampler sets it."""
        self.page_cache: tuple[int, int] | None = None
        """Hits and misses of the group in the page cache; whoever counts them sets them."""
        self._v2 = group.hierarchy.kind == "v2"
        self._psi = self._memory = self._cpu = self._frozen = self._io = self._throttled = None
        if memory is not None:
            self._memory = MemoryReader(memory, v2=self._v2)
        if unified is not None:
            self._psi = PsiReader(unified, ".pressure", machine=group.is_root)
            self._cpu = SignalFile(
                unified / "cpu.stat", cpu_stat_parser(), CpuStat(), one_piece=True
            )
            self._frozen = SignalFile(unified / "cgroup.events", parse_frozen, None)
        if self._v2 and unified is not None:
            self._io = SignalFile(unified / "io.stat", parse_io_stat, IoBytes(), one_piece=True)
        elif cpu_v1 is not None:
            self._throttled = SignalFile(cpu_v1 / "cpu.stat", parse_throttled_v1, None)
        root = group.hierarchy.unified_root
        self._swap_room = None
        if self._v2 and unified is not None and root is not None and not group.is_root:
            self._swap_room = SwapRoom(root, unified)
        self._swap_room_bytes: int | None = None
        self._working_set = WorkingSet()
        self._limit_bytes: int | None = None
        self._swap_bytes: int | None = None
        self._events = MemoryEvents()
        self._turn_read_s: float | None = None
        self._parts: tuple[object, ...] = ()
        self._sample = self._nothing = GroupSample(name=group.name)

    @property
    def signals(self) -> tuple[AnySignal, ...]:
        """All files of the group."""
        psi = () if self._psi is None else self._psi.signals
        memory = () if self._memory is None else self._memory.signals
        further = (self._cpu, self._frozen, self._io, self._throttled)
        return (*psi, *memory, *(signal for signal in further if signal is not None))

    def label(self, file: AnySignal) -> str:
        """The name of a file in the table of signals."""
        return f"cpu/{file.path.name}" if file is self._throttled else file.path.name

    @property
    def demand(self) -> tuple[AnySignal, ...]:
        """The files that tell the group's memory use and its memory stalls."""
        psi = () if self._psi is None else (self._psi.memory,)
        return psi if self._memory is None else (*psi, self._memory.usage)

    @property
    def limits(self) -> tuple[AnySignal, ...]:
        """The files that hold the group's memory limits."""
        return () if self._memory is None else self._memory.limits

    @property
    def frozen(self) -> tuple[AnySignal, ...]:
        """The file that says whether the group is frozen."""
        return () if self._frozen is None else (self._frozen,)

    def read(self, now_s: float, *, turn: bool = True, kills_below: int = 0) -> GroupSample:
        """Read the group.

        Args:
            now_s: The time now (CLOCK_MONOTONIC).
            turn: Whether to read also the files that are read in turn.
            kills_below: OOM kills in the groups below that the group's own files do not count.
        """
        if self._unbound:
            return self._nothing
        memory = self._memory
        usage = None if memory is None else memory.usage.read()
        turn = turn or self._turn_read_s is None or usage is None
        now = WHOLE if turn else self.every_tick
        psi = _NO_PSI
        if self._psi is not None:
            psi = self._psi.read(io_too=now.io_stall, cpu_too=now.cpu_stall)
        self._read_now(now, memory)
        if turn:
            self._read_turn(memory, now_s)
            if self._turn_read_s is None:
                return self._nothing
        stat = _NO_MEMORY if memory is None else memory.stat.value
        cpu = None if self._cpu is None else self._cpu.value
        frozen = None if self._frozen is None else self._frozen.value
        if usage is not None and now.stat and now_s >= self._working_set.due_s:
            self._estimate(usage, stat, now_s)
        processes = self.processes
        sums = (None,) * 3 if processes is None else processes.sums
        parts = (
            psi,
            usage,
            frozen,
            stat,
            cpu,
            self._limit_bytes,
            self._swap_bytes,
            self._swap_room_bytes,
            self._events,
            kills_below,
            self._working_set.pages,
            self.pss_bytes,
            self.page_cache,
            self._turn_read_s,
            sums,
        )
        if parts != self._parts:  # making a sample costs three times as much as comparing
            self._parts = parts
            self._sample = self._make(psi, usage, frozen, stat, cpu or _NO_CPU, kills_below, sums)
        return self._sample

    def _read_now(self, now: EveryTick, memory: MemoryReader | None) -> None:
        """Read the files that ``now`` selects, except those of stalls."""
        if memory is not None:
            if now.stat:
                memory.stat.read()
                self._swap_bytes = memory.read_swap_bytes()
            if now.limit:
                self._limit_bytes = memory.read_limit_bytes()
        if now.cpu and self._cpu is not None:
            self._cpu.read()
        if now.frozen and self._frozen is not None:
            self._frozen.read()

    def _read_turn(self, memory: MemoryReader | None, now_s: float) -> None:
        """Read the files that every group reads in turn."""
        if memory is not None:
            self._events = memory.read_events()
        for file in (self._io, self._throttled):
            if file is not None:
                file.read()
        if self._swap_room is not None:
            self._swap_room_bytes = self._swap_room.read(now_s)
        exists = any(signal.there for signal in self.signals)
        self._turn_read_s = now_s if exists else None

    def _estimate(self, usage: int, stat: GroupMemory, now_s: float) -> None:
        """Update the estimate of the working set."""
        file, anon = stat.refault_file_pages, stat.refault_anon_pages
        if file is None:
            return
        swapped = None if self._swap_bytes is None else self._swap_bytes // PAGE_BYTES
        away: int | None = None
        evicted = stat.reclaimed_pages
        refaults = file + (anon or 0)
        if evicted is not None:
            away = max(evicted - refaults - (swapped or 0), 0)
        elif self._working_set.refaulted_since(refaults):
            away, evicted = self._away_v1(stat, refaults, now_s)
        if anon is None and away is not None:  # this kernel counts both kinds as one
            away, swapped = away + (swapped or 0), 0
        self._working_set.update(
            RefaultCounters(
                time_s=now_s,
                usage_pages=usage // PAGE_BYTES,
                refault_file_pages=file,
                refault_anon_pages=anon or 0,
                away_file_pages=away,
                swapped_pages=swapped,
                evicted_pages=evicted,
            )
        )

    def _away_v1(
        self, stat: GroupMemory, refaults: int, now_s: float
    ) -> tuple[int | None, int | None]:
        """Estimate from disk reads the file pages evicted and not back, and all pages evicted."""
        processes = self.processes
        if processes is None or not processes.read_now(now_s) or processes.read_bytes is None:
            return None, None
        swapped = (stat.swap_bytes or 0) // PAGE_BYTES
        read = processes.read_bytes // PAGE_BYTES
        held = (stat.file_bytes or 0) // PAGE_BYTES
        not_held = read - refaults - held
        if not_held < -max(held // 16, 256):  # it wrote some of it, or a reader has ended
            return None, None
        return max(not_held, 0), read - held + swapped

    def _make(
        self,
        psi: PsiTotals,
        usage: int | None,
        frozen: bool | None,
        stat: GroupMemory,
        cpu: CpuStat,
        kills_below: int,
        sums: tuple[int | None, int | None, int | None],
    ) -> GroupSample:
        kills, pages = self._events.oom_kills, self._working_set.pages
        hits, misses = self.page_cache or (None, None)
        throttled = cpu.throttled_us if self._throttled is None else self._throttled.value
        io = _NO_IO if self._io is None else self._io.value
        if not self._v2:
            io = IoBytes(read_bytes=sums[1], written_bytes=sums[2])
        return GroupSample(
            name=self.group.name,
            psi=psi,
            memory_usage_bytes=usage,
            memory_limit_bytes=self._limit_bytes,
            anon_bytes=stat.anon_bytes,
            file_bytes=stat.file_bytes,
            inactive_file_bytes=stat.inactive_file_bytes,
            swap_bytes=self._swap_bytes,
            dirty_bytes=stat.dirty_bytes,
            writeback_bytes=stat.writeback_bytes,
            refault_file_pages=stat.refault_file_pages,
            refault_anon_pages=stat.refault_anon_pages,
            major_faults=stat.major_faults,
            cpu_usage_us=cpu.usage_us,
            cpu_user_us=cpu.user_us,
            oom_kills=None if kills is None else kills + kills_below,
            frozen=frozen,
            working_set_bytes=None if pages is None else pages * PAGE_BYTES,
            high_events=self._events.high_events,
            max_events=self._events.max_events,
            cpu_throttled_us=throttled,
            io_read_bytes=io.read_bytes,
            io_written_bytes=io.written_bytes,
            run_delay_us=sums[0],
            pss_bytes=self.pss_bytes,
            page_cache_hits=hits,
            page_cache_misses=misses,
            scanned_pages=stat.scanned_pages,
            swap_room_bytes=self._swap_room_bytes,
            turn_read_s=self._turn_read_s,
        )
