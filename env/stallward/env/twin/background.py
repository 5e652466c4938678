"""The background programs in the twin: when they run, what they touch, how far they get."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.desired import SLOTS
from stallward.env.twin import pages, stalls
from stallward.env.twin.memory import Memory, warmed
from stallward.env.twin.pages import ANON, COLD, FILE
from stallward.env.twin.tables import NodeColumns

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

_ALLOCATING: Final = 0.5
"""Share of its accesses that a growing program spends on new pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strides:
    """What the programs do in a moment, if they get the pages they ask for."""

    run: Array
    """Share of full speed, ``(SLOTS, B)``."""
    stalled: Array
    """Share of the time spent waiting for pages, ``(SLOTS, B)``."""
    fresh: Array
    """Anonymous pages allocated newly, ``(SLOTS, B)``."""
    faults: Array
    """Pages faulted in, anonymous and file, ``(SLOTS, 2, B)``."""
    demand: Array
    """All pages asked for, ``(SLOTS, POOLS, B)``."""


class Background:
    """The programs of ``B`` nodes, each with a time of its own that passes as it gets on.

    Args:
        columns: The description and parameters of the nodes.
        memory: Shared with the twin; rows 1 and up are the slots'.
        step_s: Length of a sub-step.

    Attributes:
        cursor_s: Each program's own time, ``(SLOTS, B)``.
        progress: Share of full speed of each slot in the last tick, ``(SLOTS, B)``.
        on: Whether somebody runs each slot's program, ``(SLOTS, B)``.
        limit_pages: The limits in force, ``(SLOTS, B)``; infinite for none.
    """

    def __init__(self, columns: NodeColumns, memory: Memory, step_s: float) -> None:
        self._columns = columns
        self._memory = memory
        self._step_s = step_s
        shape = (SLOTS, len(columns.rate_per_s))
        self.cursor_s = np.zeros(shape)
        self.progress = np.zeros(shape)
        self.on = np.zeros(shape)
        self.limit_pages = np.full(shape, np.inf)
        self._limit_change_s = np.zeros(shape)
        self._running = np.ones(shape)
        self._change_s = np.zeros(shape)
        self._kernel_cores = np.zeros(shape)
        self._kernel_s = np.zeros(shape)
        self._phase_s = np.zeros(shape[1])
        self._cpu = np.ones(shape[1])
        self._target = np.zeros((2, *shape))

    def reset(
        self, index: NDArray[np.int64], cursor_s: Array | float, phase_s: Array | float
    ) -> None:
        """Start the programs of the nodes ``index`` at ``cursor_s`` and ``phase_s``."""
        for array in (self.progress, self._kernel_cores, self._change_s, self._limit_change_s):
            array[:, index] = 0.0
        self.cursor_s[:, index] = cursor_s
        self._running[:, index] = 1.0
        self.limit_pages[:, index] = np.inf
        self._phase_s[index] = phase_s
        self.on[:, index] = self._columns.running(self._phase_s)[:, index]

    def demand_cores(self) -> Array:
        """Processors asked for, ``(SLOTS, B)``: by the programs and, for them, by the kernel."""
        return np.asarray(self._columns.slot_cores * self.progress + self._kernel_cores)

    def begin_tick(self, time_s: Array, cpu: Array) -> None:
        """Let programs come and go: one that stops frees its memory, one that starts begins anew.

        Args:
            time_s: Since the nodes' resets, ``(B,)``.
            cpu: Speed that the processors allow, ``(B,)``.
        """
        on = self._columns.running(time_s + self._phase_s)
        changed = on != self.on
        if changed.any():
            self._memory.free(changed & (on == 0.0))
            self.cursor_s[changed] = 0.0
            self.on = on
        self._target = self._columns.targets(self.cursor_s)
        self._cpu = cpu
        self.progress[:] = 0.0
        self._kernel_s[:] = 0.0

    def move_levers(self, paused: Mask, limit_pages: Array) -> None:
        """Let settings take hold after their delays."""
        c, step_s = self._columns, self._step_s
        run = 1.0 - paused
        self._change_s = np.where(run != self._running, self._change_s + step_s, 0.0)
        held = self._change_s >= c.parameter("pause_delay_s")
        self._running = np.where(held, run, self._running)
        self._limit_change_s = np.where(
            limit_pages != self.limit_pages, self._limit_change_s + step_s, 0.0
        )
        held = self._limit_change_s >= c.parameter("limit_delay_s")
        self.limit_pages = np.where(held, limit_pages, self.limit_pages)

    def stride(
        self,
        miss: Array,
        page_s: tuple[Array, Array],
        page_cpu_s: tuple[Array, Array],
        open_share: Array,
    ) -> Strides:
        """What the programs do in a sub-step.

        Args:
            miss: Chance that a touched page is missing, ``(SLOTS, POOLS, B)``.
            page_s: Wait for one missing page (anonymous, file), ``(B,)`` each.
            page_cpu_s: Processor time that it costs, likewise.
            open_share: Share of full speed that writers have, ``(B,)``.
        """
        c = self._columns
        active = self.on * self._running
        wanted, resident = self._memory.wanted[1:], self._memory.resident[1:]
        anon, file = wanted[:, ANON], wanted[:, FILE]
        share = anon / np.maximum(anon + file, 1.0)
        stream = c.stream_per_s / np.maximum(c.touch_per_s, 1.0)
        unread = np.clip(1.0 - resident[:, COLD] / np.maximum(c.stream_span, 1.0), 0.0, 1.0)
        reading = stream * unread * (1.0 - c.dirty_share) / c.parameter("read_pages_per_s")
        stall = (
            share * miss[:, ANON] * page_s[0] + (1.0 - share) * miss[:, FILE] * page_s[1] + reading
        )
        kernel = (
            share * miss[:, ANON] * page_cpu_s[0] + (1.0 - share) * miss[:, FILE] * page_cpu_s[1]
        )
        raw = stalls.speed(c.touch_per_s, stall + kernel, np.clip(c.slot_cores, 0.0, 1.0))
        run = active * raw * self._cpu * np.where(c.dirty_share > 0, open_share, 1.0)
        demand = np.empty_like(resident)
        fresh, faults = self._working_sets(active, run, share, miss, demand)
        demand[:, COLD] = c.stream_per_s * unread * run * self._step_s
        return Strides(
            run=run,
            stalled=np.minimum(active * raw * c.touch_per_s * stall, 1.0),
            fresh=fresh,
            faults=faults,
            demand=demand,
        )

    def _working_sets(
        self, active: Array, run: Array, share: Array, miss: Array, demand: Array
    ) -> tuple[Array, Array]:
        """Touch, grow and shrink the sets; fills ``demand``, returns fresh pages and faults."""
        c, step_s = self._columns, self._step_s
        wanted, resident = self._memory.wanted[1:], self._memory.resident[1:]
        owned = wanted[:, :COLD].sum(axis=1)
        touched = c.touch_per_s * run * step_s
        faults = demand[:, :COLD]
        faults[:, ANON] = touched * share * miss[:, ANON]
        faults[:, FILE] = touched * (1.0 - share) * miss[:, FILE]
        np.minimum(faults, wanted[:, :COLD] - resident[:, :COLD], out=faults)
        np.maximum(faults, 0.0, out=faults)
        growth = _ALLOCATING * c.touch_per_s * active * step_s
        target = np.where(active > 0.0, self._target, wanted[:, :COLD].swapaxes(0, 1))
        resident[:, ANON], wanted[:, ANON], fresh = pages.resize(
            resident[:, ANON], wanted[:, ANON], target[0], growth
        )
        wanted[:, FILE] = target[1]
        np.minimum(resident[:, FILE], wanted[:, FILE], out=resident[:, FILE])
        warm = c.touch_per_s * run / np.maximum(owned, 1.0)
        touches = self._memory.touches_per_s[1:, :COLD]
        touches[:] = warmed(touches, warm[:, None], step_s)
        result = faults.copy()
        np.minimum(faults[:, FILE], wanted[:, FILE] - resident[:, FILE], out=faults[:, FILE])
        np.maximum(faults, 0.0, out=faults)
        demand[:, ANON] = faults[:, ANON] + fresh
        return fresh, result

    def advance(
        self, run: Array, faults: Array, page_cpu_s: tuple[Array, Array], part: float
    ) -> None:
        """Count a sub-step, ``part`` of a tick, in which the programs ran at speed ``run``."""
        self._kernel_s += faults[:, ANON] * page_cpu_s[0] + faults[:, FILE] * page_cpu_s[1]
        self.progress += part * run

    def end_tick(self, tick_s: float) -> Array:
        """Let the programs' own time pass.

        Returns:
            Processors in use, ``(SLOTS, B)``.
        """
        self._kernel_cores = np.minimum(self._kernel_s / tick_s, 1.0)
        self.cursor_s += self.progress * tick_s
        return np.asarray(self._kernel_cores + self.progress * self._columns.slot_cores)
