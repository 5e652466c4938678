"""``sideloader``: leaves CPU headroom, freezes the background on overload, kills it when critical.

Source: facebookexperimental/resctl-demo, rd-agent/src/misc/sideloader.py and
rd-agent/src/sideloader.rs (a0b906ee, 2026-06-07); the headroom and the time until a frozen job
expires are those of its demo (rd-agent-intf/src/cmd.rs, side_defs.rs).

Once a second:

* CPU: the background may use what it uses and what is idle, less a headroom of 20 % of all CPU
  time; at least 5 %. Both are taken over 5 s or over the last second, whichever is less.
* Overload: what would be left for the background over 10 s is less than 10 %, or its memory
  ``full avg60`` is at least 50 %. It is frozen for as long, and for a hold of 10 s after that. A
  new overload adds 10 s to the hold, up to 30 s; each calm second takes half a second off.
* Critical: 10 % of its swap are left or less, or memory or I/O ``full avg300`` is at least 75 %.
  That is an overload with the longest hold, and every job is killed; so is a job that was frozen
  for 30 s.

What differs on this node:

* The side slice is the background's groups. They have no common parent, so its stall is that of
  the group that stalls most, and its CPU limit is divided equally.
* The averages of stall are computed from the totals as the kernel does (``PressureAverages``).
* Its swap is half of all swap (``side_swap_max``), which counts and is not enforced, as in the
  demo (``--dont-fix``). Without swap the source is always critical; here the check is left out.
* The weights and limits of its slices belong to its setup, not to this rule, and are not set.
* With less history than it averages over, the source takes nothing to be idle, and freezes
  everything for its first ten seconds. Here the average is over what there is.
* The source misspells a variable, so that the end of a critical state is not said; and it leaves
  jobs frozen when it ends. Neither is repeated.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stallward.agent.control_law.thresholds import tuned
from stallward.agent.controller import Decision, Need, NodeContext
from stallward.agent.desired import RELEASED, DesiredState, SlotDesire
from stallward.agent.sample import Sample
from stallward.papers.peers.published import (
    Every,
    PressureAverages,
    PublishedController,
    kill_needs,
    kill_switch,
    published_entry,
)

_PERIOD_S: Final = 1.0
_CPU_FLOOR_PERCENT: Final = 5.0
_HEADROOM_READINGS: Final = 5
_OVERLOAD_READINGS: Final = 10
_SIDE_SWAP_SHARE: Final = 0.5
_KILL_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SideloaderNumbers:
    """The numbers of its configuration."""

    headroom_percent: float = tuned(20, "CPU time that stays idle, per cent of all", 0, 100)
    min_avail_percent: float = tuned(
        10, "overload below this for the background, per cent", 0, 100
    )
    memory_percent: float = tuned(50, "overload from this full avg60 on, per cent", 0.1, 100)
    hold_s: float = tuned(10, "what an overload adds to the hold, s", 0, 600)
    most_hold_s: float = tuned(30, "longest hold, s", 0, 600)
    hold_decay_s: float = tuned(0.5, "what a calm second takes off the hold, s", 0, 60)
    swap_percent: float = tuned(10, "critical at this part of its swap, per cent", 0, 100)
    critical_percent: float = tuned(75, "critical from this full avg300 on, per cent", 0.1, 100)
    frozen_s: float = tuned(30, "a job is killed after so long frozen, s", 0.1, 1e6)
    kill: float = kill_switch()


class _Reading(NamedTuple):
    """CPU times at one reading, us."""

    all_us: int
    idle_us: int
    side_us: int


class _Stall:
    """The averages of the background's stall, by its groups."""

    def __init__(self) -> None:
        self._memory: list[PressureAverages] = []
        self._io: list[PressureAverages] = []

    def update(self, sample: Sample) -> None:
        """Take one more reading of every group."""
        while len(self._memory) < len(sample.slots):
            self._memory.append(PressureAverages())
            self._io.append(PressureAverages())
        for memory, io, group in zip(self._memory, self._io, sample.slots, strict=False):
            memory.update(group.psi.memory_full_us, sample.time_s)
            io.update(group.psi.io_full_us, sample.time_s)

    @property
    def memory_avg60(self) -> float:
        return max((one.value.avg60 for one in self._memory), default=0.0)

    @property
    def worst_avg300(self) -> float:
        return max((one.value.avg300 for one in (*self._memory, *self._io)), default=0.0)


