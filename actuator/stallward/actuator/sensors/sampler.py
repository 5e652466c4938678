"""Reads all raw signals of one tick from files that are kept open."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from stallward.actuator.errors import PartlyReadError
from stallward.actuator.kernel.cgroups import Cgroup, Hierarchy
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.kernel.target import AnyTarget
from stallward.actuator.runtime.process_setup import allow_open_files
from stallward.actuator.sensors.files.flat import AnySignal
from stallward.actuator.sensors.group_reader import WHOLE, ZONE, GroupReader
from stallward.actuator.sensors.node_reader import NodeReader, machine_zone
from stallward.actuator.sensors.processes.group_processes import GroupProcesses
from stallward.actuator.sensors.processes.members import JoinedMembers, Members, members_of
from stallward.actuator.sensors.processes.round_robin import KEPT_OPEN, PssReader, RoundRobin
from stallward.actuator.sensors.processes.threads import MOST_THREADS, ThreadReader
from stallward.actuator.sensors.readers import (
    AnyReader,
    ReadApplication,
    application_samples,
    every_tick_of,
    make_readers,
    read_latencies,
)
from stallward.agent.applications import joint_latency
from stallward.agent.desired import SLOTS
from stallward.agent.sample import (
    GroupSample,
    LeverState,
    Sample,
    SlotState,
    WorkSample,
)
from stallward.agent.threads import ThreadSample

if TYPE_CHECKING:
    from stallward.actuator.kernel.process_trees import Forest
    from stallward.actuator.sensors.pods_reader import PodsReader
    from stallward.actuator.sensors.tree_reader import TreeReader

TURN_TICKS: Final = 10
"""Every group is read whole at least once in this many ticks."""


class Turns:
    """Chooses the groups of a tick.

    Args:
        total: How many groups there are.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._next = 0

    def take(self) -> frozenset[int]:
        """The numbers of the groups to read whole at this tick."""
        count = -(-self._total // TURN_TICKS)
        places = max(self._total, TURN_TICKS)  # with fewer groups, some ticks have none in turn
        first = self._next
        self._next = (first + count) % places
        turns = ((first + offset) % places for offset in range(count))
        return frozenset(number for number in turns if number < self._total)


PROTECTED_SLOT: Final = -1
"""The slot number of the protected application's processes, which are never acted on."""
_FILES_PER_PROCESS: Final = 5
_FILES_PER_THREAD: Final = 3


class Sampler:
    """Reads samples; keeps every file open between ticks.

    Signals of the zone, the protected application and the first slots that a policy sees are read
    every tick. The others are read in turn, so that a tick stays short even with hundreds of
    groups and thousands of processes: ``GroupSample.turn_read_s`` and ``ProcessSample.read_s`` say
    when.

    Args:
        paths: The kernel's files.
        hierarchy: The node's cgroup hierarchies.
        zone: The group that the protected application and the background share.
        applications: The protected applications; all but one may be missing.
        slots: The background groups or trees, in slot order.
        forest: Refreshes the trees.
        slo_ms: The target that the latencies of several applications are compared to.
        needs_processes: Whether the controller wants the processes listed.
        needs_threads: Whether it wants the protected application's threads listed.
        shared: The names of the slots that several pods may share, by their numbers.
    """

    def __init__(
        self,
        *,
        paths: Paths,
        hierarchy: Hierarchy,
        zone: Cgroup,
        applications: Sequence[ReadApplication],
        slots: Sequence[AnyTarget],
        forest: Forest | None = None,
        slo_ms: float = 100.0,
        needs_processes: bool = False,
        needs_threads: bool = False,
        shared: Mapping[int, str] | None = None,
    ) -> None:
        self.kind = hierarchy.kind
        self.proc = paths.proc
        self.node = NodeReader(paths.proc)
        shared = shared or {}
        self.applications = tuple(applications)
        self.slo_ms = slo_ms
        joined = {slot: JoinedMembers() for slot in shared}
        self.processes = [
            GroupProcesses(self._members(), PROTECTED_SLOT, paths.proc),
            *(
                GroupProcesses(joined.get(slot) or members_of(target), slot, paths.proc)
                for slot, target in enumerate(slots)
            ),
        ]
        self._turns = RoundRobin(self.processes, 1 + SLOTS, PssReader(paths.proc))
        self.zone = GroupReader(zone, every_tick=WHOLE if zone.is_root else ZONE)
        self.groups = make_readers(
            paths.proc,
            [one.target for one in applications],
            slots,
            self.processes,
            {slot - PROTECTED_SLOT: (name, joined[slot]) for slot, name in shared.items()},
        )
        self._whole_machine = zone.is_root
        self._forest = forest
        self.needs_processes = needs_processes
        self.needs_threads = needs_threads
        self._threads = self._thread_reader()
        self._list_signals()
        allow_open_files(
            len(self._signals) + KEPT_OPEN * _FILES_PER_PROCESS + MOST_THREADS * _FILES_PER_THREAD
        )
        self._turns_of_groups = Turns(len(self.groups) + 1)
        self._other_faults: list[str] = []

    def _members(self) -> Members:
        """A list of the processes of the applications."""
        if len(self.applications) == 1:
            return members_of(self.applications[0].target)
        members = JoinedMembers()
        for one in self.applications:
            members.join(one.name, members_of(one.target))
        return members

    def _thread_reader(self) -> ThreadReader:
        members = [members_of(one.target) for one in self.applications]
        return ThreadReader(members, self.proc)

    def _list_signals(self) -> None:
        readers, zone = (self.zone, *self.groups), self.zone.group
        self._signals: tuple[AnySignal, ...] = (
            *self.node.signals, *(s for reader in readers for s in reader.signals),
        )  # fmt: skip
        # Without these nothing can be decided: the application's demand, the zone's limits (the
        # scale of the observation), and the frozen states (which the guard's budgets count).
        self._essential: tuple[AnySignal, ...] = (
            *self.groups[0].demand,
            *self.zone.limits,
            *(signal for slot in self.groups[1:] for signal in slot.frozen),
        )
        self._in_zone = tuple(
            reader.kind == "pods"
            or all(one.kind == "group" and zone.contains(one.group) for one in parts)
            for reader, parts in ((reader, _parts(reader)) for reader in self.groups)
        )

    def retarget(self, slo_ms: float, targets_ms: Sequence[float]) -> None:
        """Compare latencies with other targets from now on.

        Args:
            slo_ms: That of the node.
            targets_ms: That of each application.
        """
        self.slo_ms = slo_ms
        self.applications = tuple(
            replace(one, slo_ms=target_ms)
            for one, target_ms in zip(self.applications, targets_ms, strict=True)
        )

    def rebind(self, place: int, group: Cgroup) -> None:
        """Read another group of a slot, or of an application, from now on.

        Args:
            place: The slot; :data:`PROTECTED_SLOT` for the first application, and a number less
                for each further one.
            group: The group.
        """
        number = max(place - PROTECTED_SLOT, 0)
        if place <= PROTECTED_SLOT:
            self._replace_application(PROTECTED_SLOT - place, group)
            listed = GroupProcesses(self._members(), PROTECTED_SLOT, self.proc)
            self._threads.close()
            self._threads = self._thread_reader()
        else:
            listed = GroupProcesses(members_of(group), place, self.proc)
        self._turns.rebind(self.processes[number], listed)
        self.processes[number] = listed
        reader = self.groups[number]
        if reader.kind == "applications":
            reader.rebind(PROTECTED_SLOT - place, group, listed)
        else:
            for signal in reader.signals:
                signal.close()
            every_tick = every_tick_of(number)
            self.groups[number] = GroupReader(group, every_tick=every_tick, processes=listed)
        self._list_signals()

    def _replace_application(self, index: int, target: Cgroup) -> None:
        self.applications = tuple(
            replace(one, target=target) if number == index else one
            for number, one in enumerate(self.applications)
        )

    def pods(self, slot: int) -> PodsReader | None:
        """The reader of a slot that several pods may share; ``None`` for another slot."""
        reader = self.groups[slot - PROTECTED_SLOT]
        return reader if reader.kind == "pods" else None

    def join(self, slot: int, group: Cgroup) -> None:
        """Read one more pod of a slot that several pods may share."""
        if (reader := self.pods(slot)) is not None:
            reader.join(group)
            self._list_signals()

    def leave(self, slot: int, group: str) -> None:
        """Do not read a pod of such a slot any more."""
        if (reader := self.pods(slot)) is not None:
            reader.leave(group)
            self._list_signals()

    @property
    def faults(self) -> tuple[str, ...]:
        """The errors of the last read: signals that were present but could not be understood."""
        of_files = [str(signal.fault) for signal in self._signals if signal.fault is not None]
        for group in self.processes:
            faults = (group.fault, *(process.fault for process in group.tracked.values()))
            of_files += [str(fault) for fault in faults if fault is not None]
        of_trees = (f"{tree.name}: {fault}" for tree in self._trees for fault in tree.faults)
        of_forest = () if self._forest is None else self._forest.faults
        return (*of_files, *of_trees, *of_forest, *self._other_faults)

    @property
    def passing_faults(self) -> tuple[str, ...]:
        """The ``faults`` that do not come from a file of the kernel."""
        return tuple(self._other_faults)

    @property
    def absent(self) -> tuple[str, ...]:
        """The signals of groups that process trees lack, and why."""
        return tuple(f"{tree.name}: {reason}" for tree in self._trees for reason in tree.absent)

    @property
    def _trees(self) -> tuple[TreeReader, ...]:
        readers = (one for reader in self.groups for one in _parts(reader))
        return tuple(one for one in readers if one.kind == "tree")

    def read(
        self,
        sequence: int,
        slot_states: Sequence[SlotState],
        profile: str = "default",
        *,
        levers: tuple[LeverState, ...] = (),
        work: tuple[WorkSample, ...] = (),
    ) -> Sample:
        """Read everything that is due; absent signals are ``None``.

        Args:
            sequence: The tick's number.
            slot_states: The states of each slot's levers, in slot order.
            profile: The tuning profile in force.
            levers: Further levers that are not at their original values.
            work: The work of the slots that have a source of their own.

        Raises:
            SensorError: If an essential signal is present but cannot be read or parsed. Any other
                such signal is absent, and listed in ``faults``.
        """
        time_s = time.monotonic()
        self._other_faults.clear()
        if self._forest is not None:
            self._forest.refresh()
        in_turn = self._turns_of_groups.take()  # the zone has the last number
        self._read_processes(in_turn, time_s)
        groups = [
            reader.read(time_s, turn=number in in_turn)
            for number, reader in enumerate(self.groups)
        ]
        zone_too = len(self.groups) in in_turn
        zone = self.zone.read(time_s, turn=zone_too, kills_below=self._kills_below(groups))
        for signal in self._essential:
            if signal.fault is not None and not isinstance(signal.fault, PartlyReadError):
                raise signal.fault
        node = self.node.read(whole=zone_too or self._whole_machine)
        if self._whole_machine:
            zone = machine_zone(zone, node, self.node.info)
        protected = self.groups[0]
        latencies = read_latencies(self.applications, self._other_faults.append)
        applications = application_samples(
            self.applications,
            protected.each if protected.kind == "applications" else (groups[0],),
            latencies,
        )
        return Sample(
            sequence=sequence,
            time_s=time_s,
            node=node,
            zone=zone,
            protected=groups[0],
            slots=tuple(groups[1:]),
            slot_states=tuple(slot_states),
            latency=joint_latency(applications, self.slo_ms) if applications else latencies[0],
            applications=applications,
            processes=self._turns.samples() if self.needs_processes else None,
            protected_threads=self._read_threads(),
            profile=profile,
            levers=levers,
            work=work,
        )

    def _read_processes(self, in_turn: frozenset[int], now_s: float) -> None:
        """List the processes and read some of them."""
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
            if reader is not None and reader.kind != "tree":
                pss = self._turns.pss_bytes(self.processes[number]) if asked else None
                reader.pss_bytes = pss

    def _read_threads(self) -> tuple[ThreadSample, ...] | None:
        """The application's threads, where a controller asks for them."""
        if not self.needs_threads:
            self._threads.close_threads()
            return None
        threads = self._threads.read()
        if self._threads.fault is not None:
            self._other_faults.append(str(self._threads.fault))
        return threads

    def _summed(self, number: int, asked: bool) -> bool:
        """Whether the group's processes are read here; a tree's own reader sums up a tree."""
        return asked or self.groups[number].kind != "tree"

    def _kills_below(self, groups: Sequence[GroupSample]) -> int:
        """OOM kills in groups of the zone, since v1 counts a kill only in the process's group."""
        if self.kind == "v2":
            return 0
        inside = zip(groups, self._in_zone, strict=True)
        return sum(group.oom_kills or 0 for group, within in inside if within)

    def close(self) -> None:
        """Close every file."""
        for signal in self._signals:
            signal.close()
        self._turns.close()
        self._threads.close()
        for one in self.applications:
            if one.latency_source is not None:
                one.latency_source.close()


def _parts(reader: AnyReader) -> tuple[AnyReader, ...]:
    """The readers of which one consists."""
    return reader.readers if reader.kind == "applications" else (reader,)
