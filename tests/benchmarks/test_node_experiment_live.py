"""An experiment on a node that serves runs to its end, under real pressure."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallward.benchmarks.node_experiment import MEANINGS, NodeExperiment, bench_experiment
from stallward.env.scenario.file import shipped_files

pytestmark = pytest.mark.reaches(
    "actuator/stallward/actuator/", "env/stallward/env/workloads/", "env/stallward/env/scenario/"
)


@pytest.mark.live
def test_an_experiment_on_a_serving_node_ends_by_itself(tmp_path: Path) -> None:
    """Two pairs cannot be certain, so it ends when both are run, and not at its longest time."""
    stated = tmp_path / "stated-target.toml"  # measuring it takes two minutes
    text = shipped_files()["detector-anon"].read_text()
    stated.write_text(text.replace('latency_ms = "auto"', "latency_ms = 100.0"))
    wanted = NodeExperiment(scenario=str(stated), pairs=2, block_s=10.0, burn_in_s=3.0)
    figures = bench_experiment(wanted)
    assert figures.keys() == MEANINGS.keys()
    assert figures["slo_ms"] == 100.0
    assert figures["blocks"] == 4, figures
    assert figures["certain"] == 0, figures
    seconds = figures["seconds"]
    assert seconds is not None
    assert seconds < wanted.longest_s, figures
    shares = figures["attainment_baseline"], figures["attainment_treatment"]
    assert any(share is not None for share in shares), figures
