"""What a tick is worth, and which targets have rewards: those for p95, others are only judged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stallward.env.errors import ScenarioError
from stallward.env.gym.node_env import NodeEnv
from stallward.env.objective import reward
from stallward.env.recording.run_info import NodeInfo, RunInfo
from stallward.env.scenario.file import shipped_files
from stallward.env.simulation.simulation import Simulation, SimulationSettings
from stallward.env.twin.inputs.exogenous import (
    Exogenous,
    ProtectedProgram,
    SlotProgram,
    scenario_from_json,
    scenario_to_json,
)
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.env.twin.inputs.parameters import TwinParameters

SCENARIO = Exogenous(
    name="p99",
    zone_bytes=1 << 29,
    swap_bytes=1 << 30,
    slo_ms=50.0,
    protected=ProtectedProgram(request_rate_per_s=10.0, service_s=0.01),
    slots=(SlotProgram(name="hog", units_per_s=1.0),),
    slo_quantile=0.99,
)


def test_progress_counts_and_suffering_and_each_move_of_a_lever_cost() -> None:
    assert reward(0.75, 0.0, 0.0, 0.25) == 0.75
    assert reward(0.75, 0.5, 0.0, 0.25) == 0.25
    assert reward(0.75, 0.0, 2.0, 0.25) == 0.25


def test_training_on_a_twin_refuses_it_and_says_what_can_be_done() -> None:
    kept = scenario_from_json(scenario_to_json(SCENARIO))
    twin = FittedTwin(scenario=kept, draws=(TwinParameters(),), weights=(1.0,))
    with pytest.raises(ScenarioError, match=r"p99, .*p95 only.*compare"):
        Simulation([twin], 1, SimulationSettings(), seed=1)
    p95 = replace(twin, scenario=replace(kept, slo_quantile=0.95))
    Simulation([p95], 1, SimulationSettings(), seed=1)


def test_the_environment_of_a_node_refuses_it_before_anything_starts(tmp_path: Path) -> None:
    text = shipped_files()["detector-anon"].read_text()
    assert "quantile = 0.95" in text
    file = tmp_path / "strict.toml"
    file.write_text(text.replace("quantile = 0.95", "quantile = 0.99"))
    with pytest.raises(ScenarioError, match="p99"):
        NodeEnv(file)


@pytest.mark.parametrize(
    ("parameters", "quantile"),
    [
        ({}, 0.95),
        ({"protected": {"slo": {}}}, 0.95),
        ({"protected": {"slo": {"quantile": 0.5}}}, 0.5),
    ],
)
def test_a_recording_knows_the_quantile_of_its_scenario(
    parameters: dict[str, object], quantile: float
) -> None:
    run = RunInfo(
        scenario="x",
        condition="together",
        arm="none",
        seed=1,
        start_s=0.0,
        end_s=1.0,
        burn_in_s=0.0,
        sandbox_bytes=1,
        slo_ms=1.0,
        node=NodeInfo(kind="none", kernel="", cpu_count=1, memory_total_bytes=1),
        scenario_parameters=parameters,
    )
    assert run.slo_quantile == quantile
