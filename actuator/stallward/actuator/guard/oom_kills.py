"""Lifts the limits of a slot for a while after the kernel killed a process under one. Pure.

A v1 limit is a hard limit: a process that touches all of its memory faster than it can be swapped
is killed, however much swap is left. Limits are meant to slow work down, never to lose it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from stallward.actuator.guard.budgets import Budgets
from stallward.agent.desired import SlotDesire, takes_memory, without_memory_wishes
from stallward.agent.sample import GroupSample, SlotState

_BLAMED_S: Final = 3.0
"""How long after a limit was in force a kill is still attributed to it. The slots' kill counts are
read in turn, so that a kill may appear some ticks after the limit was lifted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KillMemory:
    """The state that the guard keeps about the kills in one slot."""

    kills: int | None = None
    """The number of OOM kills that was last read; ``None`` if none was read yet."""
    limited_s: float = -math.inf
    """The time at which a limit was last granted or in force."""
    killed_s: float = -math.inf
    """The time of the last kill under a limit."""


def watch_kills(
    memory: KillMemory, group: GroupSample, state: SlotState, time_s: float
) -> KillMemory:
    """Update the state with one more sample."""
    limited_s = time_s if state.limit_bytes is not None else memory.limited_s
    kills = memory.kills if group.oom_kills is None else group.oom_kills
    grew = kills is not None and memory.kills is not None and kills > memory.kills
    blamed = grew and time_s - limited_s <= _BLAMED_S
    killed_s = time_s if blamed else memory.killed_s
    return KillMemory(kills=kills, limited_s=limited_s, killed_s=killed_s)


def without_limits(
    desired: SlotDesire, memory: KillMemory, budgets: Budgets, time_s: float
) -> tuple[SlotDesire, float | None]:
    """Remove everything that takes memory, for a while after a kill.

    Returns:
        The rest of ``desired``, and how many seconds ago the kill was; ``None`` if nothing was
        removed.
    """
    ago_s = time_s - memory.killed_s
    if budgets.allow_terminate or not ago_s < budgets.kill_wait_s:
        return desired, None
    if not takes_memory(desired):
        return desired, None
    return without_memory_wishes(desired), ago_s


def note_limit(memory: KillMemory, granted: SlotDesire, time_s: float) -> KillMemory:
    """Update the state with what was granted, if it limits the slot."""
    limits = (granted.limit_bytes, granted.hard_limit_bytes, granted.reclaim_to_bytes)
    if all(limit is None for limit in limits):
        return memory
    return replace(memory, limited_s=time_s)
