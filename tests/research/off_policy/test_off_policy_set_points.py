"""Policies of set-points are judged by recordings of random set-points, and by no others."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from policy_files import metadata, write_policy

from stallward.agent.action_table import LEVELS, SET_POINTS
from stallward.agent.observation.encoder import OBSERVATION_SIZE
from stallward.agent.registry import make_controller
from stallward.agent.set_points import SlotShare
from stallward.env.recording.node_facts import node_info
from stallward.env.recording.recording import load_recording
from stallward.env.recording.stored import Selection
from stallward.env.scenario.file import load_scenario
from stallward.env.twin.inputs.fitted import load_fitted
from stallward.evaluation.arms import make_arms
from stallward.evaluation.blocks.request import RunRequest
from stallward.evaluation.blocks.twin import TwinRunner
from stallward.models.registry import find_twin
from stallward.research.off_policy.dataset import (
    LoggedRecording,
    LoggedRun,
    controller_actions,
    read_logged,
)
from stallward.research.off_policy.estimators import OffPolicyEstimator, OffPolicySettings
from stallward.research.off_policy.gate import judge
from stallward.research.off_policy.replay_env import load_runs
from stallward.training.errors import DatasetError, TrainingError

SCENARIO = "detector-anon"
WITHOUT_SET_POINTS = "memcached-gcc"
"""A scenario of which only random limit levels are shipped."""
SHIPPED = Path(__file__).parents[3] / "recordings"
SETTINGS = OffPolicySettings(trees=10, gamma=0.9, least_ess=15.0)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a recording of random set-points, and one of random limit levels."""
    folder = tmp_path_factory.mktemp("recordings")
    twin = load_fitted(find_twin(SCENARIO))
    runner = TwinRunner(twin=twin, scenario=load_scenario(SCENARIO), node=node_info(folder))
    for name, arm in (("points", "excite:table=set-points"), ("levels", "excite")):
        request = RunRequest(
            condition="together",
            arm=make_arms([arm])[0],
            slo_ms=twin.scenario.slo_ms,
            duration_s=32.0,
            burn_in_s=4.0,
            seed=2,
        )
        runner.run_block(request, folder / name)
    return folder


@pytest.fixture
def logged(recorded: Path) -> Callable[[str], LoggedRecording]:
    scenario = load_fitted(find_twin(SCENARIO)).scenario
    return lambda name: read_logged(load_recording(recorded / name), scenario, 6.0)


