"""The readers of the application and the slots: groups, process trees, and pods that share one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.kernel.target import AnyTarget
from stallward.actuator.latency.source import LatencySource
from stallward.actuator.sensors.files.flat import AnySignal
from stallward.actuator.sensors.group_reader import (
    FAR_SLOT,
    PROTECTED,
    SLOT,
    EveryTick,
    GroupReader,
)
from stallward.actuator.sensors.pods_reader import CombinedGroups, PodsReader, with_sums
from stallward.actuator.sensors.processes.group_processes import GroupProcesses
from stallward.actuator.sensors.processes.members import JoinedMembers
from stallward.actuator.sensors.tree_reader import TreeReader, share_of
from stallward.agent.desired import SLOTS
from stallward.agent.sample import (
    UNBOUND,
    ApplicationSample,
    GroupSample,
    LatencySample,
    PsiTotals,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadApplication:
    """A protected application, as the sensors know it."""

    target: AnyTarget
    """Its group or process tree."""
    latency_source: LatencySource | None = None
    """The source of its latencies, if there is one."""
    name: str = "protected"
    slo_ms: float = 100.0
    """Its latency target."""


_NAME: Final = "applications"
_NONE: Final = GroupSample(name=f"{UNBOUND}{_NAME}")
"""The sample while no application is there."""


class ApplicationsReader:
    """Reads several protected applications, which are one group for whoever decides.

    Args:
        readers: The reader of each.
        processes: Sums over the processes of all of them.
    """

    def __init__(
        self, readers: Sequence[GroupReader | TreeReader], processes: GroupProcesses
    ) -> None:
        self.readers = tuple(readers)
        self.processes = processes
        self.pss_bytes: int | None = None
        """The sum over the processes; the sampler sets it."""
        self.each: tuple[GroupSample, ...] = ()
        """The last sample of each application."""
        self._combined = CombinedGroups(_NAME)

    def rebind(self, index: int, group: Cgroup, processes: GroupProcesses) -> None:
        """Read another group of one application from now on.

        Args:
            index: The application.
            group: Its group.
            processes: Sums over the processes of all applications from now on.
        """
        for signal in self.readers[index].signals:
            signal.close()
        readers = list(self.readers)
        readers[index] = GroupReader(group, every_tick=PROTECTED)
        self.readers, self.processes = tuple(readers), processes

    @property
    def signals(self) -> tuple[AnySignal, ...]:
        """All files of the applications."""
        return tuple(signal for reader in self.readers for signal in reader.signals)

    @property
    def demand(self) -> tuple[AnySignal, ...]:
        """The files that say how much memory the applications need."""
        return tuple(signal for reader in self.readers for signal in reader.demand)

    @property
    def limits(self) -> tuple[AnySignal, ...]:
        """The files with their limits."""
        return tuple(signal for reader in self.readers for signal in reader.limits)

    @property
    def frozen(self) -> tuple[AnySignal, ...]:
        """The files that say whether they are frozen."""
        return tuple(signal for reader in self.readers for signal in reader.frozen)

    def read(self, now_s: float, *, turn: bool = True) -> GroupSample:
        """Read all of them; see :meth:`GroupReader.read`."""
        self.each = tuple(
            _at(reader.read(), now_s)
            if isinstance(reader, TreeReader)
            else reader.read(now_s, turn=turn)
            for reader in self.readers
        )
        if not any(one.bound for one in self.each):
            return _NONE
        together = self._combined.combine(self.each)
        if any(isinstance(reader, TreeReader) for reader in self.readers):
            # A process tree has no stalls of its own: also while none of it is there, or a signal
            # would be lost whenever it comes.
            together = replace(together, psi=PsiTotals())
        return with_sums(together, self.processes, self.pss_bytes)


def _at(tree: GroupSample, now_s: float) -> GroupSample:
    """A tree's sample with the time at which it was read, if it has any process."""
    return tree if tree.memory_usage_bytes is None else replace(tree, turn_read_s=now_s)


def read_latencies(
    applications: Sequence[ReadApplication], note: Callable[[str], None]
) -> tuple[LatencySample | None, ...]:
    """Read the latencies of each application; ``None`` for one that has none now.

    Args:
        applications: The applications.
        note: Called with the fault of a source.
    """
    latencies: list[LatencySample | None] = []
    for one in applications:
        latency = None
        if one.latency_source is not None:
            try:
                latency = one.latency_source.read(time.monotonic())
            except KernelFileError as error:
                note(str(error))
        latencies.append(latency)
    return tuple(latencies)


def application_samples(
    applications: Sequence[ReadApplication],
    groups: Sequence[GroupSample],
    latencies: Sequence[LatencySample | None],
) -> tuple[ApplicationSample, ...]:
    """The sample of each application; none where there is one, of which all is said already."""
    if len(applications) == 1:
        return ()
    return tuple(
        ApplicationSample(name=one.name, slo_ms=one.slo_ms, group=group, latency=latency)
        for one, group, latency in zip(applications, groups, latencies, strict=True)
    )


AnyReader: TypeAlias = GroupReader | TreeReader | PodsReader | ApplicationsReader


def every_tick_of(number: int) -> EveryTick:
    """The files of the group ``number`` to read every tick; 0 is the protected application."""
    if number == 0:
        return PROTECTED
    return SLOT if number <= SLOTS else FAR_SLOT


def make_readers(
    proc: Path,
    applications: Sequence[AnyTarget],
    slots: Sequence[AnyTarget],
    processes: Sequence[GroupProcesses],
    shared: Mapping[int, tuple[str, JoinedMembers]],
) -> list[AnyReader]:
    """Make one reader for the applications and one for each slot, in this order.

    Args:
        proc: The /proc directory.
        applications: The protected applications.
        slots: The slots.
        processes: The processes of the applications together, and of each slot.
        shared: The names and processes of those that several pods may share, by their numbers.
    """
    targets = (*applications, *slots)
    share = share_of(sum(not isinstance(target, Cgroup) for target in targets))

    def reader_of(
        target: AnyTarget, number: int, listed: GroupProcesses | None
    ) -> GroupReader | TreeReader:
        if isinstance(target, Cgroup):
            return GroupReader(target, every_tick=every_tick_of(number), processes=listed)
        return TreeReader(proc, target, share)

    protected, *of_slots = processes
    readers: list[AnyReader] = []
    if len(applications) == 1:
        readers.append(reader_of(applications[0], 0, protected))
    else:
        each = [reader_of(target, 0, None) for target in applications]
        readers.append(ApplicationsReader(each, protected))
    for number, (target, listed) in enumerate(zip(slots, of_slots, strict=True), 1):
        if number in shared:
            name, members = shared[number]
            readers.append(PodsReader(name, every_tick_of(number), members, listed))
        else:
            readers.append(reader_of(target, number, listed))
    return readers
