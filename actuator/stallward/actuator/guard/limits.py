"""How far a slot's memory may be taken from it, and how fast. Pure.

Limits have levels (``LIMIT_RATIOS`` of what the slot wants). While the slot runs, a limit
tightens by at most one level a tick, and ticks that follow each other in less than half a
nominal period count as one. Loosening is immediate, and so is squeezing what is paused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.guard.oom_kills import KillMemory
from stallward.agent.desired import LIMIT_RATIOS, limit_level
from stallward.agent.sample import GroupSample, SlotState


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The last tightening of a limit: when, and to what."""

    time_s: float
    to_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitMemory:
    """What the guard remembers of one slot's limits."""

    step: Step | None = None
    hard_bytes: int | None = None
    """The hard limit granted last."""
    hard_step: Step | None = None
    kills: KillMemory = field(default_factory=KillMemory)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotCase:
    """Everything that bounds one slot at one tick."""

    budgets: Budgets
    time_s: float
    tick_period_s: float
    floor_bytes: int
    state: SlotState
    group: GroupSample
    paused: bool
    """As granted for this tick."""

    @property
    def unpaced(self) -> bool:
        """Whether the slot's memory may be taken at once."""
        return self.paused or self.budgets.lift_budgets

    def lowest_bytes(self, before: int | None, step: Step | None) -> int | None:
        """The tightest limit one step below ``before``; ``None`` if there is no step to take.

        Args:
            before: The limit in force; ``None`` for none.
            step: The last tightening.
        """
        reference = self.state.reference_bytes
        if reference is None or not math.isfinite(self.time_s):
            return before
        level = min(limit_level(before, reference) + 1, len(LIMIT_RATIOS) - 1)
        lowest = max(int(reference * LIMIT_RATIOS[level]), self.floor_bytes)
        if step is not None and not self.time_s - step.time_s >= self.tick_period_s / 2:
            # The same tick again may take the same step; another one so soon may not go on.
            lowest = max(lowest, step.to_bytes)
        return lowest if before is None else min(lowest, before)


Granted = tuple[int | None, str]
"""What is granted of a wish, and a note if it is less than was wished."""


def grant_limit(
    want: int | None, case: SlotCase, memory: LimitMemory
) -> tuple[Granted, Step | None]:
    """The soft limit granted, and the step that it was."""
    if want is None:
        return (None, ""), memory.step
    if case.state.reference_bytes is None:
        why = "not limited: it has held nothing yet, so what it wants is not known"
        return (None, why), memory.step
    return _pace(want, case.state.limit_bytes, case, memory.step, "limit")


def grant_hard_limit(
    want: int | None, limit: int | None, case: SlotCase, memory: LimitMemory
) -> tuple[Granted, Step | None]:
    """The hard limit granted, and the step that it was.

    The kernel kills inside a group that cannot stay under it. So while it is tightened it is
    kept above what the group holds by a margin, unless the configuration allows to end work.
    """
    before, step = memory.hard_bytes, memory.hard_step
    if want is None:
        return (None, ""), step
    if case.state.reference_bytes is None:
        return (None, "no hard limit: what it wants is not known"), step
    (granted, note), taken = _pace(want, before, case, step, "hard limit")
    if granted is None:
        return (None, note), step
    if not case.budgets.allow_terminate and (before is None or granted < before):
        usage = case.group.memory_usage_bytes
        if usage is None and before is None:
            return (None, "no hard limit: what it holds is not known"), step
        safe = before if usage is None else usage + case.budgets.hard_limit_margin_bytes
        safe = safe if before is None or safe is None else min(safe, before)
        if safe is not None and granted < safe:
            granted, note = safe, f"hard limit kept at {safe} bytes, above what it holds"
    if limit is not None and granted < limit:
        granted, note = limit, f"hard limit raised to the limit, {limit} bytes"
    return (granted, note), taken


def _pace(
    want: int, before: int | None, case: SlotCase, step: Step | None, name: str
) -> tuple[Granted, Step | None]:
    limit, note = want, ""
    if limit < case.floor_bytes:
        limit, note = case.floor_bytes, f"{name} raised to its floor, {case.floor_bytes} bytes"
    tightens = before is None or limit < before
    if case.unpaced or not tightens:
        return (limit, note), step
    lowest = case.lowest_bytes(before, step)
    if lowest is None:
        return (None, f"no {name} on a sample without a time"), step
    if limit < lowest:
        limit, note = lowest, f"{name} tightened one level only, to {lowest} bytes"
    if before is None or limit < before:
        again = step is not None and step.time_s == case.time_s
        step = step if again else Step(time_s=case.time_s, to_bytes=limit)
    return (limit, note), step


def grant_reclaim(want: int | None, case: SlotCase) -> Granted:
    """Down to what the slot may be emptied now: its floor, while it runs one level at a time."""
    if want is None:
        return None, ""
    usage, reference = case.group.memory_usage_bytes, case.state.reference_bytes
    if usage is None or reference is None:
        return None, "not reclaimed: what it holds or wants is not known"
    lowest = case.floor_bytes
    if not case.unpaced:
        level = min(limit_level(usage, reference) + 1, len(LIMIT_RATIOS) - 1)
        lowest = max(lowest, int(reference * LIMIT_RATIOS[level]))
    if want >= lowest:
        return want, ""
    return lowest, f"reclaimed to {lowest} bytes only"


def grant_swap_max(want: int | None, hard: int | None, budgets: Budgets) -> Granted:
    """The swap limit; not beside a hard limit, where nothing would be left but to kill."""
    if want is None or hard is None or budgets.allow_terminate:
        return want, ""
    return None, "no swap limit beside a hard limit: the kernel could only kill"
