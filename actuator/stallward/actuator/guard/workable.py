"""The lowest limit that a slot can work under. Pure.

A limit takes the pages that a slot misses least. Below some size it takes what the slot needs all
the time: it then waits for memory (v1), or is held up without its usage falling (v2 memory.high,
which slows a group down but takes no anonymous pages from it without swap). Neither gives the
protected application anything, so the guard keeps the limit above such a size, in three ways:

* What cannot be reclaimed at all is known before: anonymous pages for which there is no swap, on
  the node or by a limit of the slot's own, and the kernel's own memory for the slot.
* Under a *hard* limit, that is one of v1, a running program may not get near that size either.
  Where nothing is left to reclaim, a page fault waits, but one inside a system call does not: the
  call fails with EFAULT, or with ENOMEM. (``mem_cgroup_oom`` in mm/memcontrol.c handles only faults
  of user mode.) So beside what cannot be reclaimed there is room for what the program may allocate
  until the next tick, and pages that wait for a disk do not count as reclaimable.
* What reclaim does not follow is learned: when a slot waits under a limit, or has stayed above it,
  that size is remembered for a while, and no limit goes below it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from stallward.agent.desired import LIMIT_SLACK_RATIO, MIB
from stallward.agent.sample import GroupSample, SlotState

_RAISE_RATIO: Final = 1.25
"""How far the limit is set above the size at which a slot had to wait. Each further wait raises
it again, so that a limit of a tenth of what the slot needs is gone after ten waits."""
_LEAST_RAISE_BYTES: Final = 16 * MIB
_FALL_S: Final = 3.0
"""How long the usage of a running slot above its limit may take to fall by a little, before the
limit gives way."""
_FALL_RATIO: Final = 0.98
"""A usage that is below this share of the one before has fallen."""
_AT_LIMIT_RATIO: Final = 0.75
"""A slot that uses less than this share of its limit waits for another reason, e.g. because the
memory of the whole zone ran out. What waits may have freed a little since."""
_ALLOCATED_BYTES_PER_CPU_S: Final = 3.5e9
"""What a program may allocate on one CPU. Reading cached files into new memory was measured at up
to 2 GB/s (AMD EPYC); memory that has twice the speed is common."""
_AMPLE_SWAP_BYTES: Final = 512 * MIB
"""With so much swap left, reclaim goes on until the limit follows: in a tick and a half no disk and
no compression takes more."""
_TICKS: Final = 1.5
"""After so many ticks the limit follows what was allocated, if one begins late."""
_ROUND_BYTES: Final = 8 * MIB
"""The bound is a multiple of this: a limit that followed every page would be written at each tick.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkableMemory:
    """The state that the guard keeps about the lowest workable limit of one slot."""

    waits: int | None = None
    """``SlotState.memory_waits`` of the last sample; ``None`` before the first."""
    lowest_bytes: int = 0
    """The lowest limit that was learned to be workable."""
    learned_s: float = -math.inf
    """When that was."""
    above_since_s: float | None = None
    """Since when the slot has stayed above the limit without using less; ``None`` if it does not.
    """
    above_bytes: int = 0
    """What it used then."""