@pytest.fixture(scope="module")
def waits(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The spec of a policy of set-points that always lets the first slot wait."""
    path = tmp_path_factory.mktemp("policy") / "waits.onnx"
    return f"onnx:path={write_policy(path, table=SET_POINTS, calm=-1.0)}"


def test_the_table_of_a_recording_is_that_of_its_actions(
    logged: Callable[[str], LoggedRecording],
) -> None:
    points, levels = logged("points").run, logged("levels").run
    assert (points.table, levels.table) == (SET_POINTS, LEVELS)
    assert points.actions.shape == (320, len(SET_POINTS.sizes))
    assert (points.propensity > 0.0).all()
    assert len(np.unique(points.actions, axis=0)) > 3


def test_nothing_reaches_over_a_tick_at_which_something_else_decided(
    recorded: Path, logged: Callable[[str], LoggedRecording], tmp_path: Path
) -> None:
    folder = shutil.copytree(recorded / "points", tmp_path / "points")
    table = pq.read_table(folder / "actions.parquet")
    actions = table["action"].to_pylist()
    actions[200] = ""  # the 160th that is measured
    index = table.schema.get_field_index("action")
    table = table.set_column(index, "action", pa.array(actions, pa.string()))
    pq.write_table(table, folder / "actions.parquet")
    scenario = load_fitted(find_twin(SCENARIO)).scenario
    run = read_logged(load_recording(folder), scenario, 6.0).run
    assert len(run.reward) == len(logged("points").run.reward) - 1
    weights = OffPolicyEstimator([run], SETTINGS)._weights(run.actions)
    assert (weights[1, [158, 160]] > 0.0).all()
    assert weights[1, 159] == weights[2, 158] == 0.0
    assert [len(part.logged.reward) for part in load_runs([folder])] == [160, 159]


def test_a_policy_of_set_points_and_partition_act_on_its_ticks(
    logged: Callable[[str], LoggedRecording], waits: str
) -> None:
    points = logged("points")
    actions = controller_actions(make_controller(waits), points)
    assert (actions[:, 0] == SlotShare.WAIT).all()
    assert not actions[:, 1:].any()
    auto = controller_actions(make_controller("partition"), points)
    assert auto.shape == actions.shape
    assert not auto.any()


def test_what_cannot_be_judged_by_a_table_is_refused(
    logged: Callable[[str], LoggedRecording], waits: str, tmp_path: Path
) -> None:
    with pytest.raises(DatasetError, match="'rule' chooses no set-points"):
        controller_actions(make_controller("rule"), logged("points"))
    with pytest.raises(DatasetError, match="recordings are of limit levels") as caught:
        controller_actions(make_controller(waits), logged("levels"))
    assert "excite:table=set-points" in caught.value.next_step
    with pytest.raises(DatasetError, match="other numbers of partition"):
        controller_actions(make_controller("partition:margin_share=0.2"), logged("points"))
    entries = metadata(SET_POINTS) | {"stallward.partition": json.dumps({"turn_s": 30.0})}
    path = write_policy(tmp_path / "p.onnx", entries, table=SET_POINTS)
    with pytest.raises(DatasetError, match=r"p\.onnx divides by other numbers"):
        controller_actions(make_controller(f"onnx:path={path}"), logged("points"))


def test_partition_is_judged_by_limit_levels_too(
    logged: Callable[[str], LoggedRecording],
) -> None:
    levels = logged("levels")
    actions = controller_actions(make_controller("partition"), levels)
    assert actions.shape == (320, len(LEVELS.sizes))
    assert levels.samples[0].protected.memory_usage_bytes
    assert actions[:, [1, 3]].any(), "it sees what the groups hold, and limits them"


def test_choices_count_except_those_for_absent_slots() -> None:
    """The reward is 1 where more is kept; one slot of four is there."""
    rng = np.random.default_rng(1)
    kept = rng.random(600) < 0.5
    actions = np.zeros((600, len(SET_POINTS.sizes)), dtype=np.int64)
    actions[:, 4] = kept
    run = LoggedRun(
        name="coin",
        observations=rng.random((600, OBSERVATION_SIZE)).astype(np.float32),
        actions=actions,
        propensity=np.full(600, 0.5),
        reward=kept + 0.1 * rng.standard_normal(600),
        last=np.arange(600) == 599,
        slots=1,
        table=SET_POINTS,
    )
    always = np.zeros_like(actions)
    always[:, 4] = 1
    always[:, 3] = 2  # of a slot that is absent
    estimator = OffPolicyEstimator([run], SETTINGS)
    value = estimator.value([always])
    assert value.agreement == pytest.approx(0.5, abs=0.05)
    assert value.doubly_robust is not None
    assert value.doubly_robust.value == pytest.approx(1.0, abs=0.15)
    always[:, 0] = 1
    assert estimator.value([always]).agreement == 0.0, "the slot that is there counts"


def test_the_gate_takes_the_recordings_of_the_candidates_table(recorded: Path, waits: str) -> None:
    result = judge([recorded], [waits], settings=SETTINGS)
    assert result.reference == "partition"
    assert result.logged[SCENARIO].recordings == ("points",)
    assert [one.arm for one in result.candidates] == [waits]
    levels = judge([recorded], ["partition"], settings=SETTINGS)
    assert levels.reference == "none"
    assert levels.logged[SCENARIO].recordings == ("levels",)


def test_without_recordings_of_its_table_a_policy_gets_no_verdict(waits: str) -> None:
    with pytest.raises(TrainingError, match="has propensities of set-points") as caught:
        judge([SHIPPED], [waits], selection=Selection(scenario=WITHOUT_SET_POINTS))
    assert "--arm excite:table=set-points" in caught.value.next_step


def test_rules_and_policies_of_set_points_are_judged_apart(recorded: Path, waits: str) -> None:
    with pytest.raises(DatasetError, match="'rule' chooses no set-points"):
        judge([recorded], [waits, "rule"])
    with pytest.raises(DatasetError, match="'none' chooses no set-points"):
        judge([recorded], [waits], reference="none")
