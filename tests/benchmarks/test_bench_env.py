"""Every figure of `stallward bench env` has a meaning and is plausible."""

from __future__ import annotations

import pytest

from stallward.benchmarks.env_steps import (
    MEANINGS,
    bench_environment,
    bench_twins,
    environment_rows,
)
from stallward.env.simulation.simulation import Simulation, SimulationSettings

pytestmark = pytest.mark.reaches("models/")


@pytest.mark.slow
def test_speeds_memory_and_shares_of_time_are_plausible() -> None:
    figures = bench_environment(seconds=0.2)
    assert set(figures) == set(MEANINGS)
    numbers = {key: value for key, value in figures.items() if value is not None}
    assert set(numbers) == set(MEANINGS), "a figure is missing or has no meaning"
    assert min(numbers.values()) > 0.0
    assert numbers["ppo_twin_share"] + numbers["ppo_update_share"] < 1.0
    rows = {row[0]: row[1] for row in environment_rows(figures)}
    assert rows["ppo_twin_share"].endswith("%")


def test_memory_depends_on_the_number_of_nodes_only() -> None:
    used = [
        Simulation(bench_twins(), nodes, SimulationSettings(), seed=1).bytes_used
        for nodes in (64, 128, 192)
    ]
    assert used[2] - used[1] == used[1] - used[0] > 0
