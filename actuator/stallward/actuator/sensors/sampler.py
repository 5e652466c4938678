"""All raw signals of one tick, from files kept open."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from stallward.actuator.errors import KernelFileError
from stallward.actuator.groups import Group, Hierarchy
from stallward.actuator.latency.source import LatencySource
from stallward.actuator.paths import Paths
from stallward.actuator.process_trees import Forest
from stallward.actuator.sensors.cpu import parse_cpu_usage_us
from stallward.actuator.sensors.freezer import parse_frozen
from stallward.actuator.sensors.machine import machine_zone
from stallward.actuator.sensors.memcg import GroupMemory, MemoryReader
from stallward.actuator.sensors.meminfo import MemoryInfo, parse_meminfo
from stallward.actuator.sensors.process import read_process
from stallward.actuator.sensors.psi import PsiReader
from stallward.actuator.sensors.signal_file import AnySignal, SignalFile
from stallward.actuator.sensors.tree_reader import TreeReader, share_of
from stallward.actuator.sensors.vmstat import VmStat, parse_vmstat
from stallward.actuator.targets import AnyTarget
from stallward.agent.sample import (
    GroupSample,
    LatencySample,
    NodeSample,
    ProcessSample,
    PsiTotals,
    Sample,
    SlotState,
)

T = TypeVar("T")


class _NodeReader:
    """/proc/pressure, /proc/meminfo and /proc/vmstat."""

    def __init__(self, paths: Paths) -> None:
        self._psi = PsiReader(paths.proc / "pressure")
        self._meminfo = SignalFile(paths.proc / "meminfo", parse_meminfo, MemoryInfo())
        self._vmstat = SignalFile(paths.proc / "vmstat", parse_vmstat, VmStat())
        self.signals: tuple[AnySignal, ...] = (*self._psi.signals, self._meminfo, self._vmstat)
        self.info = MemoryInfo()
        """As of the last read."""

    def read(self) -> NodeSample:
        info, stat = self._meminfo.read(), self._vmstat.read()
        self.info = info
        return NodeSample(
            psi=self._psi.read(),
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


class GroupReader:
    """The counters of one group; all absent while it is not there.

    Args:
        group: The group; for the whole machine (``/``) only what the root directory has.
    """

    def __init__(self, group: Group) -> None:
        unified, memory = group.unified_dir, group.memory_dir
        v2 = group.hierarchy.kind == "v2"
        self.name = group.name
        self._psi = None if unified is None else PsiReader(unified, ".pressure")
        self._memory = None if memory is None else MemoryReader(memory, v2=v2)
        self._cpu: SignalFile[int | None] | None = None
        self._frozen: SignalFile[bool | None] | None = None
        if unified is not None:
            self._cpu = SignalFile(unified / "cpu.stat", parse_cpu_usage_us, None)
            self._frozen = SignalFile(unified / "cgroup.events", parse_frozen, None)

    @property
    def signals(self) -> tuple[AnySignal, ...]:
        """Every file of the group."""
        psi = () if self._psi is None else self._psi.signals
        memory = () if self._memory is None else self._memory.signals
        cpu = () if self._cpu is None else (self._cpu,)
        return (*psi, *memory, *cpu, *self.frozen)

    @property
    def demand(self) -> tuple[AnySignal, ...]:
        """What says how much memory the group uses and how long it waits for more."""
        psi = () if self._psi is None else (self._psi.memory,)
        return psi if self._memory is None else (*psi, self._memory.usage)

    @property
    def limits(self) -> tuple[AnySignal, ...]:
        """What says how much memory the group may use."""
        return () if self._memory is None else self._memory.limits

    @property
    def frozen(self) -> tuple[AnySignal, ...]:
        """What says whether the group is frozen."""
        return () if self._frozen is None else (self._frozen,)

    def read(self) -> GroupSample:
        """The present values."""
        memory = GroupMemory() if self._memory is None else self._memory.read()
        return GroupSample(
            name=self.name,
            psi=PsiTotals() if self._psi is None else self._psi.read(),
            memory_usage_bytes=memory.usage_bytes,
            memory_limit_bytes=memory.limit_bytes,
            anon_bytes=memory.anon_bytes,
            file_bytes=memory.file_bytes,
            inactive_file_bytes=memory.inactive_file_bytes,
            swap_bytes=memory.swap_bytes,
            dirty_bytes=memory.dirty_bytes,
            writeback_bytes=memory.writeback_bytes,
            refault_file_pages=memory.refault_file_pages,
            refault_anon_pages=memory.refault_anon_pages,
            major_faults=memory.major_faults,
            cpu_usage_us=None if self._cpu is None else self._cpu.read(),
            oom_kills=memory.oom_kills,
            frozen=None if self._frozen is None else self._frozen.read(),
        )


def _reader(paths: Paths, target: AnyTarget, share: int) -> GroupReader | TreeReader:
    if isinstance(target, Group):
        return GroupReader(target)
    return TreeReader(paths.proc, target, share)


class Sampler:
    """Reads samples; keeps every file open between ticks.

    Args:
        paths: The kernel's files.
        hierarchy: The node's cgroup hierarchies.
        zone: What the protected application and the background share.
        protected: The protected application's group or process tree.
        slots: The background groups or trees, in slot order.
        forest: Refreshes the trees.
        latency_source: Where the protected application's latencies come from, if anywhere.
        needs_processes: Whether the controller wants the background's processes listed.
    """

    def __init__(
        self,
        *,
        paths: Paths,
        hierarchy: Hierarchy,
        zone: Group,
        protected: AnyTarget,
        slots: Sequence[AnyTarget],
        forest: Forest | None = None,
        latency_source: LatencySource | None = None,
        needs_processes: bool = False,
    ) -> None:
        self._paths = paths
        self._v2 = hierarchy.kind == "v2"
        self._node = _NodeReader(paths)
        self._zone = GroupReader(zone)
        share = share_of(sum(not isinstance(group, Group) for group in (protected, *slots)))
        self._protected = _reader(paths, protected, share)
        self._slot_groups = tuple(slots)
        self._slots = tuple(_reader(paths, group, share) for group in slots)
        self._in_zone = tuple(
            isinstance(group, Group) and zone.contains(group) for group in (protected, *slots)
        )
        self._whole_machine = zone.is_root
        self._forest = forest
        self._latency = latency_source
        self.needs_processes = needs_processes
        groups = (self._zone, self._protected, *self._slots)
        self._signals = (*self._node.signals, *(s for group in groups for s in group.signals))
        # Whom to protect, the scale of the observation, and what the guard's budgets count.
        self._essential: tuple[AnySignal, ...] = (
            *self._protected.demand,
            *self._zone.limits,
            *(signal for slot in self._slots for signal in slot.frozen),
        )
        self._other_faults: list[str] = []

    @property
    def faults(self) -> tuple[str, ...]:
        """Which signals were there in the last read but could not be understood, and why."""
        of_files = (str(signal.fault) for signal in self._signals if signal.fault is not None)
        of_trees = (f"{tree.name}: {fault}" for tree in self._trees for fault in tree.faults)
        of_forest = () if self._forest is None else self._forest.faults
        return (*of_files, *of_trees, *of_forest, *self._other_faults)

    @property
    def absent(self) -> tuple[str, ...]:
        """What process trees lack of what groups have, and why."""
        return tuple(f"{tree.name}: {reason}" for tree in self._trees for reason in tree.absent)

    @property
    def _trees(self) -> tuple[TreeReader, ...]:
        return tuple(
            reader for reader in (self._protected, *self._slots) if isinstance(reader, TreeReader)
        )

    def read(
        self, sequence: int, slot_states: Sequence[SlotState], profile: str = "default"
    ) -> Sample:
        """Read everything once; what is absent is ``None``.

        Args:
            sequence: Number of the tick.
            slot_states: What the levers of each slot are doing, in slot order.
            profile: The tuning profile in force.

        Raises:
            SensorError: If an essential signal is there but cannot be read or understood. Any
                other one is absent then, and among the ``faults``.
        """
        time_s = time.monotonic()
        self._other_faults.clear()
        if self._forest is not None:
            self._forest.refresh()
        protected = self._protected.read()
        slots = tuple(reader.read() for reader in self._slots)
        zone = self._zone.read()
        for signal in self._essential:
            if signal.fault is not None:
                raise signal.fault
        if not self._v2 and zone.oom_kills is not None:
            # v1 counts a kill only in the group of the process that died.
            inside = zip((protected, *slots), self._in_zone, strict=True)
            kills = sum(group.oom_kills or 0 for group, within in inside if within)
            zone = replace(zone, oom_kills=zone.oom_kills + kills)
        node = self._node.read()
        if self._whole_machine:
            zone = machine_zone(zone, node, self._node.info)
        return Sample(
            sequence=sequence,
            time_s=time_s,
            node=node,
            zone=zone,
            protected=protected,
            slots=slots,
            slot_states=tuple(slot_states),
            latency=self._noting(self._read_latency, None),
            processes=self._read_processes() if self.needs_processes else None,
            profile=profile,
        )

    def _read_latency(self) -> LatencySample | None:
        return None if self._latency is None else self._latency.read(time.monotonic())

    def _read_processes(self) -> tuple[ProcessSample, ...]:
        found = []
        for slot, group in enumerate(self._slot_groups):
            pids: tuple[int, ...] = self._noting(partial(group.pids, recursive=True), ())
            for pid in pids:
                process = self._noting(partial(read_process, self._paths.proc, pid, slot), None)
                if process is not None:
                    found.append(process)
        return tuple(found)

    def _noting(self, read: Callable[[], T], absent: T) -> T:
        """What ``read`` gives; if it cannot, ``absent``, and the reason among the faults."""
        try:
            return read()
        except KernelFileError as error:
            self._other_faults.append(str(error))
            return absent

    def close(self) -> None:
        """Close every file."""
        for signal in self._signals:
            signal.close()
        if self._latency is not None:
            self._latency.close()
