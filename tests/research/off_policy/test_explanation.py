"""Why a policy chose what it chose: parts that add up, and the feature that it really looks at."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from stallward.agent.controllers.onnx import OnnxController
from stallward.agent.observation.encoder import OBSERVATION_NAMES, ObservationEncoder
from stallward.benchmarks.onset import write_reflex_policy
from stallward.env.recording.recording import Recording, load_recording
from stallward.evaluation.cli import main
from stallward.models.registry import find_policy
from stallward.research.off_policy.explanation import explain, integrated_gradients
from stallward.research.raw_rows import recorded_frames
from stallward.training.errors import DatasetError

RECORDINGS = Path(__file__).parents[3] / "recordings"
RECORDING = RECORDINGS / "detector-anon-none-s1"
RARE = RECORDINGS / "groonga-mix-partition-v1"
"""In two ticks of it the shipped policy has a group wait; else it leaves all to `partition`."""


@pytest.fixture(scope="module")
def recording() -> Recording:
    return load_recording(RECORDING)


def test_the_parts_of_a_linear_network_are_its_weights() -> None:
    weights = np.array([[1.0, -2.0, 0.0, 4.0], [0.0, 0.5, 3.0, 0.0]])

    def outputs(observation: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.asarray(weights @ observation + 7.0, dtype=np.float32)

    observation, usual = np.array([1.0, 2.0, 3.0, 0.0]), np.array([0.0, 1.0, 3.0, 1.0])
    parts = integrated_gradients(outputs, observation, usual)
    np.testing.assert_allclose(parts, (weights * (observation - usual)).T, atol=1e-3)


def test_parts_add_up_to_the_difference_of_the_shipped_policy(recording: Recording) -> None:
    policy = OnnxController(find_policy())
    encoder = ObservationEncoder(recording.run.slo_ms)
    seen = np.stack([encoder.encode(frame) for frame in recorded_frames(recording)])
    usual = np.median(seen, axis=0).astype(np.float64)
    for row in (50, 300):
        observation = seen[row].astype(np.float64)
        parts = integrated_gradients(policy.logits, observation, usual, points=64)
        moved = policy.logits(seen[row]) - policy.logits(usual.astype(np.float32))
        np.testing.assert_allclose(parts.sum(axis=0), moved, atol=0.05 * np.abs(moved).max())


def test_the_features_that_a_policy_looks_at_are_named(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = OnnxController(find_policy())
    stall = OBSERVATION_NAMES.index("protected_psi_memory_some_share")
    known = OBSERVATION_NAMES.index("latency_known")

    def logits(observation: NDArray[np.float32]) -> NDArray[np.float32]:
        values = np.zeros(sum(policy.metadata.table.sizes), dtype=np.float32)
        values[1] = 3.0 * observation[stall] - 0.5 * observation[known]  # the first slot waits
        return values

    monkeypatch.setattr(policy, "logits", logits)
    (one,) = explain(policy, recording, most_ticks=5)
    assert one.entry == "anon-a: share"
    assert {one.chosen, one.usual} == {"auto", "wait"}
    first, *others = one.causes
    assert first.feature == "protected_psi_memory_some_share"
    assert (first.value > first.usual) == (one.chosen == "wait")
    assert {other.feature for other in others} <= {"latency_known"}
    assert sum(cause.share for cause in one.causes) == pytest.approx(1.0, abs=0.01)


def test_one_decision_is_explained_by_its_time(
    recording: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "default", str(RARE), "--json"]) == 0
    (waits,) = json.loads(capsys.readouterr().out)
    assert (waits["chosen"], waits["ticks"]) == ("wait", 2)
    command = ["explain", "default", str(RARE), "--json", "--most", "3", "--at"]
    assert main([*command, "59.1"]) == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert (one["entry"], one["ticks"], len(one["causes"])) == (waits["entry"], 1, 3)
    assert main([*command, "20"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    with pytest.raises(DatasetError, match="no tick at 1e"):
        explain(OnnxController(find_policy()), recording, at_s=1e6)


def test_a_network_of_another_form_is_not_explained(recording: Recording, tmp_path: Path) -> None:
    """The reflex policy's actions do not follow from its one logit."""
    write_reflex_policy(tmp_path / "reflex.onnx")
    with pytest.raises(DatasetError, match="1 logits"):
        explain(OnnxController(tmp_path / "reflex.onnx"), recording)
