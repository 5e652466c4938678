"""``earlyoom``: ends the process with the highest OOM score when memory and swap run low.

Source: rfjakob/earlyoom, main.c, kill.c and meminfo.c (5c3e3ea8, 2026-07-13): ``lowmem_sig``,
``sleep_time_ms``, ``is_larger``, ``kill_wait``.

It compares MemAvailable with MemAvailable + AnonPages, and SwapFree with SwapTotal. With both at
or below 10 % it sends SIGTERM, with both at or below 5 % SIGKILL; without swap, memory alone
counts. The victim has the highest ``oom_score``, and of equal ones the largest resident size. For
up to 10 s it waits for the victim to exit, and does nothing else; SIGTERM becomes SIGKILL when
both fall to the kill limits meanwhile. Between two looks it sleeps for as long as memory filled at
6000 MiB/s and swap at 800 MiB/s would take to get there, 0.1 to 1 s.

What differs on this node:

* The machine is the zone (``zone_memory``), and victims are the background's processes: the
  protected application, the daemon and what runs elsewhere are never ended.
* Processes with ``oom_score_adj`` -1000 are not known as such; the kernel scores them 0.
* ``process_mrelease``, notifications, hooks, and preferences by name are left out. So is the
  second look at memory before the signal: victim and memory are of the same sample.
* It looks at ticks of 0.1 s, its shortest sleep.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.control_law.thresholds import tuned
from stallward.agent.controller import Decision, Need, NodeContext
from stallward.agent.desired import MIB, RELEASED
from stallward.agent.sample import Sample
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
    PublishedController,
    kill_switch,
    published_entry,
)

_EXIT_S: Final = 10.0
"""How long it waits for its victim to exit."""
_NO_VICTIM_S: Final = 1.0
_LEAST_SLEEP_S: Final = 0.1
_MOST_SLEEP_S: Final = 1.0
_MEMORY_FILL_BYTES_PER_S: Final = 6000 * MIB
_SWAP_FILL_BYTES_PER_S: Final = 800 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyoomNumbers:
    """Its options ``-m`` and ``-s``, with their defaults."""

    mem_term_percent: float = tuned(10, "available memory for SIGTERM, per cent", 0.01, 99)
    mem_kill_percent: float = tuned(5, "available memory for SIGKILL, per cent", 0.01, 99)
    swap_term_percent: float = tuned(10, "free swap for SIGTERM, per cent", 0.01, 100)
    swap_kill_percent: float = tuned(5, "free swap for SIGKILL, per cent", 0.01, 100)
    kill: float = kill_switch()


def low_memory_signal(memory: ZoneMemory, numbers: EarlyoomNumbers) -> EndSignal | None:
    """The signal that it sends with so much memory and swap left; ``None`` for none."""
    available = _available_percent(memory)
    swap = 100.0 * memory.swap_free_share
    if available <= numbers.mem_kill_percent and swap <= numbers.swap_kill_percent:
        return "SIGKILL"
    if available <= numbers.mem_term_percent and swap <= numbers.swap_term_percent:
        return "SIGTERM"
    return None


def sleep_s(memory: ZoneMemory, numbers: EarlyoomNumbers) -> float:
    """How long it sleeps until it looks again."""
    headroom = _available_percent(memory) - numbers.mem_term_percent
    memory_bytes = headroom / 100.0 * _user_total_bytes(memory)
    swap_headroom = memory.swap_free_share - numbers.swap_term_percent / 100.0
    swap_bytes = swap_headroom * memory.swap_total_bytes
    filled_s = max(memory_bytes, 0.0) / _MEMORY_FILL_BYTES_PER_S
    filled_s += max(swap_bytes, 0.0) / _SWAP_FILL_BYTES_PER_S
    return min(max(filled_s, _LEAST_SLEEP_S), _MOST_SLEEP_S)


def _user_total_bytes(memory: ZoneMemory) -> int:
    return max(memory.available_bytes + memory.anon_bytes, 1)


def _available_percent(memory: ZoneMemory) -> float:
    return 100.0 * memory.available_bytes / _user_total_bytes(memory)


class EarlyoomController(PublishedController[EarlyoomNumbers]):
    """Its poll loop."""

    name = "earlyoom"
    needs_processes = True

    def _needs(self) -> tuple[Need, ...]:
        return (Need.AVAILABLE_MEMORY,)

    def reset(self, context: NodeContext) -> None:
        """Forget the victim."""
        super().reset(context)
        self._next_s = -np.inf
        self._end: ProcessEnd | None = None

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        """One look of the loop, if it is due."""
        memory = zone_memory(sample, self._context.zone_limit_bytes)
        if memory is None:
            return Decision(desired=RELEASED, reason="memory is not known")
        signal = low_memory_signal(memory, self._numbers)
        if self._end is not None:
            return self._wait(self._end, sample, memory, signal)
        if sample.time_s < self._next_s:
            return Decision(desired=RELEASED)
        self._next_s = sample.time_s + sleep_s(memory, self._numbers)
        if signal is None:
            return Decision(desired=RELEASED, reason="enough memory")
        return self._act(signal, sample)

    def _act(self, signal: EndSignal, sample: Sample) -> Decision:
        victim = highest_score(sample.processes)
        if victim is None:
            self._next_s = sample.time_s + _NO_VICTIM_S
            return Decision(desired=RELEASED, reason="no process to end")
        if not self._numbers.kill:
            return would_end(signal, victim)
        self._end = ProcessEnd.of(victim, since_s=sample.time_s, kills=signal == "SIGKILL")
        return self._end.decision(f"low memory: {signal}")

    def _wait(
        self, end: ProcessEnd, sample: Sample, memory: ZoneMemory, signal: EndSignal | None
    ) -> Decision:
        """Wait for the victim to exit."""
        alive = is_alive(end.ref, sample.processes)
        if not alive or sample.time_s - end.since_s >= _EXIT_S:
            self._end = None
            self._next_s = sample.time_s + sleep_s(memory, self._numbers)
            reason = "the victim did not exit" if alive else "the victim exited"
            return Decision(desired=RELEASED, reason=reason)
        if signal == "SIGKILL" and not end.kills:
            self._end = end = end.escalated()
        return end.decision("waits for the victim to exit")


ENTRY = published_entry(
    EarlyoomController,
    EarlyoomNumbers,
    "earlyoom: ends the highest OOM score at 10 % of memory and swap, kills at 5 %",
)