def learn_workable(
    memory: WorkableMemory,
    group: GroupSample,
    state: SlotState,
    *,
    time_s: float,
    remember_s: float,
) -> WorkableMemory:
    """Update the state with one more sample.

    Args:
        memory: The state after the last sample.
        group: The slot's group.
        state: The slot's state.
        time_s: The time of the sample.
        remember_s: How long a lowest workable limit is remembered after the slot last showed it.
    """
    if not math.isfinite(time_s):
        return memory
    usage = group.memory_usage_bytes or 0
    limit = state.limit_bytes
    waited = memory.waits is not None and state.memory_waits > memory.waits
    above_since_s, above_bytes = memory.above_since_s, memory.above_bytes
    if limit is None or state.paused or usage <= limit * (1.0 + LIMIT_SLACK_RATIO):
        above_since_s, above_bytes = None, 0
    elif above_since_s is None or usage < above_bytes * _FALL_RATIO:
        above_since_s, above_bytes = time_s, usage
    stuck = above_since_s is not None and time_s - above_since_s >= _FALL_S
    memory = replace(
        memory,
        waits=state.memory_waits,
        above_since_s=above_since_s,
        above_bytes=above_bytes,
    )
    if waited and limit is not None and usage >= limit * _AT_LIMIT_RATIO:
        # While the limit is still on its way down, the slot waits at what it uses.
        reached = max(limit, usage)
        return _learned(memory, max(reached * _RAISE_RATIO, reached + _LEAST_RAISE_BYTES), time_s)
    if stuck:
        return _learned(replace(memory, above_since_s=None), usage, time_s)
    if not time_s - memory.learned_s < remember_s:
        return replace(memory, lowest_bytes=0)
    return memory


def _learned(memory: WorkableMemory, size_bytes: float, time_s: float) -> WorkableMemory:
    lowest = max(memory.lowest_bytes, _rounded(size_bytes))
    return replace(memory, lowest_bytes=lowest, learned_s=time_s)


def unreclaimable_bytes(group: GroupSample, swap_free_bytes: int | None) -> int:
    """The memory of a group that no limit can take from it; 0 where that is not known.

    Args:
        group: The group.
        swap_free_bytes: The free swap of the node.
    """
    usage, anon, file = group.memory_usage_bytes, group.anon_bytes, group.file_bytes
    rooms = [room for room in (swap_free_bytes, group.swap_room_bytes) if room is not None]
    if usage is None or anon is None or file is None or not rooms:
        return 0
    return max(usage - file - min(anon, *rooms), 0)


def growth_until_next_tick(cpus: int, tick_period_s: float) -> int:
    """What the programs of a group may allocate until a limit follows them, in bytes."""
    return int(cpus * _ALLOCATED_BYTES_PER_CPU_S * _TICKS * tick_period_s)


def least_hard_bytes(group: GroupSample, swap_free_bytes: int | None, growth_bytes: int) -> int:
    """The lowest hard limit under which the system calls of a running group do not fail.

    Args:
        group: The group. Where its memory is not known, nothing can be said: 0.
        swap_free_bytes: The free swap of the node.
        growth_bytes: What its programs may allocate until the limit follows them.
    """
    usage, anon, file = group.memory_usage_bytes, group.anon_bytes, group.file_bytes
    if usage is None or anon is None or file is None:
        return 0
    rooms = [room for room in (swap_free_bytes, group.swap_room_bytes) if room is not None]
    room = min(rooms, default=0)
    swappable = min(anon, room)
    busy = min((group.dirty_bytes or 0) + (group.writeback_bytes or 0), file)
    lacking = max(1.0 - (room - swappable) / _AMPLE_SWAP_BYTES, 0.0)
    return max(usage - (file - busy) - swappable, 0) + int(lacking * growth_bytes)


def lowest_workable_bytes(
    memory: WorkableMemory,
    group: GroupSample,
    swap_free_bytes: int | None,
    *,
    growth_bytes: int | None = None,
) -> int:
    """The lowest limit that the slot can work under, as far as it is known.

    Args:
        memory: What was learned about it.
        group: The group.
        swap_free_bytes: The free swap of the node.
        growth_bytes: What its programs may allocate until the limit follows them, if the limit is
            a hard one and they run under it; else ``None``.
    """
    known = unreclaimable_bytes(group, swap_free_bytes)
    if growth_bytes is not None:
        known = max(known, least_hard_bytes(group, swap_free_bytes, growth_bytes))
    return max(memory.lowest_bytes, _rounded(known))


def _rounded(size_bytes: float) -> int:
    return math.ceil(size_bytes / _ROUND_BYTES) * _ROUND_BYTES
