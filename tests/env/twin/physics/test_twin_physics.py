"""Laws that the twin obeys with all parameters, programs and settings of levers.

Pages are conserved at every tick, and effects are monotone where physics demands it. Scenarios and
parameters are random, for a few hundred nodes at a time. Every comparison is between nodes with
the same seed, so that both have the same arrivals and the same noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from stallward.agent.desired import ACTION_SIZES, SLOTS
from stallward.env.simulation.simulation import Simulation, SimulationSettings
from stallward.env.twin.batch import TwinBatch
from stallward.env.twin.inputs.exogenous import Exogenous, ProtectedProgram, SlotProgram
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.env.twin.inputs.parameters import (
    LATER_PARAMETERS,
    PARAMETER_NAMES,
    from_column,
    from_unit,
)
from stallward.env.twin.physics.pages import ANON, COLD
from stallward.env.twin.simd.layout import Arrays

Array = NDArray[np.float64]

SEEDS = (1, 2, 3)
SCENARIOS, NODES = 32, 256
MIB = 1 << 20
PAGES_PER_MIB = 256.0
ROUNDING_PAGES = 1e-6
SETTLED_TICKS = 4
"""After so many ticks all levers have taken effect: no delay that a fit allows is longer."""


def random_program(rng: np.random.Generator, name: str) -> SlotProgram:
    """A program that grows and shrinks, starts and stops, touches, fills and streams."""
    seconds = int(rng.integers(1, 6))
    running = (1.0, *(rng.random(int(rng.integers(0, 5))) < 0.7).astype(float))
    return SlotProgram(
        name=name,
        units_per_s=rng.uniform(1.0, 300.0),
        anon_pages=tuple(rng.uniform(0.0, 6e4, seconds)),
        file_pages=tuple(rng.uniform(0.0, 6e4, seconds)) if rng.random() < 0.6 else (),
        running=running if rng.random() < 0.5 else (1.0,),
        touch_pages_per_s=10.0 ** rng.uniform(3.5, 5.7),
        fill_pages_per_s=10.0 ** rng.uniform(3.5, 5.5),
        stream_pages_per_s=10.0 ** rng.uniform(2.0, 4.5) if rng.random() < 0.5 else 0.0,
        stream_span_pages=rng.uniform(1e3, 5e4) if rng.random() < 0.5 else float("inf"),
        dirty_share=float(rng.choice([0.0, 0.3, 1.0])),
        cores=rng.uniform(0.1, 2.0),
    )


def random_scenario(rng: np.random.Generator, name: str) -> Exogenous:
    """A node, with or without swap, on which the application fits and hardly anything else."""
    anon, file, cold = rng.uniform(0.0, 3e4, 3)
    zone_mib = max(rng.uniform(100.0, 700.0), 1.5 * (anon + file) / PAGES_PER_MIB)
    return Exogenous(
        name=name,
        zone_bytes=int(zone_mib) * MIB,
        swap_bytes=int(rng.choice([0, 64, 512, 2048])) * MIB,
        slo_ms=20.0,
        cores=float(rng.integers(1, 9)),
        protected=ProtectedProgram(
            request_rate_per_s=rng.uniform(1.0, 100.0),
            service_s=10.0 ** rng.uniform(-3.5, -2.0),
            workers=float(rng.integers(1, 4)),
            poisson=bool(rng.random() < 0.5),
            anon_pages=anon,
            file_pages=file,
            cold_pages=cold,
            touch_anon_pages=anon * rng.random(),
            touch_file_pages=file * rng.random(),
            touch_cold_pages=min(cold, 50.0) * rng.random(),
            idle_loss_pages_per_s=float(rng.choice([0.0, 0.0, 30.0])),
        ),
        slots=tuple(random_program(rng, f"program {k}") for k in range(rng.integers(1, 5))),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """Scenarios, and the parameters of nodes that are assigned to them in turn."""

    scenarios: tuple[Exogenous, ...]
    parameters: Array

    def nodes(self, scenarios: tuple[Exogenous, ...] | None = None) -> TwinBatch:
        """Make nodes of these scenarios or, with the same noise, of other ones."""
        scenarios = scenarios or self.scenarios
        twin = TwinBatch(scenarios, NODES, seed=7)
        which = np.arange(NODES) % len(scenarios)
        twin.reset(np.ones(NODES, dtype=bool), which, self.parameters)
        return twin


def draw(rng: np.random.Generator) -> Draw:
    return Draw(
        scenarios=tuple(random_scenario(rng, f"random {k}") for k in range(SCENARIOS)),
        parameters=random_parameters(rng),
    )


def random_parameters(rng: np.random.Generator) -> Array:
    """Draw parameters; those that are added to the twin do not change the draws of the others."""
    later = np.array([name in LATER_PARAMETERS for name in PARAMETER_NAMES])
    unit = np.empty((len(PARAMETER_NAMES), NODES))
    unit[later] = rng.spawn(1)[0].random((int(later.sum()), NODES))
    unit[~later] = rng.random((int((~later).sum()), NODES))
    return from_unit(unit)


def run(
    twin: TwinBatch, ticks: int, *, paused: bool = False, limit: Array | float = np.inf
) -> None:
    """Let some ticks pass with the same levers for all slots."""
    shape = (SLOTS, twin.batch)
    for _ in range(ticks):
        twin.set_levers(np.full(shape, paused), np.broadcast_to(limit, shape).astype(float))
        twin.advance()


def swapped_pages(nodes: Arrays) -> Array:
    """Return the anonymous pages of each node that are owned but not in memory."""
    return np.asarray((nodes.wanted[:, ANON] - nodes.resident[:, ANON]).sum(axis=0))


def assert_pages_are_conserved(nodes: Arrays) -> None:
    """Check that every page is in one place, and that no place is overfull."""
    resident, wanted = nodes.resident, nodes.wanted
    assert (resident >= 0.0).all()
    assert (resident <= wanted + ROUNDING_PAGES).all(), "a page in memory without an owner"
    free = nodes.zone_pages - resident.sum(axis=(0, 1))
    assert (free >= -ROUNDING_PAGES).all(), "more pages in memory than the node has"
    assert (swapped_pages(nodes) <= nodes.swap_pages + ROUNDING_PAGES).all(), "swap overflows"
    assert (nodes.dirty >= 0.0).all()
    assert (nodes.dirty <= resident[:, COLD] + ROUNDING_PAGES).all(), "dirty pages not in memory"
    absent = nodes.has_group == 0.0
    assert (resident[1:].sum(axis=1)[absent] == 0.0).all(), "pages of a slot without a group"


@pytest.mark.parametrize("seed", SEEDS)
def test_pages_are_conserved_at_every_tick_under_any_levers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    twin = draw(rng).nodes()
    owned_by_application = twin.nodes.wanted[0].copy()
    paused, limits = np.zeros((SLOTS, NODES), dtype=bool), np.full((SLOTS, NODES), np.inf)
    written_before = np.zeros(NODES)
    for tick in range(150):
        if tick % 5 == 0:
            moved = rng.random((SLOTS, NODES)) < 0.4
            paused = np.where(moved, rng.random((SLOTS, NODES)) < 0.4, paused)
            some = np.where(rng.random((SLOTS, NODES)) < 0.5, np.inf, 10.0 ** rng.uniform(3, 5))
            limits = np.where(moved, some, limits)
        if tick % 50 == 49:
            twin.end_slots(rng.random((SLOTS, NODES)) < 0.1, for_good=bool(rng.random() < 0.5))
        swappiness = rng.choice([0.0, 60.0, 100.0, 200.0], NODES).astype(np.float64)
        dirty_ratios = float(rng.choice([0.02, 0.1])), float(rng.choice([0.2, 1.0]))
        twin.set_levers(paused, limits, swappiness, dirty_ratios)
        twin.advance()
        assert_pages_are_conserved(twin.nodes)
        np.testing.assert_array_equal(twin.nodes.wanted[0], owned_by_application)
        written = twin.nodes.swap_out_pages.copy()
        assert (written >= written_before).all()
        in_swap = swapped_pages(twin.nodes)
        assert (in_swap <= written + ROUNDING_PAGES * (1.0 + written)).all(), "never written"
        written_before = written


@pytest.mark.parametrize("seed", SEEDS)
def test_pages_are_conserved_at_every_decision_under_random_actions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    drawn = draw(rng)
    twins = [
        FittedTwin(scenario=scenario, draws=(from_column(drawn.parameters[:, k]),), weights=(1.0,))
        for k, scenario in enumerate(drawn.scenarios)
    ]
    simulation = Simulation(twins, NODES, SimulationSettings(), seed=seed)
    simulation.reset(np.ones(NODES, dtype=bool))
    action = np.zeros((NODES, len(ACTION_SIZES)), dtype=np.int64)
    for _ in range(100):
        moved = rng.random(action.shape) < 0.2
        action = np.where(moved, rng.integers(ACTION_SIZES, size=action.shape), action)
        result = simulation.step(action)
        assert_pages_are_conserved(simulation.twin.nodes)
        assert np.isfinite(result.observation).all()
        assert np.isfinite(result.reward).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_pages_in_swap_were_written_to_it_and_not_read_back(seed: int) -> None:
    """This is exact if working sets keep their size and reclaim always finds enough pages."""
    rng = np.random.default_rng(seed)
    drawn = draw(rng)
    scenarios = tuple(
        replace(
            scenario,
            swap_bytes=8 << 30,
            slots=tuple(
                replace(p, anon_pages=p.anon_pages[:1], file_pages=p.file_pages[:1],
                        running=(1.0,), stream_pages_per_s=0.0)
                for p in scenario.slots
            ),
        )
        for scenario in drawn.scenarios
    )  # fmt: skip
    twin = drawn.nodes(scenarios)
    nodes = twin.nodes
    for _ in range(150):
        run(twin, 1)
        balance = nodes.swap_out_pages - nodes.swap_in_pages
        # Pages that were read while there was no room for them count as well.
        np.testing.assert_allclose(swapped_pages(nodes), balance, rtol=3e-4, atol=0.01)
    assert (balance > 1e3).sum() > NODES // 4, "many nodes do swap"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_paused_group_does_no_work_and_demands_no_page(seed: int) -> None:
    rng = np.random.default_rng(seed)
    drawn = draw(rng)
    always_on = tuple(
        replace(scenario, slots=tuple(replace(p, running=(1.0,)) for p in scenario.slots))
        for scenario in drawn.scenarios
    )
    twin = drawn.nodes(always_on)
    run(twin, 30)
    assert (twin.nodes.units.sum(axis=0) > 0.0).all(), "all have worked before"
    run(twin, SETTLED_TICKS, paused=True)
    nodes = twin.nodes
    before = {
        "work": nodes.units.copy(),
        "own time": nodes.cursor_s.copy(),
        "CPU time": nodes.cpu_us[1:].copy(),
        "faults": nodes.refault_pages[1:].copy(),
        "stall": nodes.psi_some_us[1 : 1 + SLOTS].copy(),
        "owned pages": nodes.wanted[1:, :COLD].copy(),
    }
    held = nodes.resident[1:].copy()
    for _ in range(40):
        run(twin, 1, paused=True)
        after = {
            "work": nodes.units,
            "own time": nodes.cursor_s,
            "CPU time": nodes.cpu_us[1:],
            "faults": nodes.refault_pages[1:],
            "stall": nodes.psi_some_us[1 : 1 + SLOTS],
            "owned pages": nodes.wanted[1:, :COLD],
        }
        for what, value in before.items():
            np.testing.assert_array_equal(after[what], value, err_msg=what)
        assert (nodes.resident[1:] <= held).all(), "a paused group gained pages"
        held = nodes.resident[1:].copy()


def with_room_for_all(scenario: Exogenous) -> Exogenous:
    """Return the scenario on a node that has room for all programs and a tenth more.

    Streams only write, because the twin counts first reads as stall, which the kernel does not.
    """
    span_pages = 5e4
    slots = tuple(
        replace(
            program,
            stream_span_pages=min(program.stream_span_pages, span_pages),
            dirty_share=1.0,
        )
        for program in scenario.slots
    )
    protected = replace(scenario.protected, idle_loss_pages_per_s=0.0)
    pages = protected.anon_pages + protected.file_pages + protected.cold_pages
    for program in slots:
        pages += max(program.anon_pages) + max(program.file_pages or (0.0,)) + span_pages
    zone_bytes = int(1.1 * pages / PAGES_PER_MIB + 64.0) * MIB
    return replace(scenario, zone_bytes=zone_bytes, protected=protected, slots=slots)


@pytest.mark.parametrize("seed", SEEDS)
def test_without_pressure_no_group_stalls_or_faults(seed: int) -> None:
    drawn = draw(np.random.default_rng(seed))
    twin = drawn.nodes(tuple(with_room_for_all(scenario) for scenario in drawn.scenarios))
    run(twin, 200)
    nodes = twin.nodes
    free_share = 1.0 - nodes.resident.sum(axis=(0, 1)) / nodes.zone_pages
    assert (free_share > 0.02).all(), "there was room for all"
    assert nodes.psi_some_us.max() < 1.0
    assert nodes.psi_full_us.max() < 1.0
    assert nodes.refault_pages.max() < 0.001
    assert nodes.swap_out_pages.max() == 0.0
    assert (nodes.units.sum(axis=0) > 0.0).all(), "the programs did no work"


def application_faults(twin: TwinBatch) -> tuple[Array, NDArray[np.bool_]]:
    """Return the refaults per request of each node's application, and which nodes keep up.

    Where requests pile up, fewer are served, and those not served do not fault.
    """
    arrived, queued = twin.pooled.sum(axis=0), twin.nodes.queued
    per_request = twin.nodes.refault_pages[0] / np.maximum(arrived - queued, 1.0)
    return np.asarray(per_request), np.asarray(queued < 2.0)


@pytest.mark.parametrize("seed", SEEDS)
def test_less_memory_never_gives_an_application_fewer_faults(seed: int) -> None:
    """The application is alone: a background that thrashes works less, and may leave it more."""
    drawn = draw(np.random.default_rng(seed))
    more, faulting = np.zeros(NODES), 0
    for share in (1.0, 0.9, 0.7, 0.5, 0.35, 0.2):
        scenarios = tuple(
            replace(scenario, zone_bytes=int(share * scenario.zone_bytes), slots=())
            for scenario in drawn.scenarios
        )
        twin = drawn.nodes(scenarios)
        run(twin, 200)
        faults, keeps_up = application_faults(twin)
        fewer = keeps_up & (faults < more - 1e-6 * (1.0 + more))
        assert not fewer.any(), f"with {share:.0%} of the memory: {faults[fewer]}, {more[fewer]}"
        faulting = int((keeps_up & (faults > 1.0)).sum())
        more = faults
    assert faulting > 10, "too few applications fault on the smallest nodes"


@pytest.mark.parametrize("pool", ["anon_pages", "file_pages"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_tighter_limit_never_gives_a_program_fewer_faults_for_its_work(
    seed: int, pool: str
) -> None:
    """Pages are of one kind: of two, a tighter limit may take those that are cheaper to read."""
    rng = np.random.default_rng(seed)
    drawn = draw(rng)
    owned = rng.uniform(1e3, 6e4, SCENARIOS)
    sizes = {"anon_pages": np.zeros(SCENARIOS), "file_pages": np.zeros(SCENARIOS), pool: owned}
    programs = [
        SlotProgram(
            name="program",
            units_per_s=100.0,
            anon_pages=(anon,),
            file_pages=(file,),
            touch_pages_per_s=10.0 ** rng.uniform(3.5, 5.7),
        )
        for anon, file in zip(sizes["anon_pages"], sizes["file_pages"], strict=True)
    ]
    scenarios = tuple(
        replace(with_room_for_all(scenario), swap_bytes=8 << 30, slots=(program,))
        for scenario, program in zip(drawn.scenarios, programs, strict=True)
    )
    more = np.zeros(NODES)
    for share in (2.0, 0.9, 0.7, 0.5, 0.3):
        twin = drawn.nodes(scenarios)
        limit = share * owned[np.arange(NODES) % SCENARIOS]
        run(twin, 300, limit=limit)
        faults = twin.nodes.refault_pages[1] / np.maximum(twin.nodes.units[0], 1e-9)
        # Within a thousandth: where nearly every touch misses, the start makes such a difference.
        fewer = faults < more - 1e-3 * (1.0 + more)
        assert not fewer.any(), f"at {share:.0%}: {faults[fewer]}, {more[fewer]}"
        more = faults
    assert (more > 1.0).mean() > 0.8, "the tightest limit makes nearly all of them fault"
