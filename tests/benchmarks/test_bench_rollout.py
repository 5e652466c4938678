"""A small fleet of simulated nodes: the bad policy is stopped, and the good one comes to all."""

from __future__ import annotations

import pytest

from stallward.benchmarks.fleet.rollouts import MEANINGS, RolloutSettings, bench_rollout

pytestmark = pytest.mark.reaches("actuator/stallward/actuator/service/", "models/")

NODES = 8


@pytest.mark.slow
def test_a_bad_policy_is_stopped_at_the_first_wave_and_a_good_one_comes_to_all_nodes() -> None:
    """One of a hundred waves may be judged wrongly by chance, so there are three tries."""
    seen = []
    for seed in (1, 2, 3):
        settings = RolloutSettings(nodes=NODES, waves="1,50%,100%", period_s=0.1, seed=seed)
        figures = bench_rollout(settings)
        assert figures.keys() == MEANINGS.keys()
        assert figures["bad_uncounted"] == figures["good_uncounted"] == 0.0
        assert figures["bad_back"] == figures["bad_switched"]
        seen.append((figures["bad_waves"], figures["bad_switched"], figures["good_active"]))
        if seen[-1] == (1.0, 1.0, NODES):
            return
    pytest.fail(f"Waves and nodes of the bad policy, nodes of the good one: {seen}.")
