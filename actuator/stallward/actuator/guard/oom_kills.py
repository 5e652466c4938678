"""No more limits for a slot in which one has made the kernel kill. Pure.

A v1 limit is a hard one: what touches all of its memory faster than it can be swapped is killed
under it, however much swap is left. Limiting is meant to slow work down, never to lose it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from stallward.actuator.guard.budgets import Budgets
from stallward.agent.desired import SlotDesire
from stallward.agent.sample import GroupSample, SlotState

_BLAMED_S: Final = 3.0
"""A limit that was in force so long ago may have killed: kills are counted in turn, and some ticks
after the limit was lifted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KillMemory:
    """What the guard remembers of one slot's kills."""

    kills: int | None = None
    """Processes that the kernel had killed for want of memory when it last was known."""
    limited_s: float = -math.inf
    """When a limit was last granted or in force."""
    killed_s: float = -math.inf
    """When a limit last killed."""


def watch_kills(
    memory: KillMemory, group: GroupSample, state: SlotState, time_s: float
) -> KillMemory:
    """What is known after one more sample."""
    limited_s = time_s if state.limit_bytes is not None else memory.limited_s
    kills = memory.kills if group.oom_kills is None else group.oom_kills
    grew = kills is not None and memory.kills is not None and kills > memory.kills
    blamed = grew and time_s - limited_s <= _BLAMED_S
    killed_s = time_s if blamed else memory.killed_s
    return KillMemory(kills=kills, limited_s=limited_s, killed_s=killed_s)


def without_limits(
    want: SlotDesire, memory: KillMemory, budgets: Budgets, time_s: float
) -> tuple[SlotDesire, float | None]:
    """The wish without what takes memory, for a while after a kill.

    Returns:
        What is left of it, and how many seconds ago the kill was; ``None`` if all is left.
    """
    ago_s = time_s - memory.killed_s
    if budgets.allow_terminate or not ago_s < budgets.kill_wait_s:
        return want, None
    left = replace(
        want,
        limit_bytes=None,
        hard_limit_bytes=None,
        swap_max_bytes=None,
        reclaim_to_bytes=None,
    )
    return (want, None) if left == want else (left, ago_s)


def note_limit(memory: KillMemory, granted: SlotDesire, time_s: float) -> KillMemory:
    """That a limit was granted."""
    takes = (granted.limit_bytes, granted.hard_limit_bytes, granted.reclaim_to_bytes)
    if all(wish is None for wish in takes):
        return memory
    return replace(memory, limited_s=time_s)