class SideloaderController(PublishedController[SideloaderNumbers]):
    """Its main loop."""

    name = "sideloader"

    def _needs(self) -> tuple[Need, ...]:
        levers = (Need.CPU_MAX, Need.PAUSE, *kill_needs(self._numbers.kill))
        signals = (Need.SLOT_STALL, Need.SLOT_IO_STALL, Need.CPU_COUNT)
        return (*levers, *signals)

    def reset(self, context: NodeContext) -> None:
        """Forget the CPU times, the stall and the hold."""
        super().reset(context)
        self._period = Every(_PERIOD_S)
        self._readings: deque[_Reading] = deque(maxlen=_OVERLOAD_READINGS + 1)
        self._stall = _Stall()
        self._frozen_s: float | None = None
        """Since when everything is frozen."""
        self._hold_s = 0.0
        self._hold_from_s = -math.inf
        self._kill_until_s = -math.inf
        self._cores: float | None = None
        self._reason = ""

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        """One pass of the loop, if it is due."""
        self._stall.update(sample)
        if self._context.cpus <= 0 or not sample.slots:
            return Decision(desired=RELEASED, reason="the CPUs of the node are not known")
        if self._period.due(sample.time_s):
            self._read_cpu(sample)
            self._pass(sample)
        each = None if self._cores is None else self._cores / len(sample.slots)
        slot = SlotDesire(
            paused=self._frozen_s is not None,
            cpu_max_cores=each,
            terminated=sample.time_s < self._kill_until_s,
        )
        desired = DesiredState(
            slots=(slot,) * len(sample.slots), kill_at_once=sample.time_s < self._kill_until_s
        )
        return Decision(desired=desired, reason=self._reason)

    def _read_cpu(self, sample: Sample) -> None:
        """Keep another reading of CPU times, if the kernel's file was read since."""
        node, side = sample.node, [group.cpu_usage_us for group in sample.slots]
        if node.cpu_time_us is None or node.cpu_idle_us is None:
            return
        now = _Reading(node.cpu_time_us, node.cpu_idle_us, sum(one or 0 for one in side))
        if self._readings:
            if now.all_us == self._readings[-1].all_us:
                return
            # A processor went offline or came back, or a group was made anew.
            if any(total < before for total, before in zip(now, self._readings[-1], strict=True)):
                self._readings.clear()
        self._readings.append(now)

    def _shares(self, intervals: int) -> tuple[float, float] | None:
        """What was idle, and what the background used, in per cent over so many intervals."""
        if len(self._readings) < 2:
            return None
        first = self._readings[max(len(self._readings) - 1 - intervals, 0)]
        last = self._readings[-1]
        all_us = last.all_us - first.all_us
        idle = 100.0 * (last.idle_us - first.idle_us) / all_us
        side = 100.0 * (last.side_us - first.side_us) / all_us
        return min(max(idle, 0.0), 100.0), min(max(side, 0.0), 100.0)

    def _pass(self, sample: Sample) -> None:
        numbers, time_s = self._numbers, sample.time_s
        average, last = self._shares(_HEADROOM_READINGS), self._shares(1)
        margin = None
        if average is not None and last is not None:
            left = min(average[0], last[0]) + min(average[1], last[1]) - numbers.headroom_percent
            percent = max(left, _CPU_FLOOR_PERCENT)
            self._cores = self._context.cpus * percent / 100.0
        longer = self._shares(_OVERLOAD_READINGS)
        if longer is not None:
            margin = max(sum(longer) - numbers.headroom_percent, 0.0)
        critical = self._critical(sample)
        if critical:
            self._frozen_s = time_s if self._frozen_s is None else self._frozen_s
            self._hold_s = numbers.most_hold_s
            self._kill(time_s)
        overload = self._overload(margin)
        self._hold(overload, time_s)
        self._reason = critical or overload or "headroom"
        if self._frozen_s is not None:
            if time_s - self._frozen_s >= numbers.frozen_s:
                self._kill(time_s)
                self._reason = f"frozen for {time_s - self._frozen_s:.0f} s"
        else:
            self._hold_s = max(self._hold_s - numbers.hold_decay_s, 0.0)

    def _overload(self, margin: float | None) -> str:
        """Why the background is too much; empty if it is not."""
        if margin is not None and margin < self._numbers.min_avail_percent:
            return f"overload: a CPU margin of {margin:.0f} %"
        if self._stall.memory_avg60 >= self._numbers.memory_percent:
            return f"overload: memory full avg60 {self._stall.memory_avg60:.0f} %"
        return ""

    def _hold(self, overload: str, time_s: float) -> None:
        """Freeze on overload, and thaw once the hold is over."""
        if overload:
            if self._frozen_s is None:
                self._frozen_s = time_s
                self._hold_s = min(self._numbers.hold_s + self._hold_s, self._numbers.most_hold_s)
            self._hold_from_s = time_s
        elif self._frozen_s is not None and time_s > self._hold_from_s + self._hold_s:
            self._frozen_s = None

    def _critical(self, sample: Sample) -> str:
        """Why the state is critical; empty if it is not."""
        node, numbers = sample.node, self._numbers
        total, free = node.swap_total_bytes, node.swap_free_bytes
        if total and free is not None:
            used = sum(group.swap_bytes or 0 for group in sample.slots)
            left = max(min(total - used, free), 0)
            if left <= _SIDE_SWAP_SHARE * total * numbers.swap_percent / 100.0:
                return "critical: swap"
        if self._stall.worst_avg300 >= numbers.critical_percent:
            return f"critical: full avg300 {self._stall.worst_avg300:.0f} %"
        return ""

    def _kill(self, time_s: float) -> None:
        """Kill every group, unless that is turned off."""
        if self._numbers.kill and time_s >= self._kill_until_s:
            self._kill_until_s = time_s + _KILL_S


ENTRY = published_entry(
    SideloaderController,
    SideloaderNumbers,
    "sideloader (Meta): CPU headroom, freezes everything on overload, kills when critical",
)
