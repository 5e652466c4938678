"""Scenarios and parameters as arrays, one column a node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.desired import SLOTS
from stallward.env.twin.pages import ANON, COLD, FILE, POOLS
from stallward.env.twin.parameters import PARAMETER_INDEX, PARAMETER_NAMES
from stallward.env.twin.scenario import PAGE_BYTES, SlotProgram, TwinScenario

Array = NDArray[np.float64]


class ScenarioTable:
    """``K`` scenarios as arrays with the scenario last.

    Attributes:
        scenarios: As given.
        programs: Working sets, ``(K, SLOTS, 2, T)`` pages (anonymous, file).
        running: When the programs run, ``(K, SLOTS, R)``.
    """

    def __init__(self, scenarios: Sequence[TwinScenario]) -> None:
        self.scenarios = tuple(scenarios)
        count = len(self.scenarios)
        length = max((len(s.anon_pages) for x in self.scenarios for s in x.slots), default=1)
        self.programs = np.zeros((count, SLOTS, 2, length))
        length = max((len(s.running) for x in self.scenarios for s in x.slots), default=1)
        self.running = np.zeros((count, SLOTS, length))
        self.node = np.array(
            [
                [
                    x.zone_bytes / PAGE_BYTES,
                    x.swap_bytes / PAGE_BYTES,
                    x.slo_ms,
                    x.cores,
                    x.protected.request_rate_per_s,
                    x.protected.service_s,
                    x.protected.workers,
                    float(x.protected.poisson),
                ]
                for x in self.scenarios
            ]
        ).T
        self.wanted = np.zeros((POOLS, count))
        self.touches = np.zeros((POOLS, count))
        self.slots = np.zeros((_SLOT_ROWS, SLOTS, count))
        for k, scenario in enumerate(self.scenarios):
            protected = scenario.protected
            self.wanted[ANON, k] = protected.anon_pages
            self.wanted[FILE, k] = protected.file_pages
            self.wanted[COLD, k] = protected.cold_pages
            self.touches[ANON, k] = protected.touch_anon_pages
            self.touches[FILE, k] = protected.touch_file_pages
            self.touches[COLD, k] = protected.touch_cold_pages
            for i, slot in enumerate(scenario.slots):
                self.slots[:, i, k] = _slot_row(slot)
                self.running[k, i, : len(slot.running)] = slot.running
                self.programs[k, i, 0, : len(slot.anon_pages)] = slot.anon_pages
                self.programs[k, i, 1, : len(slot.file_pages)] = slot.file_pages


def _slot_row(slot: SlotProgram) -> list[float]:
    return [
        1.0,
        slot.units_per_s,
        slot.touch_pages_per_s,
        slot.stream_pages_per_s,
        slot.dirty_share,
        slot.cores,
        float(slot.floor_bytes),
        slot.stream_span_pages,
        float(len(slot.anon_pages)),
        slot.loop_from_s,
        float(len(slot.running)),
    ]


_SLOT_ROWS: Final = len(_slot_row(SlotProgram(name="", units_per_s=0.0)))


class NodeColumns:
    """The exogenous description and parameters of ``B`` nodes, filled row by row at resets.

    Attributes:
        scenario: Index into the table, ``(B,)``.
        zone_pages, swap_pages, slo_ms, cores, rate_per_s, service_s, workers, poisson: ``(B,)``.
        wanted, touches: The protected application's pools, ``(POOLS, B)``.
        present, units_per_s, touch_per_s, stream_per_s, dirty_share, slot_cores, floor_bytes,
            stream_span, length_s, loop_from_s, cycle_s: ``(SLOTS, B)``; ``present``: the slot has
            a program.
        there: Whether the slot has a group at all, ``(SLOTS, B)``; a program may have ended.
        parameters: ``(len(PARAMETER_NAMES), B)``.
    """

    def __init__(self, table: ScenarioTable, batch: int) -> None:
        self.table = table
        self.scenario = np.zeros(batch, dtype=np.int64)
        self.parameters = np.zeros((len(PARAMETER_NAMES), batch))
        self._node = np.ones((len(table.node), batch))
        self.wanted = np.zeros((POOLS, batch))
        self.touches = np.zeros((POOLS, batch))
        self._slots = np.zeros((len(table.slots), SLOTS, batch))
        (
            self.zone_pages,
            self.swap_pages,
            self.slo_ms,
            self.cores,
            self.rate_per_s,
            self.service_s,
            self.workers,
            self.poisson,
        ) = self._node
        (
            self.present,
            self.units_per_s,
            self.touch_per_s,
            self.stream_per_s,
            self.dirty_share,
            self.slot_cores,
            self.floor_bytes,
            self.stream_span,
            self.length_s,
            self.loop_from_s,
            self.cycle_s,
        ) = self._slots

        self.there = np.zeros((SLOTS, batch))

    def fill(
        self, rows: NDArray[np.int64], scenario: NDArray[np.int64], parameters: Array
    ) -> None:
        """Describe the nodes ``rows`` ``(n,)`` anew, ``parameters`` of shape ``(names, n)``."""
        table = self.table
        self.scenario[rows] = scenario
        self.parameters[:, rows] = parameters
        self._node[:, rows] = table.node[:, scenario]
        self.wanted[:, rows] = table.wanted[:, scenario]
        scale = parameters[PARAMETER_INDEX["touch_scale"]]
        self.touches[:, rows] = table.touches[:, scenario] * scale
        self._slots[:, :, rows] = table.slots[:, :, scenario]
        self.there[:, rows] = self.present[:, rows]
        self.touch_per_s[:, rows] *= self.slot_parameter("touch_scale")[:, rows]
        self.service_s[rows] *= parameters[PARAMETER_INDEX["service_scale"]]

    def parameter(self, name: str) -> Array:
        """One parameter of every node, ``(B,)``."""
        return np.asarray(self.parameters[PARAMETER_INDEX[name]])

    def slot_parameter(self, name: str) -> Array:
        """One parameter that every slot has its own of, ``(SLOTS, B)``."""
        rows = [PARAMETER_INDEX[f"slot{i}_{name}"] for i in range(SLOTS)]
        return np.asarray(self.parameters[rows])

    def targets(self, cursor_s: Array) -> Array:
        """Working sets at the programs' own times, ``(2, SLOTS, B)`` pages."""
        slots = np.arange(SLOTS)[:, None]
        past = np.maximum(cursor_s - self.length_s, 0.0)
        looped = self.loop_from_s + past % np.maximum(self.length_s - self.loop_from_s, 1.0)
        index = np.where(cursor_s < self.length_s, cursor_s, looped).astype(np.int64)
        found = self.table.programs[self.scenario[None, :], slots, :, index]
        return np.moveaxis(found, -1, 0)

    def running(self, time_s: Array) -> Array:
        """Whether somebody runs each program at the node's time ``(B,)``: ``(SLOTS, B)``."""
        slots = np.arange(SLOTS)[:, None]
        index = (time_s % np.maximum(self.cycle_s, 1.0)).astype(np.int64)
        return np.asarray(self.present * self.table.running[self.scenario[None, :], slots, index])
