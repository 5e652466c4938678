"""The readers of the application and the slots: groups, process trees, and pods that share one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.kernel.target import AnyTarget
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

AnyReader: TypeAlias = GroupReader | TreeReader | PodsReader


def every_tick_of(number: int) -> EveryTick:
    """The files of the group ``number`` to read every tick; 0 is the protected application."""
    if number == 0:
        return PROTECTED
    return SLOT if number <= SLOTS else FAR_SLOT


def make_readers(
    proc: Path,
    targets: Sequence[AnyTarget],
    processes: Sequence[GroupProcesses],
    shared: Mapping[int, tuple[str, JoinedMembers]],
) -> list[AnyReader]:
    """Make one reader for each target, the application's first.

    Args:
        proc: The /proc directory.
        targets: The application and the slots.
        processes: The processes of each.
        shared: The names and processes of those that several pods may share, by their numbers.
    """
    share = share_of(sum(not isinstance(target, Cgroup) for target in targets))
    readers: list[AnyReader] = []
    for number, (target, listed) in enumerate(zip(targets, processes, strict=True)):
        every_tick = every_tick_of(number)
        if number in shared:
            name, members = shared[number]
            readers.append(PodsReader(name, every_tick, members, listed))
        elif isinstance(target, Cgroup):
            readers.append(GroupReader(target, every_tick=every_tick, processes=listed))
        else:
            readers.append(TreeReader(proc, target, share))
    return readers
