"""The twin itself: the state of ``B`` nodes and what one tick does to it.

Order of a sub-step: what everybody asks for (requests, touches, growth), what that makes them
wait for, which pages reclaim takes to make room, what they get. Nothing recorded is played back
but arrivals and programs of work; see ``application`` for the requests, ``background`` for the
programs, and the pure functions in ``pages``, ``stalls`` and ``latency``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.env.twin import pages, stalls
from stallward.env.twin.application import Application, Served
from stallward.env.twin.background import Background, Strides
from stallward.env.twin.counters import Counters
from stallward.env.twin.memory import Memory, warmed
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


class TwinBatch:
    """``B`` nodes. Arrays have the node last; pages are 4096 bytes, shares are of a tick.

    Attributes:
        columns: The exogenous description and the parameters of every node.
        memory: Who owns and holds which pages.
        application: The requests and their queue.
        background: The programs of the slots.
        counters: What the nodes count.
        time_s: ``(B,)``, since the node's reset.
        stalled: Share of the last tick each group was stalled, ``(GROUPS, B)``.
        some, full: The same of the whole zone, ``(B,)``.
    """

    def __init__(self, scenarios: Sequence[TwinScenario], batch: int, *, seed: int) -> None:
        self.columns = NodeColumns(ScenarioTable(scenarios), batch)
        self.batch = batch
        self.rng = np.random.default_rng(seed)
        self.memory = Memory(batch)
        self.counters = Counters(batch)
        self.application = Application(self.columns, self.rng, SUBSTEPS, _STEP_S)
        self.background = Background(self.columns, self.memory, _STEP_S)
        self.time_s = np.zeros(batch)
        self.stalled = np.zeros((GROUPS, batch))
        self.some = np.zeros(batch)
        self.full = np.zeros(batch)
        self._backlog_s = np.zeros(batch)
        self._io_share = np.zeros((GROUPS + 1, batch))
        self._miss_exponent = np.ones((GROUPS, POOLS, batch))

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
        columns, memory = self.columns, self.memory
        self.counters.reset(rows)
        memory.reset(index)
        for array in (self.time_s, self.stalled, self.some, self.full, self._backlog_s):
            array[..., index] = 0.0
        self.application.reset(rows)
        self.background.reset(index, cursor_s, phase_s)
        exponent = self._miss_exponent
        exponent[0][:COLD, index] = columns.parameter("protected_miss_exponent")[index]
        exponent[1:, :COLD, index] = columns.slot_parameter("miss_exponent")[:, None, index]
        memory.wanted[0][:, index] = columns.wanted[:, index]
        hot = columns.wanted[:COLD, index]
        fits = columns.zone_pages[index] / np.maximum(hot.sum(axis=0), 1.0)
        memory.resident[0][:COLD, index] = hot * np.minimum(0.98 * fits, 1.0)

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
        c, counters = self.columns, self.counters
        noise = c.parameter("device_sigma")
        self._noise = np.exp(noise * self.rng.standard_normal(self.batch) - 0.5 * noise * noise)
        self._swap_weight = c.parameter("anon_weight") * swappiness / 200.0
        self._file_weight = np.broadcast_to(1.0 - np.asarray(swappiness) / 200.0, (self.batch,))
        self._dirty_pages = (c.zone_pages * dirty_ratios[0], c.zone_pages * dirty_ratios[1])
        self._page_cpu_s = (c.parameter("anon_fault_cpu_s"), c.parameter("file_fault_cpu_s"))
        demand_cores = self.background.demand_cores().sum(axis=0)
        own = np.minimum(c.rate_per_s * c.service_s, c.workers)
        crowded = np.clip(demand_cores / c.cores, 0.0, 1.0)
        self._service_s = c.service_s * (1.0 + c.parameter("cpu_slowdown") * crowded)
        counters.cpu_stall_us += 1e6 * TICK_S * np.clip(demand_cores + own - c.cores, 0.0, 1.0)
        self.background.begin_tick(self.time_s, stalls.cpu_share(demand_cores, own, c.cores))
        for share in (self.stalled, self.some, self.full, self._io_share):
            share[:] = 0.0
        for k in range(SUBSTEPS):
            self.background.move_levers(paused, limit_pages)
            self._substep(k)
        self.time_s += TICK_S
        self.application.report(self.time_s)
        counters.psi_some_us[:GROUPS] += 1e6 * TICK_S * self.stalled
        counters.psi_full_us[:GROUPS] += 1e6 * TICK_S * self.stalled
        counters.psi_some_us[GROUPS] += 1e6 * TICK_S * self.some
        counters.psi_full_us[GROUPS] += 1e6 * TICK_S * self.full
        counters.psi_io_us += 1e6 * TICK_S * self._io_share
        counters.units += c.units_per_s * self.background.progress * TICK_S
        counters.cpu_us[1:] += 1e6 * TICK_S * self.background.end_tick(TICK_S)

    def end_slots(self, ended: Mask) -> None:
        """The programs of the slots in ``ended`` ``(SLOTS, B)`` are gone, with their memory."""
        self.columns.present[ended] = 0.0
        self.memory.free(ended)

    def _substep(self, k: int) -> None:
        c, memory = self.columns, self.memory
        zone_free = c.zone_pages - memory.resident.sum(axis=(0, 1))
        tight = np.clip(1.0 - zone_free / (0.02 * c.zone_pages), 0.0, 1.0)
        page_s = self._page_wait_s(tight)
        miss = pages.miss_probability(memory.resident, memory.wanted, self._miss_exponent)
        served = self.application.serve(
            k, miss[0], memory.resident[0], self._service_s, page_s, self._page_cpu_s
        )
        memory.touches_per_s[0] = warmed(memory.touches_per_s[0], served.touches_per_s, _STEP_S)
        written, open_share = stalls.writeback(
            memory.dirty, self._dirty_pages[1], self._dirty_pages[0],
            c.parameter("write_pages_per_s") * _STEP_S,
        )  # fmt: skip
        memory.dirty -= written
        strides = self.background.stride(miss[1:], page_s, self._page_cpu_s, open_share)
        demand = np.concatenate((served.pages[None], strides.demand))
        got, swapped_out = self._make_room(demand)
        asked = demand.sum(axis=1)
        share = np.where(
            asked > pages.EPSILON, got.sum(axis=1) / np.maximum(asked, pages.EPSILON), 1.0
        )
        self._take(got, strides.fresh * share[1:])
        run = strides.run * share[1:]
        self._account(served, strides, run, swapped_out, written.sum(axis=0))

    def _take(self, got: Array, fresh: Array) -> None:
        """Put the pages ``got`` into memory; those of the slots that are ``fresh`` are new."""
        resident, wanted = self.memory.resident, self.memory.wanted
        resident += got
        wanted[1:, ANON] += fresh
        np.minimum(resident[:, :COLD], wanted[:, :COLD], out=resident[:, :COLD])
        np.minimum(resident[0], wanted[0], out=resident[0])
        wanted[1:, COLD] = resident[1:, COLD]

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

    def _make_room(self, demand: Array) -> tuple[Array, Array]:
        """Reclaim for ``demand`` ``(GROUPS, POOLS, B)``.

        Returns:
            What of it fits, and how many anonymous pages were written to swap for it, ``(B,)``.
        """
        c, memory = self.columns, self.memory
        weight = memory.resident * pages.coldness(
            memory.touches_per_s,
            c.parameter("coldness_tau_s"),
            c.parameter("coldness_exponent"),
        )
        weight[:, ANON] *= self._swap_weight
        weight[:, FILE:] *= self._file_weight
        swapped = (memory.wanted[:, ANON] - memory.resident[:, ANON]).sum(axis=0)
        room = make_room(
            memory.resident,
            demand,
            weight,
            memory.dirty,
            Bounds(
                zone=c.zone_pages,
                limits=self.background.limit_pages,
                squeeze=c.parameter("squeeze_pages_per_s") * _STEP_S,
                swap_free=np.maximum(c.swap_pages - swapped, 0.0),
            ),
        )
        memory.resident[:] = room.resident
        return room.got, room.swapped_out

    def _account(
        self, served: Served, strides: Strides, run: Array, swapped_out: Array, written: Array
    ) -> None:
        """Charge the device and count what happened; ``run`` is the slots' speed."""
        c, counters, faults = self.columns, self.counters, strides.faults
        protected = served.pages
        anon_in = protected[ANON] + faults[:, ANON].sum(axis=0)
        file_in = protected[FILE] + protected[COLD] + faults[:, FILE].sum(axis=0)
        streamed = c.stream_per_s * run * _STEP_S
        dirty = self.memory.dirty[1:]
        dirty[:] = np.minimum(dirty + streamed * c.dirty_share, self.memory.resident[1:, COLD])
        read = anon_in + file_in + (streamed * (1.0 - c.dirty_share)).sum(axis=0)
        write = swapped_out * c.parameter("swap_write_share") + written
        work = read / c.parameter("read_pages_per_s") + write / c.parameter("write_pages_per_s")
        self._backlog_s = stalls.drain(self._backlog_s, work * self._noise, _STEP_S)
        self._account_stalls(served, strides.stalled, run)
        self.background.advance(run, faults, self._page_cpu_s, 1.0 / SUBSTEPS)
        counters.refault_pages[0] += served.refaults
        counters.refault_pages[1:] += faults.sum(axis=1)
        counters.major_faults[0] += protected[ANON] / c.parameter("swap_readahead_pages")
        counters.major_faults[0] += (protected[FILE] + protected[COLD]) / c.parameter(
            "file_readahead_pages"
        )
        counters.swap_in_pages += anon_in
        counters.swap_out_pages += swapped_out
        counters.cpu_us[0] += 1e6 * served.work_s

    def _account_stalls(self, served: Served, slots_stalled: Array, run: Array) -> None:
        """Add a sub-step's stall time, of every group and of the zone."""
        c = self.columns
        waited = np.concatenate((served.stall_s[None] / _STEP_S, slots_stalled))
        on_io = np.clip(waited * c.parameter("psi_io_scale"), 0.0, 1.0)
        waited[0] = served.refault_stall_s / _STEP_S
        stalled = np.clip(waited * c.parameter("psi_scale"), 0.0, 1.0)
        productive = np.empty_like(stalled)
        productive[0] = np.clip(served.work_s / _STEP_S, 0.0, 1.0)
        productive[1:] = run * np.clip(c.slot_cores, 0.0, 1.0)
        some, full = stalls.some_full(stalled, np.minimum(productive, 1.0 - stalled))
        part = 1.0 / SUBSTEPS
        self.stalled += part * stalled
        self.some += part * some
        self.full += part * full
        self._io_share[:GROUPS] += part * on_io
        self._io_share[GROUPS] += part * (1.0 - np.prod(1.0 - on_io, axis=0))
