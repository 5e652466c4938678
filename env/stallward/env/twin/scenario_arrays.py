"""Scenarios as arrays, from which the state of nodes is filled at a reset."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.actuator.guard.slot_tracker import NEVER_PAUSED_S
from stallward.agent.desired import NORMAL_CPU_WEIGHT, SLOTS
from stallward.env.twin.inputs.exogenous import (
    PAGE_BYTES,
    Exogenous,
    ProtectedProgram,
    SlotProgram,
)
from stallward.env.twin.inputs.parameters import PARAMETER_INDEX
from stallward.env.twin.physics.others import MOST_OTHERS
from stallward.env.twin.physics.pages import COLD
from stallward.env.twin.physics.state import NODE
from stallward.env.twin.simd.layout import Columns

Array = NDArray[np.float64]

_WARM_SHARE: Final = 0.98
"""The application is loaded at the start, as far as it fits into this share of the zone."""
_REQUEST_TOUCH_SCALES: Final = [
    PARAMETER_INDEX[name] for name in ("touch_scale", "touch_scale", "cold_touch_scale")
]
"""The parameter that scales the touches of each pool: anonymous, hot files, cold files."""
_SLOT_TOUCH_SCALES: Final = [PARAMETER_INDEX[f"slot{i}_touch_scale"] for i in range(SLOTS)]


class ScenarioArrays:
    """``K`` scenarios as arrays, whose first axis is the scenario.

    Each further application of a scenario is an entry of its own, behind the scenarios, that has
    no slots; so is the application that is missing where another scenario has more.

    Attributes:
        scenarios: The scenarios and these entries.
        entries: The entry of each application of each scenario, ``(scenarios, applications)``.
        programs: The working set of each program in each second of its own time, in pages
            (anonymous, file), ``(K, SLOTS, 2, T)``.
        running: 1 for each second in which a program runs, else 0, ``(K, SLOTS, R)``.
        rates: The factor on the request rate in each second, ``(K, S)``.
        max_bytes: The largest working set of each program, ``(K, SLOTS)``.
    """

    def __init__(self, scenarios: Sequence[Exogenous]) -> None:
        self.scenarios, self.entries = _entries(tuple(scenarios))
        count = len(self.scenarios)
        length = max((len(s.anon_pages) for x in self.scenarios for s in x.slots), default=1)
        self.programs = np.zeros((count, SLOTS, 2, length))
        length = max((len(s.running) for x in self.scenarios for s in x.slots), default=1)
        self.running = np.zeros((count, SLOTS, length))
        length = max((len(x.protected.rate_factors) for x in self.scenarios), default=1)
        self.rates = np.ones((count, length))
        self._fresh = Columns(NODE, np.zeros((count, NODE.rows)))
        for k, scenario in enumerate(self.scenarios):
            self._describe(k, scenario)
            factors = scenario.protected.rate_factors
            self.rates[k, : len(factors)] = factors
            for i, slot in enumerate(scenario.slots):
                self.running[k, i, : len(slot.running)] = slot.running
                self.programs[k, i, 0, : len(slot.anon_pages)] = slot.anon_pages
                self.programs[k, i, 1, : len(slot.file_pages)] = slot.file_pages
        self.max_bytes = PAGE_BYTES * self.programs.sum(axis=2).max(axis=2)

    def _describe(self, k: int, scenario: Exogenous) -> None:
        """Set the state in which nodes of a scenario begin."""
        fresh, protected = self._fresh, scenario.protected
        fresh["scenario"][k] = k
        for name, value in _node_values(scenario).items():
            fresh[name][k] = value
        for i, slot in enumerate(scenario.slots):
            for name, value in _slot_values(slot).items():
                fresh[name][k, i] = value
        pools = (protected.anon_pages, protected.file_pages, protected.cold_pages)
        fresh["wanted"][k, 0] = pools
        fresh["request_touches"][k] = (
            protected.touch_anon_pages, protected.touch_file_pages, protected.touch_cold_pages,
        )  # fmt: skip
        fresh["reported"][k] = (0.0, np.nan, np.nan, np.nan, np.nan)
        fresh["unpaused"][k] = fresh["keeps_anon"][k] = 1.0
        fresh["cpu_weight"][k] = NORMAL_CPU_WEIGHT
        fresh["limit_pages"][k] = np.inf
        fresh["want_limit_pages"][k] = np.inf
        fresh["cpu_max_cores"][k] = np.inf
        fresh["limit_bytes"][k] = np.nan
        fresh["since_thaw_s"][k] = NEVER_PAUSED_S

    def fresh(self, scenario: NDArray[np.int64], parameters: Array) -> Columns:
        """Return the state of new nodes, without the position of their programs.

        Args:
            scenario: The index of each node's scenario, ``(n,)``.
            parameters: The parameters of the nodes, ``(len(PARAMETER_NAMES), n)``.
        """
        nodes = Columns(NODE, self._fresh.matrix[scenario])
        nodes["request_touches"] *= parameters[_REQUEST_TOUCH_SCALES].T
        nodes["touch_per_s"] *= parameters[_SLOT_TOUCH_SCALES].T
        nodes["service_s"] *= parameters[PARAMETER_INDEX["service_scale"]]
        return nodes

    def load(self, applications: Sequence[Columns]) -> None:
        """Load the applications into memory, and start the programs that run now."""
        nodes = applications[0]
        hot = [each["wanted"][:, 0, :COLD] for each in applications]
        together = np.sum([pages.sum(axis=1) for pages in hot], axis=0)
        fits = nodes["zone_pages"] / np.maximum(together, 1.0)
        for each, pages in zip(applications, hot, strict=True):
            each["resident"][:, 0, :COLD] = pages * np.minimum(_WARM_SHARE * fits, 1.0)[:, None]
        second = (nodes["phase_s"][:, None] % np.maximum(nodes["cycle_s"], 1.0)).astype(np.int64)
        which = nodes["scenario"].astype(np.int64)[:, None]
        nodes["on"] = nodes["has_program"] * self.running[which, np.arange(SLOTS), second]


def _entries(
    scenarios: tuple[Exogenous, ...],
) -> tuple[tuple[Exogenous, ...], NDArray[np.int64]]:
    """The entries of scenarios, and those of each application of each."""
    indices = np.arange(len(scenarios))[:, None]
    if not any(scenario.others for scenario in scenarios):
        return scenarios, indices
    entries = list(scenarios)
    further = np.empty((len(scenarios), MOST_OTHERS), dtype=np.int64)
    for k, scenario in enumerate(scenarios):
        for a in range(MOST_OTHERS):
            there = a < len(scenario.others)
            further[k, a] = len(entries)
            entries.append(alone_of(scenario, a) if there else _without_application(scenario))
    return tuple(entries), np.concatenate([indices, further], axis=1)


def alone_of(scenario: Exogenous, number: int) -> Exogenous:
    """One further application of a scenario, alone on its node."""
    other = scenario.others[number]
    return replace(scenario, slo_ms=other.slo_ms, protected=other.protected, slots=(), others=())


def _without_application(scenario: Exogenous) -> Exogenous:
    nothing = ProtectedProgram(request_rate_per_s=0.0, service_s=scenario.protected.service_s)
    return replace(scenario, protected=nothing, slots=(), others=())


def _node_values(scenario: Exogenous) -> dict[str, float]:
    own = scenario.protected
    size = own.request_rate_per_s + own.anon_pages + own.file_pages + own.cold_pages
    return {
        "has_application": float(size > 0.0),
        "zone_pages": scenario.zone_bytes / PAGE_BYTES,
        "swap_pages": scenario.swap_bytes / PAGE_BYTES,
        "slo_ms": scenario.slo_ms,
        "cores": scenario.cores,
        "rate_per_s": scenario.protected.request_rate_per_s,
        "rate_cycle_s": float(len(scenario.protected.rate_factors)),
        "service_s": scenario.protected.service_s,
        "workers": scenario.protected.workers,
        "poisson": float(scenario.protected.poisson),
        "idle_loss_per_s": scenario.protected.idle_loss_pages_per_s,
        "working_set_pages": math.nan,
    }


def _slot_values(slot: SlotProgram) -> dict[str, float]:
    return {
        "has_group": 1.0,
        "has_program": 1.0,
        "units_per_s": slot.units_per_s,
        "touch_per_s": slot.touch_pages_per_s,
        "fill_per_s": slot.fill_pages_per_s,
        "stream_per_s": slot.stream_pages_per_s,
        "dirty_share": slot.dirty_share,
        "burst_per_s": slot.burst_pages / slot.burst_s if slot.burst_pages > 0.0 else 0.0,
        "burst_s": slot.burst_s,
        "burst_every_s": slot.burst_every_s,
        "slot_cores": slot.cores,
        "floor_bytes": float(slot.floor_bytes),
        "stream_span": slot.stream_span_pages,
        "length_s": float(len(slot.anon_pages)),
        "loop_from_s": slot.loop_from_s,
        "cycle_s": float(len(slot.running)),
    }
