"""A small fleet of simulated nodes: the experiment runs on all, and every tick is counted."""

from __future__ import annotations

import pytest

from stallward.benchmarks.fleet.bench import MEANINGS, FleetSettings, bench_fleet

pytestmark = pytest.mark.reaches("actuator/stallward/actuator/service/", "models/")


@pytest.mark.slow
def test_a_small_fleet_completes_its_experiment_and_loses_nothing_uncounted() -> None:
    settings = FleetSettings(nodes=4, pairs=1, period_s=0.05)
    figures = bench_fleet(settings)
    assert figures.keys() == MEANINGS.keys()
    assert figures["ticks_uncounted"] == 0.0
    assert figures["ticks_lost"]
    assert figures["nodes_complete"] == 4.0
    assert figures["blocks_kept"] == 8.0
