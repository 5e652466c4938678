"""The counters of the pods that share one slot, read as if they were one group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Final

from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.runtime.process_setup import allow_open_files
from stallward.actuator.sensors.files.flat import AnySignal
from stallward.actuator.sensors.group_reader import FAR_SLOT, EveryTick, GroupReader
from stallward.actuator.sensors.processes.group_processes import GroupProcesses
from stallward.actuator.sensors.processes.members import JoinedMembers, members_of
from stallward.agent.sample import UNBOUND, GroupSample, PsiTotals

# ---------- The counters of several groups, which together are one slot.
# Policies and guard see one entry for a slot, whoever shares it. What it says is what the kernel
# would say of a group with these groups inside, as far as their own files tell:
#
# * Memory, swap and their parts add up. The limit is the sum, if each group has one.
# * Counters add up by their *growth*: a group counts from when it came, and what one that has left
#   had counted stays. So a slot's counters never go back while pods come and go.
# * A stall is that of the group that stalled most since the last sample. PSI of a parent counts the
#   time in which *any* task inside was held up (``some``), which is at least the longest stall of a
#   group inside, and at most their sum; how they overlapped is not known
#   (Documentation/accounting/psi.rst). The sum could exceed the time that has passed. ``full`` of a
#   parent may be less, since it asks that no task of any group ran; but work that stands still in
#   one group reads from the disk all the same, which is what a stall of the background is looked at
#   for. So the longest is taken of both.
# * The slot is frozen when all of its groups are.
#
# What one group lacks, the slot lacks; a group that is gone is left out.

_SIZES: Final = (
    "memory_usage_bytes",
    "anon_bytes",
    "file_bytes",
    "inactive_file_bytes",
    "swap_bytes",
    "dirty_bytes",
    "writeback_bytes",
    "working_set_bytes",
    "memory_limit_bytes",
)
_COUNTERS: Final = (
    "refault_file_pages",
    "refault_anon_pages",
    "major_faults",
    "cpu_usage_us",
    "cpu_user_us",
    "oom_kills",
    "high_events",
    "max_events",
    "cpu_throttled_us",
    "io_read_bytes",
    "io_written_bytes",
    "scanned_pages",
)
_STALLS: Final = tuple(field.name for field in fields(PsiTotals))


class CombinedGroups:
    """Combines the samples of a slot's groups, tick by tick.

    Args:
        name: The name of the slot's entry.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._before: dict[str, GroupSample] = {}
        self._totals = dict.fromkeys((*_COUNTERS, *_STALLS), 0)
        self._last = GroupSample(name=name)

    def combine(self, groups: Iterable[GroupSample]) -> GroupSample:
        """Return the slot's entry.

        Args:
            groups: The last sample of each group, each under another name.
        """
        now = {group.name: group for group in groups if group.turn_read_s is not None}
        before, self._before = self._before, now
        if not now:
            return GroupSample(name=self._name)
        # An unchanged group has the same sample as before.
        if now.keys() == before.keys() and all(now[key] is before[key] for key in now):
            return self._last
        values: dict[str, int | None] = {name: _sum(now.values(), name) for name in _SIZES}
        for name in _COUNTERS:
            grown = [_growth(before.get(key), group, name) for key, group in now.items()]
            self._totals[name] += sum(grown)
            known = all(getattr(group, name) is not None for group in now.values())
            values[name] = self._totals[name] if known else None
        self._last = GroupSample(
            name=self._name,
            psi=self._stalls(before, now),
            frozen=_frozen(now.values()),
            swap_room_bytes=_swap_room_bytes(now.values()),
            turn_read_s=min(group.turn_read_s or 0.0 for group in now.values()),
            **values,
        )
        return self._last

    def _stalls(
        self, before: Mapping[str, GroupSample], now: Mapping[str, GroupSample]
    ) -> PsiTotals:
        values: dict[str, int | None] = {}
        for name in _STALLS:
            last = {key: group.psi for key, group in before.items()}
            grown = [_growth(last.get(key), group.psi, name) for key, group in now.items()]
            self._totals[name] += max(grown)
            known = all(getattr(group.psi, name) is not None for group in now.values())
            values[name] = self._totals[name] if known else None
        return PsiTotals(**values)


def _sum(groups: Iterable[GroupSample], name: str) -> int | None:
    total = 0
    for group in groups:
        value: int | None = getattr(group, name)
        if value is None:
            return None
        total += value
    return total


def _growth(
    before: GroupSample | PsiTotals | None, now: GroupSample | PsiTotals, name: str
) -> int:
    """How much a counter grew; a group that is new or was made again has not grown."""
    value, last = getattr(now, name), getattr(before, name, None)
    return 0 if value is None or last is None else max(value - last, 0)


def _frozen(groups: Iterable[GroupSample]) -> bool | None:
    frozen = [group.frozen for group in groups]
    return None if None in frozen else all(frozen)


def _swap_room_bytes(groups: Iterable[GroupSample]) -> int | None:
    """How much of the slot's memory may still go to swap: of each group what it has room for."""
    total, limited = 0, False
    for group in groups:
        room, anon = group.swap_room_bytes, group.anon_bytes
        if room is not None and anon is not None:
            limited = True
            total += min(room, anon)
        elif room is not None:
            return 0  # nobody knows what of it could be used
        else:
            total += anon or 0
    return total if limited else None


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


def with_sums(group: GroupSample, processes: GroupProcesses, pss_bytes: int | None) -> GroupSample:
    """The sample of several groups with what is summed over their processes.

    Args:
        group: The sample.
        processes: The processes of all of them.
        pss_bytes: Their proportional share of memory; ``None`` if it is not known.
    """
    run_delay_us, read_bytes, written_bytes = processes.sums
    known = group.io_read_bytes is not None
    return replace(
        group,
        run_delay_us=run_delay_us,
        pss_bytes=pss_bytes,
        io_read_bytes=group.io_read_bytes if known else read_bytes,
        io_written_bytes=group.io_written_bytes if known else written_bytes,
    )
