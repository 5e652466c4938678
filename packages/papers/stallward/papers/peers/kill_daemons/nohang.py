"""``nohang``: ends the process with the highest OOM score when memory and swap run low, or stall.

Source: hakavlad/nohang, src/nohang and conf/nohang/nohang-desktop.conf.in (1d498387, 2026-02-01):
``check_mem_swap_ex``, ``check_psi_ex``, ``implement_corrective_action``,
``sleep_after_check_mem``. Its plain configuration has the same numbers with PSI off (``psi=0``).

* Memory and swap: MemAvailable at or below 5 % of MemTotal and SwapFree at or below 10 % of
  SwapTotal call for SIGTERM, 2 % and 4 % for SIGKILL.
* Stall: while available memory is at or below the same 5 % or 2 %, ``full avg10`` of at least 40
  or 90 % for 30 s, and 15 s after the last action. Without swap the stall is not looked at.
* The victim has the highest badness, which is its ``oom_score``. One that was sent SIGTERM stays
  the victim for 10 s, gets SIGKILL if it is still there after 10 s, and nothing before that. After
  SIGKILL it waits up to 10 s for the end.
* Between two looks it sleeps for as long as memory filled at 6000 MiB/s and swap at 2000 MiB/s
  would take, 0.1 to 3 s; while it has something to do, 0.1 s.

What differs on this node:

* The machine is the zone (``zone_memory``), the PSI file is the zone's, and victims are the
  background's processes.
* ``full avg10`` is computed from the total as the kernel does (``PressureAverages``).
* Its rules on names, command lines and cgroups (badness adjustment, commands in place of signals)
  name programs of a desktop, and are left out; so are zram, warnings and the kernel's log.
* It has no dry run; ``kill=0`` is this project's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.control_law.thresholds import tuned
from stallward.agent.controller import Decision, Need, NodeContext
from stallward.agent.desired import MIB, RELEASED, ProcessRef
from stallward.agent.sample import ProcessSample, Sample
from stallward.papers.peers.kill_daemons.victims import (
    EndSignal,
    ProcessEnd,
    ZoneMemory,
    highest_score,
    is_alive,
    would_end,
    zone_memory,
)
from stallward.papers.peers.published import (
    PressureAverages,
    PublishedController,
    kill_switch,
    published_entry,
)

_MEMORY_FILL_BYTES_PER_S: Final = 6000 * MIB
_SWAP_FILL_BYTES_PER_S: Final = 2000 * MIB
_LEAST_SLEEP_S: Final = 0.1
_MOST_SLEEP_S: Final = 3.0
_LEAST_BADNESS: Final = 1
_KILL_WAIT_S: Final = 10.0
"""How long it waits for the end after SIGKILL."""
_WARNING_SHARE: Final = 0.2
"""Above this share of available memory the stall is not looked at (``warning_threshold_min_mem``).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NohangNumbers:
    """The numbers of its configuration for desktops."""

    soft_mem_percent: float = tuned(5, "available memory for SIGTERM, per cent", 0, 50)
    hard_mem_percent: float = tuned(2, "available memory for SIGKILL, per cent", 0, 50)
    soft_swap_percent: float = tuned(10, "free swap for SIGTERM, per cent", 0, 100)
    hard_swap_percent: float = tuned(4, "free swap for SIGKILL, per cent", 0, 100)
    psi: float = tuned(1, "whether it looks at the stall of memory", 0, 1, whole=True)
    soft_psi_percent: float = tuned(40, "full avg10 for SIGTERM, per cent", 5, 100)
    hard_psi_percent: float = tuned(90, "full avg10 for SIGKILL, per cent", 5, 100)
    psi_excess_s: float = tuned(30, "how long the stall must last, s", 0, 600)
    psi_post_action_s: float = tuned(15, "no action by stall so soon after another, s", 10, 600)
    soft_exit_s: float = tuned(10, "SIGKILL so long after SIGTERM, s", 0.1, 600)
    kill: float = kill_switch()


def memory_signal(memory: ZoneMemory, numbers: NohangNumbers) -> EndSignal | None:
    """The signal that so much memory and swap calls for; ``None`` for none."""
    available, swap = 100.0 * memory.available_share, 100.0 * memory.swap_free_share
    if available <= numbers.hard_mem_percent and swap <= numbers.hard_swap_percent:
        return "SIGKILL"
    if available <= numbers.soft_mem_percent and swap <= numbers.soft_swap_percent:
        return "SIGTERM"
    return None


def sleep_s(memory: ZoneMemory, numbers: NohangNumbers) -> float:
    """How long it sleeps until it looks again."""
    memory_share = memory.available_share - numbers.soft_mem_percent / 100.0
    swap_share = memory.swap_free_share - numbers.soft_swap_percent / 100.0
    filled_s = max(memory_share, 0.0) * memory.total_bytes / _MEMORY_FILL_BYTES_PER_S
    filled_s += max(swap_share, 0.0) * memory.swap_total_bytes / _SWAP_FILL_BYTES_PER_S
    return min(max(filled_s, _LEAST_SLEEP_S), _MOST_SLEEP_S)


