"""Sets twins to the state of a node at one sample, from which predictions begin.

Measured values are taken as they are: resident and swapped pages of each group, dirty pages and
levers. The fitted twin fills in the rest. Of the application's file pages, the hot ones are
assumed to be resident first; how often pages are touched is taken from full speed. A controller
does not know the future of the background, so each group keeps its present demand, and schedules
of programs are left out. Waiting requests count as additional arrivals (see ``Planner``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.actuator.guard.budgets import Budgets
from stallward.agent.desired import SLOTS
from stallward.agent.sample import GroupSample, Sample
from stallward.env.simulation.nuisance import NO_NUISANCE
from stallward.env.simulation.simulation import Simulation, SimulationSettings
from stallward.env.twin.inputs.exogenous import PAGE_BYTES, Exogenous, SlotProgram
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.env.twin.inputs.parameters import TwinParameters, to_array
from stallward.env.twin.physics.pages import ANON, COLD, FILE

Array = NDArray[np.float64]

NOMINAL: Final = SimulationSettings(episode_s=1e6, nuisance=NO_NUISANCE)


def _pages(size_bytes: int | None) -> float:
    return 0.0 if size_bytes is None else size_bytes / PAGE_BYTES


def _anon(group: GroupSample) -> float:
    """Anonymous pages in memory; if the kernel does not report them, all but the file pages."""
    if group.anon_bytes is not None:
        return _pages(group.anon_bytes)
    return max(_pages(group.memory_usage_bytes) - _pages(group.file_bytes), 0.0)


def world_now(scenario: Exogenous, sample: Sample, rate_per_s: float | None) -> Exogenous:
    """The scenario with the present demand of all groups, kept for ever.

    Args:
        scenario: The scenario of the fitted twin.
        sample: A sample of a node that runs the scenario.
        rate_per_s: The request rate; ``None`` takes the scenario's.
    """
    slots = []
    for program, group, state in zip(
        scenario.slots, sample.slots, sample.slot_states, strict=False
    ):
        anon = _anon(group) + _pages(group.swap_bytes)
        files = max(_pages(state.reference_bytes) - anon, _pages(group.file_bytes))
        hot = max(program.file_pages, default=0.0)
        slots.append(
            replace(
                program,
                anon_pages=(anon,),
                file_pages=(min(files, hot),),
                loop_from_s=0.0,
                running=(float(state.reference_bytes is not None),),
            )
        )
    protected = replace(scenario.protected, rate_factors=(1.0,))
    if rate_per_s is not None:
        protected = replace(protected, request_rate_per_s=rate_per_s)
    return replace(
        scenario,
        zone_bytes=sample.zone.memory_limit_bytes or scenario.zone_bytes,
        protected=protected,
        slots=tuple(slots),
    )


def open_simulation(
    twin: FittedTwin,
    world: Exogenous,
    sample: Sample,
    parameters: list[TwinParameters],
    *,
    budgets: Budgets,
    seed: int,
) -> Simulation:
    """Open a simulation of nodes in the state of ``sample``, one for each of ``parameters``."""
    batch = len(parameters)
    present = FittedTwin(scenario=world, draws=twin.draws, weights=twin.weights)
    simulation = Simulation([present], batch, replace(NOMINAL, budgets=budgets), seed=seed)
    all_nodes, scenario = np.ones(batch, dtype=bool), np.zeros(batch, dtype=np.int64)
    simulation.reset(all_nodes)
    simulation.twin.reset(all_nodes, scenario, to_array(parameters))
    _fill_memory(simulation, world.slots, sample)
    _fill_levers(simulation, sample)
    return simulation


def _fill_memory(
    simulation: Simulation, programs: tuple[SlotProgram, ...], sample: Sample
) -> None:
    nodes, groups = simulation.twin.nodes, (sample.protected, *sample.slots[: len(programs)])
    resident, wanted = np.zeros(nodes.resident.shape), np.array(nodes.wanted)
    for number, group in enumerate(groups):
        files = _pages(group.file_bytes)
        hot = programs[number - 1].file_pages[0] if number else float(wanted[0, FILE, 0])
        resident[number, ANON] = _anon(group)
        resident[number, FILE] = min(files, hot)
        resident[number, COLD] = max(files - hot, 0.0)
    resident[0] = np.minimum(resident[0], wanted[0])
    wanted[1:, ANON] = resident[1:, ANON]
    wanted[1:, COLD] = resident[1:, COLD]
    for number, group in enumerate(groups[1:], start=1):
        wanted[number, ANON] += _pages(group.swap_bytes)
    writers = nodes.dirty_share * (nodes.stream_per_s > 0.0)
    share = writers / np.maximum(writers.sum(axis=0), 1e-9)
    dirty, touches = np.array(nodes.dirty), np.array(nodes.touches_per_s)
    dirty[1:] = np.minimum(_pages(sample.zone.dirty_bytes) * share, resident[1:, COLD])
    owned = np.maximum(wanted[1:].sum(axis=1), 1.0)
    touches[1:, :COLD] = (nodes.touch_per_s / owned)[:, None]
    touches[0] = nodes.rate_per_s * nodes.request_touches / np.maximum(wanted[0], 1.0)
    nodes.resident, nodes.wanted, nodes.dirty, nodes.touches_per_s = (
        resident, wanted, dirty, touches,
    )  # fmt: skip


def _fill_levers(simulation: Simulation, sample: Sample) -> None:
    rows = {name: np.zeros((SLOTS, 1)) for name in ("reference", "paused", "for_s", "since_s")}
    limit = np.full((SLOTS, 1), np.nan)
    for i, state in enumerate(sample.slot_states[:SLOTS]):
        rows["reference"][i] = float(state.reference_bytes or 0)
        rows["paused"][i] = float(state.paused)
        rows["for_s"][i] = state.paused_for_s
        rows["since_s"][i] = state.since_thaw_s
        limit[i] = np.nan if state.limit_bytes is None else state.limit_bytes
    nodes = simulation.twin.nodes
    nodes.kept_bytes, nodes.seen = rows["reference"], 1.0
    nodes.paused = nodes.want_paused = rows["paused"]
    nodes.limit_bytes = limit
    nodes.want_limit_pages = np.where(np.isnan(limit), np.inf, limit / PAGE_BYTES)
    nodes.paused_for_s, nodes.since_thaw_s = rows["for_s"], rows["since_s"]
