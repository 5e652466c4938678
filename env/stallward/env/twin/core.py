"""The twin itself: the state of ``B`` nodes and what one tick does to it.

Order of a sub-step: what everybody asks for (requests, touches, growth), what that makes them
wait for, which pages reclaim takes to make room, what they get. Nothing recorded is played back
but arrivals and programs of work; see ``application`` for the requests and the pure functions
in ``pages``, ``stalls`` and ``latency``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.desired import SLOTS
from stallward.env.twin import pages, stalls
from stallward.env.twin.application import Application, Served
from stallward.env.twin.counters import Counters
from stallward.env.twin.pages import ANON, COLD, FILE, GROUPS, POOLS
from stallward.env.twin.reclaim import Bounds, make_room
from stallward.env.twin.scenario import TwinScenario
from stallward.env.twin.tables import NodeColumns, ScenarioTable

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

TICK_S: Final = 0.1
SUBSTEPS: Final = 4
_STEP_S: Final = TICK_S / SUBSTEPS
NODE_SWAPPINESS: Final = 60.0
NODE_DIRTY_RATIOS: Final = (0.10, 0.20)
"""Share of the zone at which writeback starts and at which writers block."""
_WARMTH_S: Final = 0.5
"""Time constant with which a page's warmth follows how often it is touched."""


