"""The counters of several groups that are one for whoever decides: a slot, or the application.

Policies and guard see one entry for a slot, whoever shares it. What it says is what the kernel
would say of a group with these groups inside, as far as their own files tell:

* Memory, swap and their parts add up. The limit is the sum, if each group has one.
* Counters add up by their *growth*: a group counts from when it came, and what one that has left
  had counted stays. So a slot's counters never go back while pods come and go.
* A stall is that of the group that stalled most since the last sample. PSI of a parent counts the
  time in which *any* task inside was held up (``some``), which is at least the longest stall of a
  group inside, and at most their sum; how they overlapped is not known
  (Documentation/accounting/psi.rst). The sum could exceed the time that has passed. ``full`` of a
  parent may be less, since it asks that no task of any group ran; but work that stands still in
  one group reads from the disk all the same, which is what a stall of the background is looked at
  for. So the longest is taken of both.
* The slot is frozen when all of its groups are.

What one group lacks, the slot lacks; a group that is gone is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Final

from stallward.actuator.sensors.processes.group_processes import GroupProcesses
from stallward.agent.sample import GroupSample, PsiTotals

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
