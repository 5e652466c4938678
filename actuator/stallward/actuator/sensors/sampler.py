"""All raw signals of one tick, from files kept open."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.cgroups import Cgroup, Hierarchy
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.kernel.process_trees import Forest
from stallward.actuator.kernel.target import AnyTarget
from stallward.actuator.latency.source import LatencySource
from stallward.actuator.sensors.files.signal_file import AnySignal
from stallward.actuator.sensors.group_reader import (
    FAR_SLOT,
    PROTECTED,
    SLOT,
    WHOLE,
    ZONE,
    EveryTick,
    GroupReader,
)
from stallward.actuator.sensors.node_reader import NodeReader, machine_zone
from stallward.actuator.sensors.processes.group_processes import GroupProcesses
from stallward.actuator.sensors.processes.members import members_of
from stallward.actuator.sensors.processes.pss import PssReader
from stallward.actuator.sensors.processes.round_robin import KEPT_OPEN, RoundRobin
from stallward.actuator.sensors.tree_reader import TreeReader, share_of
from stallward.agent.desired import SLOTS
from stallward.agent.sample import GroupSample, LatencySample, Sample, SlotState

T = TypeVar("T")

TURN_TICKS: Final = 10
"""Every group has had its turn after at most so many ticks."""
PROTECTED_SLOT: Final = -1
"""The slot of the protected application's processes: never one to act on."""
_FILES_PER_PROCESS: Final = 5


def _every_tick(number: int) -> EveryTick:
    """What is read every tick of the group ``number``: 0 is the protected application."""
    if number == 0:
        return PROTECTED
    return SLOT if number <= SLOTS else FAR_SLOT


