"""Errors of sensors: the features that have one, its size, and its effect in a simulation."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from stallward.agent.observation.encoder import OBSERVATION_NAMES, OBSERVATION_SIZE
from stallward.env.simulation.nuisance import (
    MISSING_SHARE,
    NO_NUISANCE,
    NUMBERS,
    SENSORS,
    draw_sensors,
)
from stallward.env.simulation.simulation import Simulation, SimulationSettings
from stallward.env.testing import small_twin
from stallward.env.twin.inputs.exogenous import SlotProgram
from stallward.env.twin.physics.pages import COLD, FILE

MEMORY = OBSERVATION_NAMES.index("zone_psi_memory_some_share")
COLUMN = {name: i for i, name in enumerate(OBSERVATION_NAMES)}
RUN = np.zeros(9, dtype=np.int64)


def drawn(amount: float = 1.0, nodes: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    return draw_sensors(np.random.default_rng(1).random((NUMBERS, nodes)), amount)


def test_a_feature_has_at_most_one_error_and_latencies_and_levers_have_none() -> None:
    columns = [column for sensor in SENSORS for column in sensor.columns()]
    assert len(columns) == len(set(columns))
    left = {name for i, name in enumerate(OBSERVATION_NAMES) if i not in columns}
    latencies = {"latency_p95_ratio", "latency_p95_ratio_8s", "latency_mean_ratio_1s"}
    levers = {"slot0_paused", "slot2_limit_ratio", "slot3_reference_ratio", "profile_flush"}
    assert latencies | levers <= left


def test_factors_have_the_spread_that_was_measured() -> None:
    gains, offsets = drawn()
    logs = np.log(gains[:, MEMORY])
    assert logs.std() == pytest.approx(0.35, rel=0.05)
    assert abs(logs.mean()) < 0.02
    assert (gains[:, COLUMN["latency_p95_ratio"]] == 1.0).all()
    assert offsets[:, COLUMN["latency_age"]].max() == pytest.approx(0.1, rel=0.01)
    assert (offsets[:, MEMORY] == 0.0).all()


def test_features_of_a_sensor_share_its_error_and_slots_do_not() -> None:
    gains, _ = drawn()
    for other in ("zone_psi_memory_full_share", "zone_psi_memory_full_share_8s"):
        np.testing.assert_array_equal(gains[:, MEMORY], gains[:, COLUMN[other]])
    first, second = gains[:, COLUMN["slot0_cpu_share"]], gains[:, COLUMN["slot1_cpu_share"]]
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.1


def test_some_nodes_lack_the_sensors_that_a_kernel_can_lack() -> None:
    gains, _ = drawn()
    lost = np.mean(gains[:, COLUMN["protected_refault_rate"]] == 0.0)
    assert lost == pytest.approx(MISSING_SHARE, rel=0.3)
    assert (gains[:, COLUMN["slot0_usage_ratio"]] > 0.0).all()


def test_without_nuisance_sensors_are_exact() -> None:
    gains, offsets = drawn(amount=0.0)
    assert gains.shape == (4000, OBSERVATION_SIZE)
    assert (gains == 1.0).all()
    assert (offsets == 0.0).all()


def test_each_episode_of_a_simulation_has_its_own_sensors() -> None:
    twins = [small_twin(SlotProgram(name="hog", units_per_s=10.0, anon_pages=(90_000.0,)))]
    plain = SimulationSettings(nuisance=NO_NUISANCE, episode_s=4.0)
    noisy = replace(plain, nuisance=replace(NO_NUISANCE, sensing=1.0))
    exact, inexact = (Simulation(twins, 16, settings, seed=3) for settings in (plain, noisy))
    everyone = np.ones(16, dtype=bool)
    factors = []
    for _ in range(2):
        for simulation in (exact, inexact):
            simulation.reset(everyone)
        for _ in range(15):
            steps = [one.step(np.tile(RUN, (16, 1))) for one in (exact, inexact)]
        np.testing.assert_array_equal(steps[0].reward, steps[1].reward)
        column = COLUMN["slot0_usage_ratio"]
        factor = steps[1].observation[:, column] / steps[0].observation[:, column]
        assert factor.std() > 0.03
        np.testing.assert_array_equal(
            steps[1].observation[:, COLUMN["latency_p95_ratio_1s"]],
            steps[0].observation[:, COLUMN["latency_p95_ratio_1s"]],
        )
        factors.append(factor)
    assert not np.allclose(factors[0], factors[1]), "two episodes have the same errors"


def test_a_copy_of_a_node_has_its_sensors() -> None:
    settings = SimulationSettings(nuisance=replace(NO_NUISANCE, sensing=1.0))
    source, copy = (Simulation([small_twin()], 8, settings, seed=seed) for seed in (1, 2))
    for simulation in (source, copy):
        simulation.reset(np.ones(8, dtype=bool))
    copy.copy_from(source, np.arange(8)[::-1])
    np.testing.assert_array_equal(copy.observation, source.observation[::-1])
    copy.step(np.tile(RUN, (8, 1)))
    source.step(np.tile(RUN, (8, 1)))
    column = COLUMN["slot0_usage_ratio"]
    np.testing.assert_allclose(
        copy.observation[:, column], source.observation[::-1, column], rtol=0.02
    )


def test_on_some_nodes_the_application_does_not_use_all_of_its_file_pages() -> None:
    settings = SimulationSettings(nuisance=replace(NO_NUISANCE, idle_file_share=0.6))
    simulation = Simulation([small_twin()], 256, settings, seed=3)
    simulation.reset(np.ones(256, dtype=bool))
    nodes = simulation.twin.nodes
    hot, cold = nodes.wanted[0, FILE], nodes.wanted[0, COLD]
    np.testing.assert_allclose(hot + cold, (hot + cold)[0])
    idle = 1.0 - hot / hot.max()
    assert 0.4 < np.mean(idle == 0.0) < 0.6
    assert 0.5 < idle.max() <= 0.6
    touches = nodes.request_touches[FILE]
    np.testing.assert_allclose(touches / touches.max(), hot / hot.max())
    # What is idle is in memory, and was read before: it is no demand on the disk.
    np.testing.assert_allclose(nodes.resident[0, COLD], nodes.cold_seen)
    np.testing.assert_allclose(nodes.cold_seen.max(), idle.max() * hot.max(), rtol=1e-6)


def test_targets_are_stricter_and_looser_than_in_the_scenario() -> None:
    settings = SimulationSettings(nuisance=replace(NO_NUISANCE, target_ratio=(0.8, 2.5)))
    twin = small_twin()
    simulation = Simulation([twin], 256, settings, seed=3)
    simulation.reset(np.ones(256, dtype=bool))
    ratio = simulation.twin.nodes.slo_ms / twin.scenario.slo_ms
    assert 0.8 <= ratio.min() < 0.85
    assert 2.4 < ratio.max() <= 2.5
    assert np.mean(ratio < math.sqrt(0.8 * 2.5)) == pytest.approx(0.5, abs=0.1)
