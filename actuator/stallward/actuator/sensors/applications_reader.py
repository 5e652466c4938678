"""The counters of several protected applications, read as if they were one group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.sensors.combined_groups import CombinedGroups, with_sums
from stallward.actuator.sensors.files.flat import AnySignal
from stallward.actuator.sensors.group_reader import PROTECTED, GroupReader
from stallward.actuator.sensors.processes.group_processes import GroupProcesses
from stallward.agent.sample import UNBOUND, GroupSample, PsiTotals

if TYPE_CHECKING:
    from stallward.actuator.sensors.tree_reader import TreeReader

_NAME: Final = "applications"
_NONE: Final = GroupSample(name=f"{UNBOUND}{_NAME}")
"""The sample while no application is there."""


class ApplicationsReader:
    """Reads several protected applications, which are one group for whoever decides.

    Args:
        readers: The reader of each.
        processes: Sums over the processes of all of them.
    """

    kind: ClassVar[Literal["applications"]] = "applications"

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
        read = [(reader.kind, reader.read(now_s, turn=turn)) for reader in self.readers]
        self.each = tuple(_at(one, now_s) if kind == "tree" else one for kind, one in read)
        if not any(one.bound for one in self.each):
            return _NONE
        together = self._combined.combine(self.each)
        if any(kind == "tree" for kind, _ in read):
            # A process tree has no stalls of its own: also while none of it is there, or a signal
            # would be lost whenever it comes.
            together = replace(together, psi=PsiTotals())
        return with_sums(together, self.processes, self.pss_bytes)


def _at(tree: GroupSample, now_s: float) -> GroupSample:
    """A tree's sample with the time at which it was read, if it has any process."""
    return tree if tree.memory_usage_bytes is None else replace(tree, turn_read_s=now_s)
