"""``oomd``: kills a group by its rulesets, when memory stalls for long or swap runs low.

Source: facebookincubator/oomd, src/oomd/etc/desktop.json and oomd.service.in, src/oomd/plugins
(PressureAbove, MemoryReclaim, SwapFree, KillMemoryGrowth, KillSwapUsage), CgroupContext.cpp
(88c28fde, 2026-03-15). The unit that it ships looks once a second.

* "user session protection": ``full avg10`` of user.slice above 60 % for 30 s and reclaim within
  the last 10 s: kill by memory size or growth.
* "protection against low swap": less than 10 % of swap free: kill by swap usage.
* Kill by size or growth ranks the candidates by what they hold, if it is at least half of what all
  hold together; then by their growth, if they hold 1.25 times their average and belong to the
  largest (``growing_size_percentile`` 80); then by what they hold. The average moves by a quarter
  a second.
* Kill by swap usage takes the one with most swap.
* A kill is SIGKILL to the whole group. A ruleset that killed does nothing for 15 s.

What differs on this node:

* The slice is the zone, the candidates are its background groups, and what a memory.low protects
  of them is nothing. The second detector of the first ruleset (system.slice above 80 % for 60 s)
  is left out: there is one slice.
* ``full avg10`` is computed from the total as the kernel does (``PressureAverages``).
* Reclaim is seen by ``pgscan`` on cgroup v2. A cgroup v1 does not count it: there it is seen by
  the zone being at its limit or swapping (``reclaim_count``).
* Of its plugins, kill by pressure, by I/O cost and by pgscan are in no ruleset that it ships, and
  left out. Its senpai is the arm ``tmo``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.control_law.thresholds import tuned
from stallward.agent.controller import Decision, Need, NodeContext
from stallward.agent.desired import RELEASED
from stallward.agent.sample import Sample
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

_PERIOD_S: Final = 1.0
_AVERAGE_DECAY: Final = 4.0
_KILL_S: Final = 1.0
"""How long the wish to kill a group stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OomdNumbers:
    """The arguments of the plugins in its rulesets."""

    pressure_percent: float = tuned(60, "full avg10 above which it acts, per cent", 0, 100)
    duration_s: float = tuned(30, "for how long it must be above, s", 0, 600, whole=True)
    reclaim_s: float = tuned(10, "how long ago reclaim may have worked, s", 0, 600, whole=True)
    swap_free_percent: float = tuned(10, "free swap below which it acts, per cent", 0, 100)
    size_percent: float = tuned(50, "share of all that makes a group large, per cent", 0, 100)
    growth_ratio: float = tuned(1.25, "growth over the average that counts", 1, 100)
    growing_percentile: float = tuned(80, "how large what grows must be, per cent", 0, 99)
    post_action_s: float = tuned(15, "a ruleset rests so long after a kill, s", 0, 600)
    kill: float = kill_switch()


def rank_by_size_or_growth(
    sizes_bytes: Sequence[int], averages_bytes: Sequence[float], numbers: OomdNumbers
) -> list[int]:
    """The order in which groups are killed, first the first.

    Args:
        sizes_bytes: What each group holds.
        averages_bytes: The average of that.
        numbers: The arguments of the plugin.
    """
    large_bytes = int(sum(sizes_bytes) * numbers.size_percent / 100.0)
    descending = sorted(sizes_bytes, reverse=True)
    least_growing = 0
    if descending and numbers.growing_percentile > 0:
        share = (100.0 - numbers.growing_percentile) / 100.0
        least_growing = descending[max(math.ceil(len(descending) * share) - 1, 0)]

    def rank(i: int) -> tuple[float, float, int, int]:
        size, average = sizes_bytes[i], averages_bytes[i]
        growth = size / average if average else 0.0
        grows = growth >= numbers.growth_ratio and size >= least_growing
        return size if size >= large_bytes else 0, growth if grows else 0.0, size, -i

    return sorted(range(len(sizes_bytes)), key=rank, reverse=True)


