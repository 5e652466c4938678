"""``systemd-oomd``: kills a group when memory stalls for long, or when swap runs out.

Source: systemd, src/oom/oomd-manager.c (00a99cb4), oomd-manager.h (01e1303f) and oomd-util.c
(0282cb6d), with the defaults of oomd.conf.

* Every second: ``full avg10`` above 60 % for 30 s, reclaim within the last 30 s, and no kill
  within the last 15 s: the group is killed in which reclaim looked at most pages since the second
  before; of equal ones the one that holds most memory.
* Every 0.15 s: more than 90 % of the memory and more than 90 % of swap in use: the group with most
  swap is killed, if it has more than 5 % of all swap.
* A kill is SIGKILL to the whole group.

What differs on this node:

* ``ManagedOOMMemoryPressure=kill`` and ``ManagedOOMSwap=kill`` are those of the zone's slice: the
  stall is the zone's, the candidates are its background groups, and the protected application has
  ``ManagedOOMPreference=omit``. The machine's memory is the zone's (``zone_memory``).
* ``full avg10`` is computed from the total as the kernel does (``PressureAverages``).
* systemd-oomd needs cgroup v2. A cgroup v1 does not count scanned pages per group, so on a hybrid
  node all groups are equal there, and the second key decides: the memory that they hold. That
  reclaim works is seen by the zone being at its limit or swapping (``reclaim_count``).
* Hooks before the kill, rulesets (``.oomrule``) and limits per unit are left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.control_law.thresholds import tuned
from stallward.agent.controller import Decision, Need, NodeContext
from stallward.agent.desired import RELEASED
from stallward.agent.sample import GroupSample, Sample
from stallward.papers.peers.kill_daemons.victims import (
    GroupKill,
    holds_anything,
    reclaim_count,
    zone_memory,
)
from stallward.papers.peers.published import (
    Every,
    PressureAverages,
    PublishedController,
    kill_needs,
    kill_switch,
    published_entry,
)

_PRESSURE_PERIOD_S: Final = 1.0
_SWAP_PERIOD_S: Final = 0.15
_RECLAIM_S: Final = 30.0
_POST_ACTION_S: Final = 15.0
_CANDIDATE_SWAP_SHARE: Final = 0.05
_KILL_S: Final = 1.0
"""How long the wish to kill a group stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemdOomdNumbers:
    """The settings of oomd.conf."""

    pressure_percent: float = tuned(60, "full avg10 above which it acts, per cent", 0, 100)
    duration_s: float = tuned(30, "for how long it must be above, s", 1, 600)
    swap_percent: float = tuned(90, "memory and swap in use above which it acts, per cent", 0, 100)
    kill: float = kill_switch()


class SystemdOomdController(PublishedController[SystemdOomdNumbers]):
    """Its two timers."""

    name = "systemd-oomd"

    def _needs(self) -> tuple[Need, ...]:
        signals = (Need.MEMORY_STALL, Need.AVAILABLE_MEMORY, Need.SWAP_USE)
        return (*kill_needs(self._numbers.kill), *signals)

    def reset(self, context: NodeContext) -> None:
        """Forget the stall and the scanned pages."""
        super().reset(context)
        self._averages = PressureAverages()
        self._pressure, self._swap = Every(_PRESSURE_PERIOD_S), Every(_SWAP_PERIOD_S)
        self._above_since_s: float | None = None
        self._reclaims: int | None = None
        self._reclaimed_s = -math.inf
        self._acted_s = -math.inf
        self._scanned: tuple[int, ...] = ()
        self._kill: GroupKill | None = None

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        """Run the timers that are due."""
        time_s = sample.time_s
        full = self._averages.update(sample.zone.psi.memory_full_us, time_s).avg10
        reason = ""
        if self._swap.due(time_s):
            reason = self._check_swap(sample)
        if self._pressure.due(time_s):
            reason = self._check_pressure(sample, full) or reason
        if self._kill is not None and time_s < self._kill.until_s:
            return self._kill.decision(len(sample.slots), reason or "goes on")
        self._kill = None
        return Decision(desired=RELEASED, reason=reason or f"full avg10 {full:.0f} %")

    def _check_swap(self, sample: Sample) -> str:
        memory = zone_memory(sample, self._context.zone_limit_bytes)
        if memory is None:
            return "memory is not known"
        left = 1.0 - self._numbers.swap_percent / 100.0
        if memory.available_share >= left or memory.swap_free_share >= left:
            return ""
        least = _CANDIDATE_SWAP_SHARE * memory.swap_total_bytes
        swaps = [group.swap_bytes or 0 for group in sample.slots]
        if not swaps or max(swaps) <= least:
            return "swap is full, and no group has much of it"
        return self._begin(sample, int(np.argmax(swaps)), "swap is full")

    def _check_pressure(self, sample: Sample, full: float) -> str:
        time_s = sample.time_s
        count = reclaim_count(sample)
        if count is not None and self._reclaims is not None and count > self._reclaims:
            self._reclaimed_s = time_s
        self._reclaims = count
        rates = self._scan_rates(sample)
        if full <= self._numbers.pressure_percent:
            self._above_since_s = None
            return ""
        if self._above_since_s is None:
            self._above_since_s = time_s
        if time_s - self._above_since_s < self._numbers.duration_s:
            return ""
        if time_s - self._acted_s < _POST_ACTION_S or time_s - self._reclaimed_s > _RECLAIM_S:
            return ""
        ranked = [
            (rates[i], group.memory_usage_bytes or 0, -i)
            for i, group in enumerate(sample.slots)
            if holds_anything(group)
        ]
        if not ranked:
            return "memory stalls, and no group holds any"
        if self._numbers.kill:
            self._acted_s = time_s
        return self._begin(sample, -max(ranked)[2], f"full avg10 {full:.0f} %")

    def _scan_rates(self, sample: Sample) -> list[int]:
        """The pages of each group that reclaim has looked at since the second before."""
        before, now = self._scanned, tuple(map(_scanned, sample.slots))
        self._scanned = now
        if len(before) != len(now):
            return [0] * len(now)
        return [b if b < a else b - a for a, b in zip(before, now, strict=True)]

    def _begin(self, sample: Sample, slot: int, why: str) -> str:
        """Begin to kill a group, unless that is under way."""
        name = sample.slots[slot].name
        if not self._numbers.kill:
            return f"{why}: would kill {name}"
        if self._kill is None or self._kill.slot != slot or sample.time_s >= self._kill.until_s:
            self._kill = GroupKill(slot=slot, name=name, until_s=sample.time_s + _KILL_S)
        return why


def _scanned(group: GroupSample) -> int:
    return group.scanned_pages or 0


ENTRY = published_entry(
    SystemdOomdController,
    SystemdOomdNumbers,
    "systemd-oomd: kills a group on full avg10 above 60 % for 30 s, or at 90 % of swap",
)