class StallCheck:
    """Whether the stall of memory calls for an action (``check_psi_ex``).

    Args:
        numbers: The thresholds.
        time_s: The time now, which counts as that of an action.
    """

    def __init__(self, numbers: NohangNumbers, time_s: float) -> None:
        self._numbers = numbers
        self._looked_s = self.action_s = time_s
        self._hard_s: float | None = None
        self._soft_s: float | None = None

    def signal(self, full_avg10: float, memory: ZoneMemory, time_s: float) -> EndSignal | None:
        """The signal that the stall calls for; ``None`` for none."""
        numbers, available = self._numbers, memory.available_share
        if available > _WARNING_SHARE or not memory.swap_total_bytes:
            return None
        passed_s, self._looked_s = time_s - self._looked_s, time_s
        may_act = time_s - self.action_s >= numbers.psi_post_action_s
        low = 100.0 * available <= numbers.hard_mem_percent
        stalls = full_avg10 >= numbers.hard_psi_percent
        self._hard_s = _lasting(self._hard_s, passed_s, goes_on=low and stalls)
        if may_act and self._hard_s is not None and self._hard_s >= numbers.psi_excess_s:
            return "SIGKILL"
        low = 100.0 * available <= numbers.soft_mem_percent
        stalls = full_avg10 >= numbers.soft_psi_percent
        self._soft_s = _lasting(self._soft_s, passed_s, goes_on=low and stalls)
        if may_act and self._soft_s is not None and self._soft_s >= numbers.psi_excess_s:
            return "SIGTERM"
        return None


def _lasting(lasted_s: float | None, passed_s: float, *, goes_on: bool) -> float | None:
    """How long something has lasted, which begins at 0."""
    if not goes_on:
        return None
    return 0.0 if lasted_s is None else lasted_s + passed_s


class NohangController(PublishedController[NohangNumbers]):
    """Its main loop."""

    name = "nohang"
    needs_processes = True

    def _needs(self) -> tuple[Need, ...]:
        stall = (Need.MEMORY_STALL,) if self._numbers.psi else ()
        return (Need.AVAILABLE_MEMORY, *stall)

    def reset(self, context: NodeContext) -> None:
        """Forget the victims and the stall."""
        super().reset(context)
        self._averages = PressureAverages()
        self._stall: StallCheck | None = None
        self._next_s = -math.inf
        self._termed: dict[ProcessRef, float] = {}
        """The processes that were sent SIGTERM, and when."""
        self._killing: ProcessEnd | None = None
        self._ending: ProcessEnd | None = None
        """What was signalled last, while it is there."""

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        """One look of the loop, if it is due."""
        full = self._averages.update(sample.zone.psi.memory_full_us, sample.time_s).avg10
        memory = zone_memory(sample, self._context.zone_limit_bytes)
        if memory is None:
            return Decision(desired=RELEASED, reason="memory is not known")
        self._forget_ended(sample)
        if self._killing is not None:
            return self._killing.decision("waits for the end")
        if sample.time_s < self._next_s:
            return self._go_on()
        signal = self._signal(memory, full, sample.time_s)
        if signal is None:
            self._next_s = sample.time_s + sleep_s(memory, self._numbers)
            return self._go_on()
        self._next_s = sample.time_s + _LEAST_SLEEP_S
        return self._act(signal, sample)

    def _signal(self, memory: ZoneMemory, full: float, time_s: float) -> EndSignal | None:
        """The stronger of the signals that memory and stall call for."""
        if self._stall is None:
            self._stall = StallCheck(self._numbers, time_s)
        signals = [memory_signal(memory, self._numbers)]
        if self._numbers.psi:
            signals.append(self._stall.signal(full, memory, time_s))
        return "SIGKILL" if "SIGKILL" in signals else "SIGTERM" if "SIGTERM" in signals else None

    def _act(self, signal: EndSignal, sample: Sample) -> Decision:
        victim = self._cached(sample) or highest_score(sample.processes, least=_LEAST_BADNESS)
        if victim is None:
            return Decision(desired=RELEASED, reason="no process to end")
        if not self._numbers.kill:
            return would_end(signal, victim)
        end = ProcessEnd.of(victim, since_s=sample.time_s, kills=signal == "SIGKILL")
        termed_s = self._termed.get(end.ref)
        if not end.kills and termed_s is not None:
            if sample.time_s - termed_s <= self._numbers.soft_exit_s:
                return self._go_on()
            end = end.escalated()
        if end.kills:
            self._killing = end
        else:
            self._termed[end.ref] = sample.time_s
        self._ending = end
        if self._stall is not None:
            self._stall.action_s = sample.time_s
        return end.decision("low memory: SIGKILL" if end.kills else "low memory: SIGTERM")

    def _cached(self, sample: Sample) -> ProcessSample | None:
        """The victim that was sent SIGTERM lately, if it is still there."""
        recent = {
            (ref.pid, ref.start_time_ticks)
            for ref, termed_s in self._termed.items()
            if sample.time_s - termed_s < self._numbers.soft_exit_s
        }
        known = (p for p in sample.processes or () if (p.pid, p.start_time_ticks) in recent)
        return next(known, None)

    def _forget_ended(self, sample: Sample) -> None:
        """Forget the victims that have ended, and the kill that nothing came of."""
        for ref in tuple(self._termed):
            if not is_alive(ref, sample.processes):
                del self._termed[ref]
        if self._ending is not None and not is_alive(self._ending.ref, sample.processes):
            self._ending = None
        killing = self._killing
        if killing is not None and (
            not is_alive(killing.ref, sample.processes)
            or sample.time_s - killing.since_s >= _KILL_WAIT_S
        ):
            self._killing = None

    def _go_on(self) -> Decision:
        """Want what was wanted before, and nothing new."""
        if self._ending is None:
            return Decision(desired=RELEASED)
        return self._ending.decision("waits for the victim to exit")


ENTRY = published_entry(
    NohangController,
    NohangNumbers,
    "nohang: ends the highest OOM score at 5 % of memory and 10 % of swap, or on stall",
)