class OomdController(PublishedController[OomdNumbers]):
    """Its two rulesets."""

    name = "oomd"

    def _needs(self) -> tuple[Need, ...]:
        signals = (Need.MEMORY_STALL, Need.AVAILABLE_MEMORY, Need.SWAP_USE)
        return (*kill_needs(self._numbers.kill), *signals)

    def reset(self, context: NodeContext) -> None:
        """Forget the stall, the averages and the rests."""
        super().reset(context)
        self._averages = PressureAverages()
        self._period = Every(_PERIOD_S)
        self._above_since_s: float | None = None
        self._reclaims: int | None = None
        self._reclaimed_s = -math.inf
        self._sizes: tuple[float, ...] = ()
        """The average of what each group holds."""
        self._pressure_rests_s = self._swap_rests_s = -math.inf
        self._kill: GroupKill | None = None

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        """One pass of the engine, if it is due."""
        full = self._averages.update(sample.zone.psi.memory_full_us, sample.time_s).avg10
        reason = self._pass(sample, full) if self._period.due(sample.time_s) else ""
        if self._kill is not None and sample.time_s < self._kill.until_s:
            return self._kill.decision(len(sample.slots), reason or "goes on")
        self._kill = None
        return Decision(desired=RELEASED, reason=reason or f"full avg10 {full:.0f} %")

    def _pass(self, sample: Sample, full: float) -> str:
        self._update_averages(sample)
        fires = self._pressure_fires(sample, full)
        reason = ""
        if fires and sample.time_s >= self._pressure_rests_s:
            victim = self._by_size_or_growth(sample)
            reason, killed = self._begin(sample, victim, f"full avg10 {full:.0f} %")
            if killed:
                self._pressure_rests_s = sample.time_s + self._numbers.post_action_s
        if self._swap_fires(sample) and sample.time_s >= self._swap_rests_s:
            said, killed = self._begin(sample, self._by_swap(sample), "swap is low")
            if killed:
                self._swap_rests_s = sample.time_s + self._numbers.post_action_s
            reason = reason or said
        return reason

    def _update_averages(self, sample: Sample) -> None:
        sizes = [group.memory_usage_bytes or 0 for group in sample.slots]
        before = self._sizes if len(self._sizes) == len(sizes) else (0.0,) * len(sizes)
        self._sizes = tuple(
            average * (_AVERAGE_DECAY - 1.0) / _AVERAGE_DECAY + size / _AVERAGE_DECAY
            for average, size in zip(before, sizes, strict=True)
        )

    def _pressure_fires(self, sample: Sample, full: float) -> bool:
        """Whether both detectors of the first ruleset fire; they count whole seconds."""
        time_s, numbers = sample.time_s, self._numbers
        count = reclaim_count(sample)
        if count is not None and self._reclaims is not None and count > self._reclaims:
            self._reclaimed_s = time_s
        self._reclaims = count
        if full <= numbers.pressure_percent:
            self._above_since_s = None
            return False
        if self._above_since_s is None:
            self._above_since_s = time_s
        lasted_s = math.floor(time_s - self._above_since_s + 1e-6)
        if not math.isfinite(self._reclaimed_s):
            return False
        reclaimed_ago_s = math.floor(time_s - self._reclaimed_s + 1e-6)
        return lasted_s >= numbers.duration_s and reclaimed_ago_s <= numbers.reclaim_s

    def _swap_fires(self, sample: Sample) -> bool:
        memory = zone_memory(sample, self._context.zone_limit_bytes)
        if memory is None:
            return False
        threshold = memory.swap_total_bytes * self._numbers.swap_free_percent / 100.0
        return memory.swap_free_bytes < int(threshold)

    def _by_size_or_growth(self, sample: Sample) -> int | None:
        sizes = [group.memory_usage_bytes or 0 for group in sample.slots]
        order = rank_by_size_or_growth(sizes, self._sizes, self._numbers)
        return next((i for i in order if holds_anything(sample.slots[i])), None)

    def _by_swap(self, sample: Sample) -> int | None:
        swaps = [group.swap_bytes or 0 for group in sample.slots]
        return int(np.argmax(swaps)) if swaps and max(swaps) > 1 else None

    def _begin(self, sample: Sample, slot: int | None, why: str) -> tuple[str, bool]:
        """Begin to kill a group; returns what to say, and whether the ruleset rests now."""
        if slot is None:
            return f"{why}, and there is no group to kill", False
        name = sample.slots[slot].name
        if not self._numbers.kill:
            return f"{why}: would kill {name}", True
        if self._kill is None or sample.time_s >= self._kill.until_s:
            self._kill = GroupKill(slot=slot, name=name, until_s=sample.time_s + _KILL_S)
        return why, True


ENTRY = published_entry(
    OomdController,
    OomdNumbers,
    "oomd (Meta): kills a group on full avg10 above 60 % for 30 s, or below 10 % of swap",
)
