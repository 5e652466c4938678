"""The protected application in the twin: arrivals, their queue, and what requests wait for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stallward.env.twin import latency as queue
from stallward.env.twin.pages import ANON, COLD, EPSILON, FILE
from stallward.env.twin.tables import NodeColumns

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What serving requests for a moment came to, one entry a node."""

    pages: Array
    """Pages the requests fault in, ``(POOLS, B)``."""
    refaults: Array
    """Those of them that had been in memory before, ``(B,)``."""
    touches_per_s: Array
    """Accesses to each page of a pool, ``(POOLS, B)``."""
    stall_s: Array
    """Time spent waiting for pages, ``(B,)``."""
    refault_stall_s: Array
    """The part of it spent on pages that had been in memory before: a stall for memory."""
    work_s: Array
    """Processor time spent, ``(B,)``."""


class Application:
    """The open-loop queue of ``B`` applications.

    Args:
        columns: The description and parameters of the nodes.
        rng: Shared with the twin.
        substeps: Sub-steps of a tick; one request stands for all that arrive in each.
        step_s: Length of a sub-step.

    Attributes:
        probe_ms, probe_weight: The last tick's requests: their latency and how many each
            stands for, ``(substeps, B)``.
        pooled: Histogram of all requests, ``(POOL_BINS, B)``.
        reported: What the latency source says: completed, mean, p95, max, age, ``(5, B)``.
    """

    def __init__(
        self, columns: NodeColumns, rng: np.random.Generator, substeps: int, step_s: float
    ) -> None:
        batch = len(columns.rate_per_s)
        self.rng = rng
        self._columns = columns
        self._step_s = step_s
        self._at = np.arange(batch)
        self._window = queue.LatencyWindow(batch)
        self._queued = np.zeros(batch)
        self._due = np.zeros(batch)
        self._cold_seen = np.zeros(batch)
        """Pages of the cold pool that were read at least once."""
        self.probe_ms = np.zeros((substeps, batch))
        self.probe_weight = np.zeros((substeps, batch))
        self.pooled = np.zeros((queue.POOL_BINS, batch))
        self.reported = np.full((5, batch), np.nan)
        self.reported[0] = 0.0

    def reset(self, rows: Mask) -> None:
        """Forget the requests of the nodes in ``rows``."""
        for array in (
            self._queued, self._due, self._cold_seen, self.probe_ms, self.probe_weight,
            self.pooled,
        ):  # fmt: skip
            array[..., rows] = 0.0
        self._window.reset(rows)
        self.reported[0, rows] = 0.0
        self.reported[1:, rows] = np.nan

    def serve(
        self,
        k: int,
        miss: Array,
        resident: Array,
        service_s: Array,
        page_s: tuple[Array, Array],
        page_cpu_s: tuple[Array, Array],
    ) -> Served:
        """Serve the requests of sub-step ``k``.

        Args:
            k: Which sub-step of the tick.
            miss: Chance that a touched page is missing, ``(POOLS, B)``.
            resident: Pages in memory, ``(POOLS, B)``.
            service_s: Mean service time without waits for pages, ``(B,)``.
            page_s: Wait for one missing page (anonymous, file), ``(B,)`` each.
            page_cpu_s: Processor time that it costs, likewise.
        """
        c = self._columns
        expected = c.rate_per_s * self._step_s
        self._due += expected
        arrived = np.where(c.poisson > 0, self.rng.poisson(expected), np.floor(self._due + 1e-9))
        self._due -= np.where(c.poisson > 0, expected, arrived)
        missed = c.touches * miss
        anon, file = missed[ANON], missed[FILE] + missed[COLD]
        stall_s = anon * page_s[0] + file * page_s[1]
        work_s = service_s + anon * page_cpu_s[0] + file * page_cpu_s[1]
        request_s = work_s + stall_s
        load = np.minimum(c.rate_per_s * request_s / c.workers, 1.0)
        luck = self.rng.random((3, len(arrived)), dtype=np.float64)
        wait_s = queue.wait_s(self._queued, request_s, c.workers, luck[0], load)
        ms = 1e3 * (wait_s + self._own_s(work_s, anon + file, stall_s, luck))
        self.probe_ms[k], self.probe_weight[k] = ms, arrived
        self.pooled[queue.pool_bin(ms), self._at] += arrived
        self._window.add(ms, arrived, c.slo_ms, k * self._step_s)
        served = queue.serve(self._queued, arrived, request_s, c.workers * self._step_s)
        self._queued += arrived - served
        pages = np.minimum(served * missed, np.maximum(c.wanted - resident, 0.0))
        fresh = self._first_reads(pages[COLD], resident[COLD])
        first_s = missed[COLD] * page_s[1] * fresh / np.maximum(pages[COLD], EPSILON)
        return Served(
            pages=pages,
            refaults=pages.sum(axis=0) - fresh,
            touches_per_s=served / self._step_s * c.touches / np.maximum(c.wanted, 1.0),
            stall_s=served * stall_s,
            refault_stall_s=served * (stall_s - first_s),
            work_s=served * work_s,
        )

    def report(self, time_s: Array) -> None:
        """Close the tick: ``reported`` becomes what the latency source says now."""
        self.reported[:] = self._window.report(time_s, self._columns.slo_ms)

    def _own_s(self, work_s: Array, missed: Array, stall_s: Array, luck: Array) -> Array:
        """Work and fault wait of one request of its own."""
        c = self._columns
        sigma, spread = c.parameter("service_sigma"), c.parameter("fault_sigma")
        normal = self.rng.standard_normal((2, len(missed)))
        base = work_s * np.exp(sigma * normal[0] - 0.5 * sigma * sigma)
        # Below one expected miss, few requests wait, and those for a whole page.
        hit = luck[1] < missed
        each = np.where(missed < 1.0, hit * stall_s / np.maximum(missed, 1e-9), stall_s)
        wait = each * np.exp(spread * normal[1] - 0.5 * spread * spread)
        hiccup = luck[2] < c.parameter("hiccup_share")
        factor = np.where(hiccup, c.parameter("hiccup_factor"), 1.0)
        return np.asarray(base * factor + wait)

    def _first_reads(self, read: Array, resident: Array) -> Array:
        """How many of the cold pages ``read`` had never been in memory."""
        missing = self._columns.wanted[COLD] - resident
        unseen = np.maximum(self._columns.wanted[COLD] - self._cold_seen, 0.0)
        fresh = read * np.minimum(unseen / np.maximum(missing, EPSILON), 1.0)
        self._cold_seen += fresh
        return np.asarray(fresh)
