"""How well the background groups get on: the share of their time that is their own work. Pure.

A group that lacks memory spends its time in page faults, waiting for pages, or paused. What is left
is the processor time outside the kernel, and for programs that compute it follows their work closely
(docs/lab/2026-11-30-the-border.md). It is taken as a share of the time in which the group was
active, so that a group that comes and goes can be compared with itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from stallward.agent.sample import GroupSample, Sample, SlotState

LEAST_ACTIVE_SHARE: Final = 0.02
"""A group that was active for less of the time says nothing."""
LEAST_PROGRESS: Final = 1e-3
"""Less is taken for this, so that one group that stands still does not hide all others."""


@dataclass(slots=True)
class _Counted:
    """What the counters of one group said."""

    cpu_us: int
    user_us: int
    stalled_us: int


class Progress:
    """Adds up the time of all groups, from one look to the next."""

    def __init__(self) -> None:
        self._before: list[_Counted | None] = []
        self.restart()

    def restart(self) -> None:
        """Begin again with the sums; what was seen last stays the beginning."""
        self.seconds = 0.0
        """How long they were looked at."""
        self._own_s: list[float] = [0.0] * len(self._before)
        self._lost_s: list[float] = [0.0] * len(self._before)

    def update(self, sample: Sample, elapsed_s: float) -> None:
        """Take one more sample."""
        while len(self._before) < len(sample.slots):
            self._before.append(None)
            self._own_s.append(0.0)
            self._lost_s.append(0.0)
        self.seconds += elapsed_s
        for i, (group, state) in enumerate(zip(sample.slots, sample.slot_states, strict=True)):
            self._take(i, group, state, elapsed_s)

    def _take(self, i: int, group: GroupSample, state: SlotState, elapsed_s: float) -> None:
        before, now = self._before[i], _counted(group)
        self._before[i] = now
        if state.paused:
            self._lost_s[i] += elapsed_s
        if before is None or now is None:
            return
        cpu_s = 1e-6 * max(now.cpu_us - before.cpu_us, 0)
        own_s = min(1e-6 * max(now.user_us - before.user_us, 0), cpu_s)
        stalled_s = 1e-6 * max(now.stalled_us - before.stalled_us, 0)
        self._own_s[i] += own_s
        self._lost_s[i] += cpu_s - own_s + (0.0 if state.paused else min(stalled_s, elapsed_s))

    def shares(self) -> tuple[float, ...]:
        """The share of its time that was its own work, for each group; NaN where it was idle."""
        least_s = LEAST_ACTIVE_SHARE * self.seconds
        return tuple(
            own_s / (own_s + lost_s) if own_s + lost_s > least_s else math.nan
            for own_s, lost_s in zip(self._own_s, self._lost_s, strict=True)
        )


def gain(now: Sequence[float], before: Sequence[float]) -> float:
    """By how much groups get on better than before: the geometric mean of the ratios.

    Groups that were idle at one of the two times are left out; 1 where that leaves none.
    """
    logs = [
        math.log(max(one, LEAST_PROGRESS) / max(other, LEAST_PROGRESS))
        for one, other in zip(now, before, strict=False)
        if not (math.isnan(one) or math.isnan(other))
    ]
    return math.exp(sum(logs) / len(logs)) if logs else 1.0


def _counted(group: GroupSample) -> _Counted | None:
    """The counters; ``None`` where its processor time is not known.

    Where only all of its processor time is known, that counts as its own.
    """
    if group.cpu_usage_us is None:
        return None
    psi = group.psi
    return _Counted(
        cpu_us=group.cpu_usage_us,
        user_us=group.cpu_usage_us if group.cpu_user_us is None else group.cpu_user_us,
        stalled_us=(psi.memory_some_us or 0) + (psi.io_some_us or 0),
    )