class Sampler:
    """Reads samples; keeps every file open between ticks.

    What a policy sees of the zone, the protected application and the first slots is read every
    tick. The rest is read in turn, so that a tick takes as long as it takes with
    hundreds of groups and thousands of processes: ``GroupSample.turn_read_s`` and
    ``ProcessSample.read_s`` say when.

    Args:
        paths: The kernel's files.
        hierarchy: The node's cgroup hierarchies.
        zone: What the protected application and the background share.
        protected: The protected application's group or process tree.
        slots: The background groups or trees, in slot order.
        forest: Refreshes the trees.
        latency_source: Where the protected application's latencies come from, if anywhere.
        needs_processes: Whether the controller wants the processes listed.
    """

    def __init__(
        self,
        *,
        paths: Paths,
        hierarchy: Hierarchy,
        zone: Cgroup,
        protected: AnyTarget,
        slots: Sequence[AnyTarget],
        forest: Forest | None = None,
        latency_source: LatencySource | None = None,
        needs_processes: bool = False,
    ) -> None:
        self.kind = hierarchy.kind
        self.proc = paths.proc
        self.node = NodeReader(paths.proc)
        self.processes = tuple(
            GroupProcesses(members_of(target), slot, paths.proc)
            for slot, target in enumerate((protected, *slots), PROTECTED_SLOT)
        )
        self._turns = RoundRobin(self.processes, 1 + SLOTS, PssReader(paths.proc))
        self.zone = GroupReader(zone, every_tick=WHOLE if zone.is_root else ZONE)
        share = share_of(sum(not isinstance(target, Cgroup) for target in (protected, *slots)))
        self.groups = tuple(
            GroupReader(target, every_tick=_every_tick(number), processes=self.processes[number])
            if isinstance(target, Cgroup)
            else TreeReader(paths.proc, target, share)
            for number, target in enumerate((protected, *slots))
        )
        self._in_zone = tuple(
            isinstance(target, Cgroup) and zone.contains(target) for target in (protected, *slots)
        )
        self._whole_machine = zone.is_root
        self._forest = forest
        self.latency_source = latency_source
        self.needs_processes = needs_processes
        readers = (self.zone, *self.groups)
        self._signals = (*self.node.signals, *(s for reader in readers for s in reader.signals))
        allow_open_files(len(self._signals) + KEPT_OPEN * _FILES_PER_PROCESS)
        # Whom to protect, the scale of the observation, and what the guard's budgets count.
        self._essential: tuple[AnySignal, ...] = (
            *self.groups[0].demand,
            *self.zone.limits,
            *(signal for slot in self.groups[1:] for signal in slot.frozen),
        )
        self._next_turn = 0
        self._other_faults: list[str] = []

    @property
    def faults(self) -> tuple[str, ...]:
        """Which signals were there in the last read but could not be understood, and why."""
        of_files = [str(signal.fault) for signal in self._signals if signal.fault is not None]
        for group in self.processes:
            faults = (group.fault, *(process.fault for process in group.tracked.values()))
            of_files += [str(fault) for fault in faults if fault is not None]
        of_trees = (f"{tree.name}: {fault}" for tree in self._trees for fault in tree.faults)
        of_forest = () if self._forest is None else self._forest.faults
        return (*of_files, *of_trees, *of_forest, *self._other_faults)

    @property
    def passing_faults(self) -> tuple[str, ...]:
        """Those of the ``faults`` that are no file's of the kernel."""
        return tuple(self._other_faults)

    @property
    def absent(self) -> tuple[str, ...]:
        """What process trees lack of what groups have, and why."""
        return tuple(f"{tree.name}: {reason}" for tree in self._trees for reason in tree.absent)

    @property
    def _trees(self) -> tuple[TreeReader, ...]:
        return tuple(reader for reader in self.groups if isinstance(reader, TreeReader))

    def read(
        self, sequence: int, slot_states: Sequence[SlotState], profile: str = "default"
    ) -> Sample:
        """Read everything whose turn it is; what is absent is ``None``.

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
        in_turn = self._whose_turn()
        self._read_processes(in_turn, time_s)
        groups = [
            reader.read(time_s, turn=number in in_turn)
            if isinstance(reader, GroupReader)
            else reader.read()
            for number, reader in enumerate(self.groups)
        ]
        zone_too = len(self.groups) in in_turn
        zone = self.zone.read(time_s, turn=zone_too, kills_below=self._kills_below(groups))
        for signal in self._essential:
            if signal.fault is not None:
                raise signal.fault
        node = self.node.read(whole=zone_too or self._whole_machine)
        if self._whole_machine:
            zone = machine_zone(zone, node, self.node.info)
        return Sample(
            sequence=sequence,
            time_s=time_s,
            node=node,
            zone=zone,
            protected=groups[0],
            slots=tuple(groups[1:]),
            slot_states=tuple(slot_states),
            latency=self._noting(self._read_latency, None),
            processes=self._turns.samples() if self.needs_processes else None,
            profile=profile,
        )

    def _whose_turn(self) -> frozenset[int]:
        """The numbers of the groups whose turn it is; the zone comes last."""
        total = len(self.groups) + 1
        count = -(-total // TURN_TICKS)
        places = max(total, TURN_TICKS)  # with fewer groups, at some ticks it is nobody's turn
        first = self._next_turn
        self._next_turn = (first + count) % places
        turns = ((first + offset) % places for offset in range(count))
        return frozenset(number for number in turns if number < total)

    def _read_processes(self, in_turn: frozenset[int], now_s: float) -> None:
        """See who is there and read some of them."""
        asked = self.needs_processes
        look = [
            group
            for number, group in enumerate(self.processes)
            if (asked and number <= SLOTS) or (number in in_turn and self._summed(number, asked))
        ]
        self._turns.look(look)
        self._turns.take(now_s, asked=asked)
        for number in in_turn:
            reader = self.groups[number] if number < len(self.groups) else None
            if isinstance(reader, GroupReader):
                pss = self._turns.pss_bytes(self.processes[number]) if asked else None
                reader.pss_bytes = pss

    def _summed(self, number: int, asked: bool) -> bool:
        """Whether the processes are read: a tree is summed up by its own reader."""
        return asked or isinstance(self.groups[number], GroupReader)

    def _kills_below(self, groups: Sequence[GroupSample]) -> int:
        """OOM kills inside the zone: v1 counts one only in the group of the process that died."""
        if self.kind == "v2":
            return 0
        inside = zip(groups, self._in_zone, strict=True)
        return sum(group.oom_kills or 0 for group, within in inside if within)

    def _read_latency(self) -> LatencySample | None:
        source = self.latency_source
        return None if source is None else source.read(time.monotonic())

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
        self._turns.close()
        if self.latency_source is not None:
            self.latency_source.close()


_OTHERS: Final = 256
"""Sockets, levers and what else the process opens."""


def allow_open_files(count: int) -> None:
    """Raise the soft limit, if need be and as far as the hard one allows, for ``count`` files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + _OTHERS
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY:
        wanted = max(min(wanted, hard), soft)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