class TwinBatch:
    """``B`` nodes. Arrays have the node last; pages are 4096 bytes, shares are of a tick.

    Attributes:
        columns: The exogenous description and the parameters of every node.
        application: The requests and their queue.
        resident, wanted: ``(GROUPS, POOLS, B)`` pages in memory and owned.
        dirty: Dirty pages of the cold pools, ``(GROUPS, B)``.
        time_s: ``(B,)``, since the node's reset.
        cursor_s: Each program's own time, ``(SLOTS, B)``.
        progress: Share of full speed of each slot in the last tick, ``(SLOTS, B)``.
        stalled: Share of the last tick each group was stalled, ``(GROUPS, B)``.
        some, full: The same of the whole zone, ``(B,)``.
        counters: What the nodes count.
        on: Whether somebody runs each slot's program, ``(SLOTS, B)``.
    """

    def __init__(self, scenarios: Sequence[TwinScenario], batch: int, *, seed: int) -> None:
        self.columns = NodeColumns(ScenarioTable(scenarios), batch)
        self.batch = batch
        self.rng = np.random.default_rng(seed)
        self.counters = Counters(batch)
        self.application = Application(self.columns, self.rng, SUBSTEPS, _STEP_S)
        groups = (GROUPS, batch)
        slots = (SLOTS, batch)
        self.resident = np.zeros((GROUPS, POOLS, batch))
        self.wanted = np.zeros((GROUPS, POOLS, batch))
        self.dirty = np.zeros(groups)
        self._touches_per_s = np.zeros((GROUPS, POOLS, batch))
        self.time_s = np.zeros(batch)
        self.cursor_s = np.zeros(slots)
        self.progress = np.zeros(slots)
        self.stalled = np.zeros(groups)
        self.some = np.zeros(batch)
        self.full = np.zeros(batch)
        self._backlog_s = np.zeros(batch)
        self._fault_cores = np.zeros(slots)
        self._kernel_s = np.zeros(slots)
        self._io_share = np.zeros((GROUPS + 1, batch))
        self._miss_exponent = np.ones((GROUPS, POOLS, batch))
        self._phase_s = np.zeros(batch)
        self.on = np.zeros(slots)
        self._running = np.ones(slots)
        self._change_s = np.zeros(slots)
        self._limit_pages = np.full(slots, np.inf)
        self._limit_change_s = np.zeros(slots)

    def seed(self, seed: int) -> None:
        """Start the random stream afresh."""
        self.rng = np.random.default_rng(seed)
        self.application.rng = self.rng

    def reset(
        self,
        rows: Mask,
        scenario: NDArray[np.int64],
        parameters: Array,
        *,
        cursor_s: Array | float = 0.0,
        phase_s: Array | float = 0.0,
    ) -> None:
        """Start the nodes in ``rows`` afresh: the application loaded, the background starting.

        Args:
            rows: Which nodes, ``(B,)``.
            scenario: Index of the scenario of each of them, ``(n,)``.
            parameters: ``(len(PARAMETER_NAMES), n)``.
            cursor_s: Where each program starts, scalar or ``(SLOTS, n)``.
            phase_s: How far into the coming and going of the programs, scalar or ``(n,)``.
        """
        index = np.flatnonzero(rows)
        self.columns.fill(index, scenario, parameters)
        columns = self.columns
        self.counters.reset(rows)
        for array in (
            self.resident, self.wanted, self.dirty, self._touches_per_s, self.time_s,
            self.progress, self.stalled, self.some, self.full, self._backlog_s,
            self._fault_cores, self._change_s, self._limit_change_s,
        ):  # fmt: skip
            array[..., index] = 0.0
        self.cursor_s[:, index] = cursor_s
        self._running[:, index] = 1.0
        self._limit_pages[:, index] = np.inf
        self.application.reset(rows)
        self._phase_s[index] = phase_s
        self.on[:, index] = columns.running(self._phase_s)[:, index]
        exponent = self._miss_exponent
        exponent[0][:COLD, index] = columns.parameter("protected_miss_exponent")[index]
        exponent[1:, :COLD, index] = columns.slot_parameter("miss_exponent")[:, None, index]
        self.wanted[0][:, index] = columns.wanted[:, index]
        hot = columns.wanted[:COLD, index]
        fits = columns.zone_pages[index] / np.maximum(hot.sum(axis=0), 1.0)
        self.resident[0][:COLD, index] = hot * np.minimum(0.98 * fits, 1.0)

    def tick(
        self,
        paused: Mask,
        limit_pages: Array,
        swappiness: Array | float = NODE_SWAPPINESS,
        dirty_ratios: tuple[Array | float, Array | float] = NODE_DIRTY_RATIOS,
    ) -> None:
        """One tick of 0.1 s with the levers as given.

        Args:
            paused: ``(SLOTS, B)``.
            limit_pages: ``(SLOTS, B)``; infinite for none.
            swappiness: ``(B,)`` or scalar.
            dirty_ratios: When writeback starts and when writers block, shares of the zone.
        """
        c = self.columns
        noise = c.parameter("device_sigma")
        self._noise = np.exp(noise * self.rng.standard_normal(self.batch) - 0.5 * noise * noise)
        self._swap_weight = c.parameter("anon_weight") * swappiness / 200.0
        self._file_weight = np.broadcast_to(1.0 - np.asarray(swappiness) / 200.0, (self.batch,))
        self._dirty_pages = (c.zone_pages * dirty_ratios[0], c.zone_pages * dirty_ratios[1])
        self._page_cpu_s = (c.parameter("anon_fault_cpu_s"), c.parameter("file_fault_cpu_s"))
        self._start_and_stop()
        self._target = c.targets(self.cursor_s)
        demand_cores = (c.slot_cores * self.progress + self._fault_cores).sum(axis=0)
        own = np.minimum(c.rate_per_s * c.service_s, c.workers)
        self._cpu = stalls.cpu_share(demand_cores, own, c.cores)
        crowded = np.clip(demand_cores / c.cores, 0.0, 1.0)
        self._service_s = c.service_s * (1.0 + c.parameter("cpu_slowdown") * crowded)
        self.counters.cpu_stall_us += (
            1e6 * TICK_S * np.clip(demand_cores + own - c.cores, 0.0, 1.0)
        )
        self.progress[:] = 0.0
        self.stalled[:] = 0.0
        self.some[:] = 0.0
        self.full[:] = 0.0
        self._io_share[:] = 0.0
        self._kernel_s[:] = 0.0
        for k in range(SUBSTEPS):
            self._move_levers(paused, limit_pages)
            self._substep(k)
        self.time_s += TICK_S
        self.application.report(self.time_s)
        self.counters.psi_some_us[:GROUPS] += 1e6 * TICK_S * self.stalled
        self.counters.psi_full_us[:GROUPS] += 1e6 * TICK_S * self.stalled
        self.counters.psi_some_us[GROUPS] += 1e6 * TICK_S * self.some
        self.counters.psi_full_us[GROUPS] += 1e6 * TICK_S * self.full
        self.counters.psi_io_us += 1e6 * TICK_S * self._io_share
        self._fault_cores = np.minimum(self._kernel_s / TICK_S, 1.0)
        self.counters.cpu_us[1:] += (
            1e6 * TICK_S * (self._fault_cores + self.progress * c.slot_cores)
        )
        self.counters.units += c.units_per_s * self.progress * TICK_S
        self.cursor_s += self.progress * TICK_S

    def end_slots(self, ended: Mask) -> None:
        """The programs of the slots in ``ended`` ``(SLOTS, B)`` are gone, with their memory."""
        self.columns.present[ended] = 0.0
        self._free(ended)

    def _start_and_stop(self) -> None:
        """Programs come and go: one that stops frees its memory, one that starts begins anew."""
        on = self.columns.running(self.time_s + self._phase_s)
        changed = on != self.on
        if changed.any():
            self._free(changed & (on == 0.0))
            self.cursor_s[changed] = 0.0
            self.on = on

    def _free(self, ended: Mask) -> None:
        gone = np.broadcast_to(ended[:, None], self.resident[1:].shape)
        self.resident[1:][gone] = 0.0
        self.wanted[1:][gone] = 0.0
        self.dirty[1:][ended] = 0.0

    def _move_levers(self, paused: Mask, limit_pages: Array) -> None:
        """Let settings take hold after their delays."""
        c = self.columns
        run = 1.0 - paused
        self._change_s = np.where(run != self._running, self._change_s + _STEP_S, 0.0)
        held = self._change_s >= c.parameter("pause_delay_s")
        self._running = np.where(held, run, self._running)
        self._limit_change_s = np.where(
            limit_pages != self._limit_pages, self._limit_change_s + _STEP_S, 0.0
        )
        held = self._limit_change_s >= c.parameter("limit_delay_s")
        self._limit_pages = np.where(held, limit_pages, self._limit_pages)

    def _substep(self, k: int) -> None:
        c = self.columns
        zone_free = c.zone_pages - self.resident.sum(axis=(0, 1))
        tight = np.clip(1.0 - zone_free / (0.02 * c.zone_pages), 0.0, 1.0)
        anon_s, file_s = self._page_wait_s(tight)
        miss = pages.miss_probability(self.resident, self.wanted, self._miss_exponent)
        demand = np.empty_like(self.resident)
        served = self.application.serve(
            k, miss[0], self.resident[0], self._service_s, (anon_s, file_s), self._page_cpu_s
        )
        demand[0] = served.pages
        warmer = served.touches_per_s - self._touches_per_s[0]
        self._touches_per_s[0] += (_STEP_S / _WARMTH_S) * warmer
        fresh, faults, run = self._background(miss[1:], anon_s, file_s, demand)
        got = self._make_room(demand)
        share = got.sum(axis=1) / np.maximum(demand.sum(axis=1), pages.EPSILON)
        share = np.where(demand.sum(axis=1) > pages.EPSILON, share, 1.0)
        self.resident += got
        self.wanted[1:, ANON] += fresh * share[1:]
        np.minimum(self.resident[:, :COLD], self.wanted[:, :COLD], out=self.resident[:, :COLD])
        np.minimum(self.resident[0], self.wanted[0], out=self.resident[0])
        self.wanted[1:, COLD] = self.resident[1:, COLD]
        self._account(served, faults, run * share[1:])

    def _page_wait_s(self, tight: Array) -> tuple[Array, Array]:
        """Seconds a task waits for one missing page (anonymous, file)."""
        c = self.columns
        read_s = stalls.read_latency_s(
            c.parameter("read_latency_s"),
            self._backlog_s,
            c.parameter("read_queue_share"),
            self._noise,
        )
        each = 1.0 / c.parameter("read_pages_per_s") + tight * c.parameter("reclaim_s_per_page")
        return (
            read_s / c.parameter("swap_readahead_pages") + each,
            read_s / c.parameter("file_readahead_pages") + each,
        )

    def _background(
        self, miss: Array, anon_s: Array, file_s: Array, demand: Array
    ) -> tuple[Array, Array, Array]:
        """Let the slots run; fills ``demand[1:]``, returns fresh pages, faults and progress."""
        c = self.columns
        active = self.on * self._running
        wanted = self.wanted[1:]
        anon, file = wanted[:, ANON], wanted[:, FILE]
        share = anon / np.maximum(anon + file, 1.0)
        stream = c.stream_per_s / np.maximum(c.touch_per_s, 1.0)
        unread = np.clip(1.0 - self.resident[1:, COLD] / np.maximum(c.stream_span, 1.0), 0.0, 1.0)
        reading = stream * unread * (1.0 - c.dirty_share) / c.parameter("read_pages_per_s")
        stall = share * miss[:, ANON] * anon_s + (1.0 - share) * miss[:, FILE] * file_s + reading
        written, open_share = stalls.writeback(
            self.dirty, self._dirty_pages[1], self._dirty_pages[0],
            c.parameter("write_pages_per_s") * _STEP_S,
        )  # fmt: skip
        self.dirty -= written
        self._written = written.sum(axis=0)
        kernel = (
            share * miss[:, ANON] * self._page_cpu_s[0]
            + (1.0 - share) * miss[:, FILE] * self._page_cpu_s[1]
        )
        raw = stalls.speed(c.touch_per_s, stall + kernel, np.clip(c.slot_cores, 0.0, 1.0))
        run = active * raw * self._cpu * np.where(c.dirty_share > 0, open_share, 1.0)
        self._slot_stall = np.minimum(active * raw * c.touch_per_s * stall, 1.0)
        fresh, faults = self._working_sets(active, run, share, miss, demand)
        demand[1:, COLD] = c.stream_per_s * unread * run * _STEP_S
        return fresh, faults, run

    def _working_sets(
        self, active: Array, run: Array, share: Array, miss: Array, demand: Array
    ) -> tuple[Array, Array]:
        """Touch, grow and shrink the slots' sets; returns fresh pages and faults."""
        c = self.columns
        wanted = self.wanted[1:]
        owned = wanted[:, :COLD].sum(axis=1)
        touched = c.touch_per_s * run * _STEP_S
        faults = demand[1:, :COLD]
        faults[:, ANON] = touched * share * miss[:, ANON]
        faults[:, FILE] = touched * (1.0 - share) * miss[:, FILE]
        np.minimum(faults, wanted[:, :COLD] - self.resident[1:, :COLD], out=faults)
        np.maximum(faults, 0.0, out=faults)
        growth = 0.5 * c.touch_per_s * active * _STEP_S
        target = np.where(active > 0.0, self._target, wanted[:, :COLD].swapaxes(0, 1))
        self.resident[1:, ANON], wanted[:, ANON], fresh = pages.resize(
            self.resident[1:, ANON], wanted[:, ANON], target[0], growth
        )
        wanted[:, FILE] = target[1]
        np.minimum(self.resident[1:, FILE], wanted[:, FILE], out=self.resident[1:, FILE])
        warm = c.touch_per_s * run / np.maximum(owned, 1.0)
        lag = _STEP_S / _WARMTH_S
        self._touches_per_s[1:, :COLD] += lag * (warm[:, None] - self._touches_per_s[1:, :COLD])
        result = faults.copy()
        np.minimum(faults[:, FILE], wanted[:, FILE] - self.resident[1:, FILE], out=faults[:, FILE])
        np.maximum(faults, 0.0, out=faults)
        demand[1:, ANON] = faults[:, ANON] + fresh
        return fresh, result

    def _make_room(self, demand: Array) -> Array:
        """Reclaim for ``demand`` ``(GROUPS, POOLS, B)``; returns what of it fits."""
        c = self.columns
        weight = self.resident * pages.coldness(
            self._touches_per_s,
            c.parameter("coldness_tau_s"),
            c.parameter("coldness_exponent"),
        )
        weight[:, ANON] *= self._swap_weight
        weight[:, FILE:] *= self._file_weight
        swapped = (self.wanted[:, ANON] - self.resident[:, ANON]).sum(axis=0)
        room = make_room(
            self.resident,
            demand,
            weight,
            self.dirty,
            Bounds(
                zone=c.zone_pages,
                limits=self._limit_pages,
                squeeze=c.parameter("squeeze_pages_per_s") * _STEP_S,
                swap_free=np.maximum(c.swap_pages - swapped, 0.0),
            ),
        )
        self.resident[:] = room.resident
        self._swapped_out = room.swapped_out
        return room.got

    def _account(self, served: Served, faults: Array, run: Array) -> None:
        """Charge the device and count what happened; ``run`` is the slots' speed."""
        c = self.columns
        protected = served.pages
        anon_in = protected[ANON] + faults[:, ANON].sum(axis=0)
        file_in = protected[FILE] + protected[COLD] + faults[:, FILE].sum(axis=0)
        streamed = c.stream_per_s * run * _STEP_S
        self.dirty[1:] = np.minimum(
            self.dirty[1:] + streamed * c.dirty_share, self.resident[1:, COLD]
        )
        read = anon_in + file_in + (streamed * (1.0 - c.dirty_share)).sum(axis=0)
        write = self._swapped_out * c.parameter("swap_write_share") + self._written
        work = read / c.parameter("read_pages_per_s") + write / c.parameter("write_pages_per_s")
        self._backlog_s = stalls.drain(self._backlog_s, work * self._noise, _STEP_S)
        waited = np.empty((GROUPS, self.batch))
        waited[0] = served.stall_s / _STEP_S
        waited[1:] = self._slot_stall
        on_io = np.clip(waited * c.parameter("psi_io_scale"), 0.0, 1.0)
        waited[0] = served.refault_stall_s / _STEP_S
        stalled = np.clip(waited * c.parameter("psi_scale"), 0.0, 1.0)
        productive = np.empty_like(stalled)
        productive[0] = np.clip(served.work_s / _STEP_S, 0.0, 1.0)
        productive[1:] = run * np.clip(c.slot_cores, 0.0, 1.0)
        productive = np.minimum(productive, 1.0 - stalled)
        some, full = stalls.some_full(stalled, productive)
        part = 1.0 / SUBSTEPS
        self.stalled += part * stalled
        self.some += part * some
        self.full += part * full
        self._io_share[:GROUPS] += part * on_io
        self._io_share[GROUPS] += part * (1.0 - np.prod(1.0 - on_io, axis=0))
        self._kernel_s += (
            faults[:, ANON] * self._page_cpu_s[0] + faults[:, FILE] * self._page_cpu_s[1]
        )
        self.progress += part * run
        refaults = np.empty((GROUPS, self.batch))
        refaults[0] = served.refaults
        refaults[1:] = faults.sum(axis=1)
        self.counters.refault_pages += refaults
        self.counters.major_faults[0] += protected[ANON] / c.parameter("swap_readahead_pages")
        self.counters.major_faults[0] += (protected[FILE] + protected[COLD]) / c.parameter(
            "file_readahead_pages"
        )
        self.counters.swap_in_pages += anon_in
        self.counters.swap_out_pages += self._swapped_out
        self.counters.cpu_us[0] += 1e6 * served.work_s
