"""The counters of the pods that share one slot, read as if they were one group."""

from __future__ import annotations

from typing import ClassVar, Final, Literal

from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.runtime.process_setup import allow_open_files
from stallward.actuator.sensors.combined_groups import CombinedGroups, with_sums
from stallward.actuator.sensors.files.flat import AnySignal
from stallward.actuator.sensors.group_reader import FAR_SLOT, EveryTick, GroupReader
from stallward.actuator.sensors.processes.group_processes import GroupProcesses
from stallward.actuator.sensors.processes.members import JoinedMembers, members_of
from stallward.agent.sample import UNBOUND, GroupSample

_FEW_PODS: Final = 4
"""With more pods, only what the guard needs is read of each at every tick."""


class PodsReader:
    """Reads the pods of one slot; it is not there while it has none.

    Args:
        name: The slot's name in the configuration.
        every_tick: What is read of each pod at every tick, if they are few.
        members: Lists the processes of all pods.
        processes: Sums over these processes.
    """

    kind: ClassVar[Literal["pods"]] = "pods"
    demand: tuple[AnySignal, ...] = ()
    limits: tuple[AnySignal, ...] = ()
    """Empty: only the application and the zone need these."""

    def __init__(
        self, name: str, every_tick: EveryTick, members: JoinedMembers, processes: GroupProcesses
    ) -> None:
        self._every_tick = every_tick
        self._members = members
        self.processes = processes
        self.pss_bytes: int | None = None
        """The sum over the processes; the sampler sets it."""
        self._readers: dict[str, GroupReader] = {}
        self._combined = CombinedGroups(f"pods:{name}")
        self._nothing = GroupSample(name=f"{UNBOUND}{name}")
        self.pods: tuple[GroupSample, ...] = ()
        """The last sample of each pod."""

    def join(self, group: Cgroup) -> None:
        """Read this pod as well from now on."""
        self._readers[group.name] = GroupReader(group)
        self._members.join(group.name, members_of(group))
        self._set_every_tick()
        allow_open_files(len(self.signals))

    def leave(self, group: str) -> None:
        """Do not read this pod any more."""
        reader = self._readers.pop(group, None)
        if reader is None:
            return
        self._members.leave(group)
        for signal in reader.signals:
            signal.close()
        self._set_every_tick()

    def _set_every_tick(self) -> None:
        few = len(self._readers) <= _FEW_PODS
        for reader in self._readers.values():
            reader.every_tick = self._every_tick if few else FAR_SLOT

    @property
    def readers(self) -> tuple[GroupReader, ...]:
        """The readers of the single pods."""
        return tuple(self._readers.values())

    @property
    def signals(self) -> tuple[AnySignal, ...]:
        """All files of the pods."""
        return tuple(signal for reader in self.readers for signal in reader.signals)

    @property
    def frozen(self) -> tuple[AnySignal, ...]:
        """The files that say whether the pods are frozen."""
        return tuple(signal for reader in self.readers for signal in reader.frozen)

    def label(self, file: AnySignal) -> str:
        """The name of a file in the table of signals."""
        of_file = (reader for reader in self.readers if file in reader.signals)
        return next((reader.label(file) for reader in of_file), file.path.name)

    def read(self, now_s: float, *, turn: bool = True) -> GroupSample:
        """Read the pods; see :meth:`GroupReader.read`."""
        self.pods = tuple(reader.read(now_s, turn=turn) for reader in self.readers)
        if not self.pods:
            return self._nothing
        slot = self._combined.combine(self.pods)
        if slot.turn_read_s is None:
            return slot
        return with_sums(slot, self.processes, self.pss_bytes)
