"""The readers of the application and the slots: groups, process trees, and pods that share one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.kernel.target import AnyTarget
from stallward.actuator.sensors.applications_reader import ApplicationsReader
from stallward.actuator.sensors.group_reader import (
    FAR_SLOT,
    PROTECTED,
    SLOT,
    EveryTick,
    GroupReader,
)
from stallward.actuator.sensors.pods_reader import PodsReader
from stallward.actuator.sensors.processes.group_processes import GroupProcesses
from stallward.actuator.sensors.processes.members import JoinedMembers
from stallward.actuator.sensors.tree_reader import TreeReader, share_of
from stallward.agent.desired import SLOTS

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
