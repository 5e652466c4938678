"""An experiment on a node that serves runs to its end, under real pressure."""

from __future__ import annotations

import pytest

from stallward.evaluation.bench.node_experiment import MEANINGS, NodeExperiment, bench_experiment


@pytest.mark.live
def test_an_experiment_on_a_serving_node_ends_by_itself() -> None:
    """Two pairs cannot be certain, so it ends when both are run, and not at its longest time."""
    wanted = NodeExperiment(scenario="detector-anon", pairs=2, block_s=10.0, burn_in_s=3.0)
    figures = bench_experiment(wanted)
    assert figures.keys() == MEANINGS.keys()
    assert figures["blocks"] == 4, figures
    assert figures["certain"] == 0, figures
    seconds = figures["seconds"]
    assert seconds is not None
    assert seconds < wanted.longest_s, figures
    shares = figures["attainment_baseline"], figures["attainment_treatment"]
    assert any(share is not None for share in shares), figures
