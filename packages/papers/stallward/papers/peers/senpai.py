"""``senpai``: keeps each background group under a limit at which it just begins to stall.

Source: facebookincubator/senpai, senpai.py (c51e8e21, 2019-09-03), with its default arguments.

Once a second and for each group: the microseconds of memory ``some`` since the last adjustment are
summed up. Above 10 ms the limit is loosened by (sum / 10 ms / 20)^2, at most by all of itself.
Where the sum stayed below for 6 s, the limit is tightened by (10 ms / sum / 10)^2 of 1 %, at most
by 1 %. Each adjustment begins a new sum. The limit begins at what the group holds, and again there
whenever something else has changed it; it is a multiple of 4 KiB from 100 MiB to 100 GiB.

What differs on this node:

* The source takes any group, also that of a workload itself. Here only the background is limited.
* The limit is memory.high as there. A hybrid node has memory.limit_in_bytes in its place, where a
  group waits for memory instead of being slowed down (``docs/reference/levers.md``).
* A limit is never below the group's floor, nor one that cannot be worked under (the guard): that
  counts as changed by something else, and the limit begins anew.
* At the end the limit is taken back, which the source does not do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.control_law.thresholds import tuned
from stallward.agent.controller import Decision, Need, NodeContext
from stallward.agent.desired import MIB, DesiredState, SlotDesire
from stallward.agent.sample import GroupSample, Sample, SlotState
from stallward.papers.peers.published import Every, PublishedController, published_entry

_PERIOD_S: Final = 1.0
_PAGE_BYTES: Final = 4096
_SAME_BYTES: Final = 1 << 16
"""The limit in force is what was asked for if it differs by less: kernels round to their pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SenpaiNumbers:
    """Its arguments, with their defaults."""

    min_size_mib: float = tuned(100, "lowest limit, MiB", 1, 1e6, logarithmic=True)
    max_size_mib: float = tuned(102_400, "highest limit, MiB", 1, 1e8, logarithmic=True)
    interval_s: float = tuned(6, "calm before a limit is tightened, s", 1, 600, whole=True)
    pressure_us: float = tuned(10_000, "stall that is wanted in that time, us", 1, 6e8)
    max_probe: float = tuned(0.01, "most that a limit is tightened at once", 0.0, 1.0)
    max_backoff: float = tuned(1.0, "most that a limit is loosened at once", 0.0, 100.0)
    coeff_probe: float = tuned(10, "most of it at this part of the wanted stall", 1, 1000)
    coeff_backoff: float = tuned(20, "most of it at so many times the wanted stall", 1, 1000)


def backoff(stalled_us: float, numbers: SenpaiNumbers) -> float:
    """By which share of itself a limit is loosened after so much stall."""
    error = stalled_us / numbers.pressure_us
    adjustment = (error / numbers.coeff_backoff) ** 2 * numbers.max_backoff
    return min(adjustment, numbers.max_backoff)


def probe(stalled_us: float, numbers: SenpaiNumbers) -> float:
    """By which share of itself a limit is tightened after so little stall."""
    error = numbers.pressure_us / max(stalled_us, 1.0)
    adjustment = (error / numbers.coeff_probe) ** 2 * numbers.max_probe
    return min(adjustment, numbers.max_probe)


class SenpaiGroup:
    """The limit of one group.

    Args:
        numbers: The arguments.
        floor_bytes: The lowest limit that the node allows.
    """

    def __init__(self, numbers: SenpaiNumbers, floor_bytes: int) -> None:
        self._numbers = numbers
        self._least_bytes = max(int(numbers.min_size_mib * MIB), floor_bytes)
        self._most_bytes = max(int(numbers.max_size_mib * MIB), self._least_bytes)
        self._total_us: int | None = None
        self._stalled_us = 0
        self._grace = int(numbers.interval_s)
        self.limit_bytes: int | None = None

    def tick(self, group: GroupSample, state: SlotState) -> None:
        """Take one more second into account."""
        total_us, usage = group.psi.memory_some_us, group.memory_usage_bytes
        if total_us is None or not usage:
            return
        if self._total_us is None or total_us < self._total_us or self.limit_bytes is None:
            self._total_us = total_us
            self.limit_bytes = self._within(usage)
            return
        self._stalled_us += total_us - self._total_us
        self._total_us = total_us
        if self._stalled_us > self._numbers.pressure_us:
            self._adjust(backoff(self._stalled_us, self._numbers), usage, state)
        elif self._grace:
            self._grace -= 1
        else:
            self._adjust(-probe(self._stalled_us, self._numbers), usage, state)

    def _adjust(self, factor: float, usage_bytes: int, state: SlotState) -> None:
        in_force, asked = state.limit_bytes, self.limit_bytes
        if in_force is None or asked is None or abs(in_force - asked) >= _SAME_BYTES:
            wanted = usage_bytes  # something else has changed it
        else:
            wanted = int(in_force + in_force * factor)
        self.limit_bytes = self._within(wanted)
        self._stalled_us = 0
        self._grace = int(self._numbers.interval_s) - 1

    def _within(self, limit_bytes: int) -> int:
        limit = min(max(limit_bytes, self._least_bytes), self._most_bytes)
        return max(limit // _PAGE_BYTES * _PAGE_BYTES, self._least_bytes)


class SenpaiController(PublishedController[SenpaiNumbers]):
    """One limit for each group."""

    name = "senpai"

    def _needs(self) -> tuple[Need, ...]:
        return (Need.LIMIT, Need.SLOT_STALL)

    def reset(self, context: NodeContext) -> None:
        """Forget the limits."""
        super().reset(context)
        self._period = Every(_PERIOD_S)
        self._groups: list[SenpaiGroup] = []

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        """One second of the loop, if it is due."""
        while len(self._groups) < len(sample.slots):
            floor = self._context.floor(len(self._groups))
            self._groups.append(SenpaiGroup(self._numbers, floor))
        groups = self._groups[: len(sample.slots)]
        if self._period.due(sample.time_s):
            for one, group, state in zip(groups, sample.slots, sample.slot_states, strict=False):
                one.tick(group, state)
        desired = DesiredState(slots=tuple(SlotDesire(limit_bytes=g.limit_bytes) for g in groups))
        limits = ", ".join(f"{(g.limit_bytes or 0) / MIB:.0f}" for g in groups)
        return Decision(desired=desired, reason=f"limits {limits} MiB")


ENTRY = published_entry(
    SenpaiController,
    SenpaiNumbers,
    "senpai (Meta): limits each group so that it stalls for 10 ms in 6 s",
)
