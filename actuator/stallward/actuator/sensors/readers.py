"""The readers of the application and the slots: groups, process trees, and several that are one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.kernel.target import AnyTarget
from stallward.actuator.latency.source import LatencySource
from stallward.actuator.parts import Part, load_part
from stallward.actuator.sensors.group_reader import (
    FAR_SLOT,
    PROTECTED,
    SLOT,
    EveryTick,
    GroupReader,
)
from stallward.actuator.sensors.processes.group_processes import GroupProcesses
from stallward.actuator.sensors.processes.members import JoinedMembers
from stallward.agent.desired import SLOTS
from stallward.agent.sample import ApplicationSample, GroupSample, LatencySample

if TYPE_CHECKING:
    from stallward.actuator.sensors.applications_reader import ApplicationsReader
    from stallward.actuator.sensors.pods_reader import PodsReader
    from stallward.actuator.sensors.tree_reader import TreeReader


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


AnyReader: TypeAlias = "GroupReader | TreeReader | PodsReader | ApplicationsReader"


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
    trees = sum(not isinstance(target, Cgroup) for target in targets)

    def reader_of(
        target: AnyTarget, number: int, listed: GroupProcesses | None
    ) -> GroupReader | TreeReader:
        if isinstance(target, Cgroup):
            return GroupReader(target, every_tick=every_tick_of(number), processes=listed)
        tree: TreeReader = load_part(Part.TREE_READER)(proc, target, trees)
        return tree

    protected, *of_slots = processes
    readers: list[AnyReader] = []
    if len(applications) == 1:
        readers.append(reader_of(applications[0], 0, protected))
    else:
        each = [reader_of(target, 0, None) for target in applications]
        readers.append(load_part(Part.APPLICATIONS_READER)(each, protected))
    for number, (target, listed) in enumerate(zip(slots, of_slots, strict=True), 1):
        if number in shared:
            name, members = shared[number]
            readers.append(
                load_part(Part.PODS_READER)(name, every_tick_of(number), members, listed)
            )
        else:
            readers.append(reader_of(target, number, listed))
    return readers
