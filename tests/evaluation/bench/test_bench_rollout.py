"""A small fleet of simulated nodes: the bad policy is stopped, and the good one comes to all."""

from __future__ import annotations

import pytest

from stallward.evaluation.bench.fleet.rollouts import MEANINGS, RolloutSettings, bench_rollout


@pytest.mark.slow
def test_a_bad_policy_is_stopped_at_the_first_wave_and_a_good_one_comes_to_all_nodes() -> None:
    settings = RolloutSettings(nodes=8, waves="1,50%,100%", period_s=0.15, watch_ticks=40)
    figures = bench_rollout(settings)
    assert figures.keys() == MEANINGS.keys()
    assert figures["bad_uncounted"] == figures["good_uncounted"] == 0.0
    assert (figures["bad_waves"], figures["bad_switched"], figures["bad_back"]) == (1.0, 1.0, 1.0)
    assert figures["good_active"] == 8.0
