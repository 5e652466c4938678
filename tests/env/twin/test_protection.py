"""What protects the application's pages: its own swappiness, its low protection, its way back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stallward.agent.desired import ACTION_SIZES, PROFILES, DesiredState, Tuning
from stallward.env.simulation.simulation import Simulation, SimulationSettings
from stallward.env.testing import small_twin
from stallward.env.twin.batch import TwinBatch
from stallward.env.twin.inputs.exogenous import Exogenous, SlotProgram
from stallward.env.twin.inputs.parameters import (
    LATER_PARAMETERS,
    TwinParameters,
    as_mapping,
    from_mapping,
    to_array,
)
from stallward.env.twin.node import TwinNode
from stallward.env.twin.physics.pages import ANON, FILE

ANON_PAGES, FILE_PAGES = 40_000.0, 20_000.0
HOG = SlotProgram(name="hog", units_per_s=10.0, anon_pages=(90_000.0,))
READER = SlotProgram(name="reader", units_per_s=10.0, file_pages=(90_000.0,))
RUN = np.zeros((4, 1), dtype=bool)
UNLIMITED = np.full((4, 1), np.inf)


def scenario_of(*slots: SlotProgram, **changes: Any) -> Exogenous:
    """Describe 400 MiB for an application of 234 MiB and a program of 352 MiB."""
    scenario = small_twin(*slots).scenario
    protected = replace(
        scenario.protected,
        anon_pages=ANON_PAGES,
        file_pages=FILE_PAGES,
        touch_anon_pages=20.0,
        touch_file_pages=20.0,
    )
    return replace(scenario, protected=protected, **changes)


def batch_of(scenario: Exogenous, **values: float) -> TwinBatch:
    twin = TwinBatch([scenario], 1, seed=3)
    draws = to_array([TwinParameters(**values)])
    twin.reset(np.ones(1, dtype=bool), np.zeros(1, dtype=np.int64), draws)
    return twin


def run(twin: TwinBatch, seconds: float, **levers: Any) -> None:
    for _ in range(round(10 * seconds)):
        twin.set_levers(RUN, UNLIMITED, **levers)
        twin.advance()


def resident(twin: TwinBatch, pool: int) -> float:
    return float(twin.nodes.resident[0, pool, 0])


def assert_pages_are_conserved(twin: TwinBatch) -> None:
    nodes = twin.nodes
    assert nodes.resident.sum() <= nodes.zone_pages[0] * (1 + 1e-9)
    assert (nodes.resident >= 0.0).all()
    assert (nodes.resident <= nodes.wanted * (1 + 1e-9) + 1e-6).all()
    swapped = (nodes.wanted[:, ANON] - nodes.resident[:, ANON]).sum()
    assert swapped <= nodes.swap_pages[0] * (1 + 1e-9) + 1e-6


def test_with_swappiness_0_no_page_of_the_application_is_swapped() -> None:
    for slots in ((HOG,), (READER,), (HOG, READER)):
        usual, kept = (batch_of(scenario_of(*slots)) for _ in range(2))
        run(usual, 20.0)
        run(kept, 20.0, protected_swappiness=0.0)
        assert resident(usual, ANON) < 0.95 * ANON_PAGES
        assert resident(kept, ANON) == pytest.approx(ANON_PAGES)
        assert resident(kept, FILE) < FILE_PAGES, "its file pages are taken"
        assert_pages_are_conserved(kept)


def test_with_swappiness_0_others_wait_when_no_other_page_is_left() -> None:
    """A share that is merely weighted with 0 would be taken last, not never."""
    twin = batch_of(scenario_of(HOG, HOG, swap_bytes=0))
    run(twin, 30.0, protected_swappiness=0.0)
    assert resident(twin, ANON) == pytest.approx(ANON_PAGES)
    assert twin.nodes.progress[:2, 0].max() < 0.9, "their memory does not fit"
    assert_pages_are_conserved(twin)
    twin = batch_of(scenario_of(HOG, HOG, swap_bytes=100 << 20))
    run(twin, 30.0, protected_swappiness=0.0)
    assert resident(twin, ANON) == pytest.approx(ANON_PAGES)
    assert twin.nodes.resident[1:, ANON].sum() > 0.5 * (102_400 - ANON_PAGES)
    assert_pages_are_conserved(twin)


def swapped_pages(zone_mib: int, own: float, others: float) -> tuple[float, float]:
    """Return the pages of the application and of a hog in swap after some seconds."""
    twin = batch_of(scenario_of(HOG, READER, zone_bytes=zone_mib << 20))
    run(twin, 3.0, swappiness=others, protected_swappiness=own)
    assert_pages_are_conserved(twin)
    missing = twin.nodes.wanted[:, ANON, 0] - twin.nodes.resident[:, ANON, 0]
    return float(missing[0]), float(missing[1])


def test_each_swappiness_acts_on_its_own_groups() -> None:
    usual, kept, swapped = (swapped_pages(850, own, 60.0)[0] for own in (60.0, 5.0, 150.0))
    assert kept < 0.5 * usual < usual < 0.9 * swapped
    usual, swapped, kept = (swapped_pages(400, 60.0, others)[1] for others in (60.0, 180.0, 0.0))
    assert swapped > 1.5 * usual > 0.0
    assert kept == pytest.approx(0.0)
    assert swapped_pages(400, 60.0, 0.0)[0] > 0.0, "the application has its own"


def test_below_its_low_protection_the_application_loses_nothing() -> None:
    held = {}
    for share in (0.0, 0.5, 1.0):
        twin = batch_of(scenario_of(HOG))
        low = share * (ANON_PAGES + FILE_PAGES)
        run(twin, 30.0, protected_low_pages=low)
        held[share] = resident(twin, ANON) + resident(twin, FILE)
        assert held[share] >= 0.98 * low
        assert_pages_are_conserved(twin)
    assert held[0.0] < held[0.5] < held[1.0]
    assert held[1.0] == pytest.approx(ANON_PAGES + FILE_PAGES, rel=1e-3)


def test_protected_pages_are_taken_where_nothing_else_can_be() -> None:
    alone = batch_of(scenario_of(HOG, zone_bytes=200 << 20))
    run(alone, 20.0, protected_low_pages=ANON_PAGES + FILE_PAGES)
    nodes = alone.nodes
    assert resident(alone, ANON) + resident(alone, FILE) > 0.9 * 0.98 * nodes.zone_pages[0]
    assert nodes.resident[1].sum() < 0.1 * nodes.zone_pages[0]
    alone.nodes.zone_pages = 20_000.0
    run(alone, 5.0, protected_low_pages=ANON_PAGES + FILE_PAGES)
    assert_pages_are_conserved(alone)
    assert resident(alone, ANON) + resident(alone, FILE) > 15_000.0


def swapped_out() -> TwinBatch:
    """Return a node whose application was swapped out, and that has room again."""
    twin = batch_of(scenario_of(HOG))
    run(twin, 20.0)
    twin.end_slots(np.array([[True], [False], [False], [False]]))
    return twin


def test_swapped_pages_come_back_when_they_are_touched_or_asked_for() -> None:
    touched, asked = swapped_out(), swapped_out()
    lost = ANON_PAGES - resident(touched, ANON)
    assert lost > 0.1 * ANON_PAGES
    rate = TwinParameters().read_pages_per_s
    asked.read_back(np.ones(1, dtype=bool))
    before = asked.nodes.swap_in_pages[0]
    run(touched, 0.1)
    run(asked, 0.1)
    came = asked.nodes.swap_in_pages[0] - before
    assert came <= 3.0 * 0.1 * rate, "no faster than the disk"
    assert resident(asked, ANON) > resident(touched, ANON) + 0.3 * lost
    run(touched, 1.0)
    run(asked, 1.0)
    assert resident(asked, ANON) == pytest.approx(ANON_PAGES)
    assert ANON_PAGES - resident(touched, ANON) > 0.5 * lost, "few are touched in a second"
    assert asked.nodes.read_back_pages[0] == 0.0
    assert_pages_are_conserved(asked)


def test_pages_are_read_back_once() -> None:
    node = TwinNode(scenario_of(HOG), TwinParameters(), seed=3)
    for _ in range(200):
        node.step(DesiredState())
    asked = DesiredState(protected_willneed=True)
    swapped = []
    for _ in range(100):
        node.step(asked)
        swapped.append(node.sample().protected.swap_bytes or 0)
    assert swapped[1] < 0.5 * max(swapped[60:]), "the hog takes them again, and nobody asks again"


def test_pages_around_a_touched_one_come_back_with_it() -> None:
    returned = {}
    for around in (1.0, 8.0):
        twin = batch_of(scenario_of(HOG), swap_read_around_pages=around)
        run(twin, 20.0)
        twin.end_slots(np.array([[True], [False], [False], [False]]))
        lost = ANON_PAGES - resident(twin, ANON)
        run(twin, 2.0)
        returned[around] = 1.0 - (ANON_PAGES - resident(twin, ANON)) / lost
        assert_pages_are_conserved(twin)
    assert returned[8.0] > 5.0 * returned[1.0] > 0.0


def test_a_sample_tells_what_the_application_has_in_memory_and_in_swap() -> None:
    node = TwinNode(scenario_of(HOG), TwinParameters(), seed=3)
    for _ in range(200):
        node.step(DesiredState())
    group = node.sample().protected
    assert group.swap_bytes is not None
    assert group.swap_bytes > 10 << 20
    assert (group.anon_bytes or 0) + group.swap_bytes == pytest.approx(4096 * ANON_PAGES, abs=9e3)
    held = (group.anon_bytes or 0) + (group.file_bytes or 0)
    assert group.memory_usage_bytes == pytest.approx(held, abs=9e3)
    assert (group.refault_anon_pages or 0) > 0
    assert (group.refault_file_pages or 0) > 0


def test_a_node_and_a_batch_agree_on_every_setting() -> None:
    desired = DesiredState(
        tuning=Tuning(name="try", swappiness=120, protected_swappiness=10),
        protected_low_bytes=4096 * 30_000,
    )
    node = TwinNode(scenario_of(HOG, READER), TwinParameters(), seed=3, memory_low=True)
    twin = batch_of(scenario_of(HOG, READER))
    for _ in range(100):
        node.step(desired)
    run(twin, 10.0, swappiness=120.0, protected_swappiness=10.0, protected_low_pages=30_000.0)
    group = node.sample().protected
    assert group.anon_bytes == int(4096 * resident(twin, ANON))
    assert group.file_bytes == int(4096 * resident(twin, FILE))


def test_low_protection_has_no_effect_on_a_node_without_it() -> None:
    desired = DesiredState(protected_low_bytes=4096 * 30_000)
    nodes = [
        TwinNode(scenario_of(HOG, READER), TwinParameters(), seed=3, memory_low=low)
        for low in (False, True)
    ]
    for _ in range(300):
        for node in nodes:
            node.step(desired)
    without, protected = (node.sample().protected for node in nodes)
    assert (without.memory_usage_bytes or 0) < 0.9 * (protected.memory_usage_bytes or 0)


def test_a_simulation_sets_both_swappinesses_of_a_profile() -> None:
    for number, profile in enumerate(PROFILES):
        simulation = Simulation([small_twin()], 3, SimulationSettings(), seed=1)
        simulation.reset(np.ones(3, dtype=bool))
        action = np.zeros((3, len(ACTION_SIZES)), dtype=np.int64)
        action[:, -1] = number
        simulation.step(action)
        nodes, usual = simulation.twin.nodes, 60.0
        own = profile.protected_swappiness
        assert (nodes.swappiness == (profile.swappiness or usual)).all()
        assert (nodes.protected_swappiness == (usual if own is None else own)).all()


def test_a_twin_without_later_parameters_is_as_it_was() -> None:
    old = {k: v for k, v in as_mapping(TwinParameters()).items() if k not in LATER_PARAMETERS}
    assert from_mapping(old) == TwinParameters()
