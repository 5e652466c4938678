"""An experiment is kept on the disk, as a whole or not at all."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from stallward.actuator.errors import ExperimentError
from stallward.actuator.experiments.block_tally import BlockResult, Loss
from stallward.actuator.experiments.file import load_state, save_state
from stallward.actuator.experiments.plan import Arm, Candidate, ExperimentPlan, PrimaryMeasure
from stallward.actuator.experiments.state import Before, ExperimentState, Progress
from stallward.agent.latency_histogram import LatencyHistogram

STATE = ExperimentState(
    plan=ExperimentPlan(
        baseline=Candidate(),
        treatment=Candidate(policy="default", sha256="a" * 64),
        pairs=3,
        block_s=60.0,
        burn_in_s=10.0,
        seed=(1 << 63) - 1,
        primary=PrimaryMeasure.WORK,
    ),
    before=Before(policy="/policies/old.onnx", mode="active"),
    began_s=1.5e9,
    blocks=(
        BlockResult(
            pair=0,
            arm=Arm.TREATMENT,
            began_s=1.5e9,
            seconds=60,
            batches=(1.0, 0.9),
            latencies=LatencyHistogram(buckets=(300, 512), counts=(3000, 7)),
        ),
        BlockResult(pair=0, arm=Arm.BASELINE, began_s=1.6e9, loss=Loss.LOOP_SILENT),
    ),
    progress=Progress.STOPPED,
    ended_s=1.6e9,
)


def test_what_is_kept_is_read_back(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    assert load_state(folder) is None
    save_state(folder, STATE)
    assert load_state(folder) == STATE
    assert folder.stat().st_mode & 0o777 == 0o700


def test_what_an_earlier_version_kept_is_read_without_latencies(tmp_path: Path) -> None:
    save_state(tmp_path, STATE)
    path = tmp_path / "experiment.json"
    content = json.loads(path.read_text())
    for block in content["blocks"]:
        del block["latencies"]
    path.write_text(json.dumps(content))
    before = load_state(tmp_path)
    blocks = tuple(replace(block, latencies=None) for block in STATE.blocks)
    assert before == replace(STATE, blocks=blocks)


@pytest.mark.parametrize("content", ["{", "[]", '{"plan": {}}', "\0"])
def test_a_damaged_file_is_said(tmp_path: Path, content: str) -> None:
    save_state(tmp_path, STATE)
    (tmp_path / "experiment.json").write_text(content)
    with pytest.raises(ExperimentError, match="cannot be read"):
        load_state(tmp_path)


def test_a_plan_that_cannot_be_is_refused_although_a_file_says_so(tmp_path: Path) -> None:
    save_state(tmp_path, STATE)
    path = tmp_path / "experiment.json"
    path.write_text(path.read_text().replace('"pairs": 3', '"pairs": 0'))
    with pytest.raises(ExperimentError, match="pairs is 0"):
        load_state(tmp_path)


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ExperimentError, match="cannot be kept"):
        save_state(tmp_path / "file" / "folder", STATE)
