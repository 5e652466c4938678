"""``storm``: moves every lever at random, all the time, to test that everything is put back.

It is for tests only and protects nothing. Unlike ``excite`` it is not restricted to the action
table of learned policies: it uses every lever. It ends programs only where ``ends`` says so. It
runs on every node: a lever that is missing is one that it cannot move.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stallward.agent.controller import Decision, NodeContext
from stallward.agent.desired import MIB, DesiredState, ProcessRef, SlotDesire, Tuning
from stallward.agent.plugin import MAX_SEED, ControllerEntry, number
from stallward.agent.sample import Sample

_MAX_STOPPED = 4


class StormController:
    """Draws a new desired state every few ticks.

    Args:
        arguments: ``hold`` (probability that a tick keeps the last state, default 0.7),
            ``idle_s`` (how long it does nothing after the start, default 0), ``ends`` (probability
            that a new state ends a process or a group, default 0), ``seed`` (added to the
            context's, default 0).

    Raises:
        ControllerError: If an argument is not a number.
    """

    name = "storm"
    needs_processes = True

    def __init__(self, arguments: Mapping[str, str]) -> None:
        self._hold = number(arguments, "hold", 0.7)
        self._idle_s = number(arguments, "idle_s", 0.0)
        self._ends = number(arguments, "ends", 0.0, low=0.0, high=1.0)
        self._seed_offset = int(number(arguments, "seed", 0, low=0, high=MAX_SEED))
        self.reset(NodeContext(zone_limit_bytes=0, slot_names=()))

    def reset(self, context: NodeContext) -> None:
        """Start from the node's default with a generator of the context's seed."""
        self._context = context
        self._generator = np.random.default_rng((context.seed, self._seed_offset))
        self._desired = DesiredState()
        self._first_s: float | None = None

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        """Keep the last state, or draw a new one."""
        if self._first_s is None:
            self._first_s = sample.time_s
        if sample.time_s < self._first_s + self._idle_s:
            return Decision(desired=self._desired, reason="idle")
        if self._generator.random() >= self._hold:
            self._desired = self._draw(sample)
            if self._ends and self._generator.random() < self._ends:
                self._desired = self._ending(self._desired, sample)
        return Decision(desired=self._desired, reason="storm")

    def _ending(self, desired: DesiredState, sample: Sample) -> DesiredState:
        """The same state, in which a process or a group is ended as well."""
        refs = _background(sample)
        at_once = self._coin()
        if refs and self._coin():
            victim = refs[int(self._generator.integers(len(refs)))]
            return replace(desired, terminate=victim, kill_at_once=at_once)
        ended = int(self._generator.integers(max(len(desired.slots), 1)))
        slots = tuple(
            replace(slot, terminated=index == ended) for index, slot in enumerate(desired.slots)
        )
        return replace(desired, slots=slots, kill_at_once=at_once)

    def _draw(self, sample: Sample) -> DesiredState:
        refs = _background(sample)
        stopped = tuple(ref for ref in refs if self._coin())[:_MAX_STOPPED]
        return DesiredState(
            slots=tuple(self._slot(index) for index in range(len(sample.slots))),
            tuning=Tuning(
                name="storm",
                swappiness=self._maybe(1, 100),
                protected_swappiness=self._maybe(1, 100),
                dirty_background_ratio=self._maybe(1, 10),
                dirty_ratio=self._maybe(11, 60),
            ),
            stopped=stopped,
            protect_from_oom=self._coin(),
            protected_low_bytes=self._maybe(4 * MIB, 32 * MIB),
        )

    def _slot(self, index: int) -> SlotDesire:
        floor = self._context.floor(index)
        return SlotDesire(
            paused=self._coin(),
            limit_bytes=self._maybe(floor, 4 * floor + MIB),
            hard_limit_bytes=self._maybe(8 * floor, 16 * floor),
            swap_max_bytes=self._maybe(256 * MIB, 512 * MIB),
            cpu_weight=self._maybe(1, 10_000),
            cpu_max_cores=self._generator.uniform(0.1, 1.0) if self._coin() else None,
            io_weight=self._maybe(1, 10_000),
            io_max_bytes_per_s=self._maybe(4 * MIB, 64 * MIB),
            nice=self._maybe(1, 19),
            cpus=(0,) if self._coin() else (),
        )

    def _coin(self) -> bool:
        return bool(self._generator.random() < 0.5)

    def _maybe(self, low: int, high: int) -> int | None:
        """A number from ``low`` to ``high``, or the node's own value half the time."""
        return int(self._generator.integers(low, high + 1)) if self._coin() else None


def _background(sample: Sample) -> list[ProcessRef]:
    return [
        ProcessRef(pid=process.pid, start_time_ticks=process.start_time_ticks)
        for process in sample.processes or ()
        if process.slot >= 0
    ]


ENTRY = ControllerEntry(
    name="storm",
    summary="moves every lever at random, to test that everything is put back",
    make=StormController,
    parameters={
        "hold": "probability that a tick keeps the last state (default 0.7)",
        "idle_s": "seconds in which it does nothing at first (default 0)",
        "ends": "probability that a new state ends a process or a group (default 0)",
        "seed": "added to the run's seed (default 0)",
    },
)
