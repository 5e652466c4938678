"""The policies with which a training can begin, and those with which it cannot."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from slot_policies import observations, slot_policy

from stallward.agent.action_table import LEVELS, SET_POINTS, ActionTable
from stallward.agent.errors import StallwardError
from stallward.agent.observation.encoder import BASIC, PHASES, FeatureSet
from stallward.env.testing import small_twin
from stallward.env.twin.inputs.fitted import save_fitted
from stallward.evaluation.cli import main
from stallward.models.registry import find_policy
from stallward.training.export.onnx_file import build_model, export_policy
from stallward.training.network.arrays import TrainedPolicy
from stallward.training.pipeline.start import read_start
from stallward.training.ppo import args as ppo
from stallward.training.ppo.args import Args
from stallward.training.ppo.callback import is_actor_parameter
from stallward.training.ppo.saved import load_policy, save_policy

ARGS = Args(n_envs=8, n_steps=8, batch_size=16)


def refusal(name: Path | str, out: Path) -> str:
    with pytest.raises(StallwardError) as refused:
        read_start(str(name), out)
    return str(refused.value)


def test_a_run_and_its_zip_are_the_same_start(tmp_path: Path) -> None:
    policy = slot_policy()
    save_policy(tmp_path / "run", policy, ARGS)
    digest = hashlib.sha256((tmp_path / "run/policy.zip").read_bytes()).hexdigest()
    for name, called in (("run", "run"), ("run/policy.zip", "run/policy.zip")):
        start = read_start(str(tmp_path / name), tmp_path / "out")
        assert (start.name, start.sha256) == (called, digest)
        np.testing.assert_array_equal(start.policy.w0, policy.w0)
        assert start.policy.parameters.keys() == policy.parameters.keys()


@pytest.mark.parametrize("features", [BASIC, PHASES], ids=lambda each: each.name)
@pytest.mark.parametrize("table", [LEVELS, SET_POINTS], ids=lambda table: table.name)
def test_the_weights_in_an_onnx_file_are_read_back_exactly(
    tmp_path: Path, table: ActionTable, features: FeatureSet
) -> None:
    policy = slot_policy(table=table, features=features)
    digest = export_policy(policy, tmp_path / "mine.onnx")
    start = read_start(str(tmp_path / "mine.onnx"), tmp_path / "out")
    assert (start.name, start.sha256) == ("mine.onnx", digest)
    for name in ("fine", "mean", "scale", "w0", "b0", "w1", "b1", "w2", "b2", "low", "high"):
        np.testing.assert_array_equal(getattr(start.policy, name), getattr(policy, name))
    assert all(map(is_actor_parameter, start.policy.parameters)), "it has no critic"
    save_policy(tmp_path / "run", start.policy, ARGS)
    again, seen = load_policy(tmp_path / "run"), observations(200, features)
    np.testing.assert_array_equal(again.w1, policy.w1)
    np.testing.assert_array_equal(again.act(seen), policy.act(seen))


def test_a_training_can_begin_with_the_shipped_policy(tmp_path: Path) -> None:
    start = read_start("default", tmp_path)
    start.check(Args())
    assert start.name == "default"
    assert start.sha256 == hashlib.sha256(find_policy("default").read_bytes()).hexdigest()
    assert "redis-mix" in start.facts()["twins"]


def in_file(policy: TrainedPolicy, path: Path) -> Path:
    export_policy(policy, path)
    return path


def test_onnx_files_that_do_not_hold_such_weights_are_refused(tmp_path: Path) -> None:
    policy, out = slot_policy(), tmp_path / "out"
    uneven = policy.w0.copy()
    uneven[0, 0] += 1.0
    path = in_file(replace(policy, w0=uneven), tmp_path / "uneven.onnx")
    assert refusal(path, out) == (
        f"The network in {path} is not the one that is trained here. The slots do not have the "
        "same weights. Give a policy of `stallward train`, or train from the beginning."
    )
    hidden = {
        "w0": policy.w0[:64], "b0": policy.b0[:64], "w1": policy.w1[:64, :64],
        "b1": policy.b1[:64], "w2": policy.w2[:, :64],
    }  # fmt: skip
    path = in_file(replace(policy, **hidden), tmp_path / "small.onnx")  # type: ignore[arg-type]
    assert "layers have 64 and 64 units, and those of a training 160." in refusal(path, out)


def test_onnx_files_with_another_graph_are_refused(tmp_path: Path) -> None:
    model = build_model(slot_policy())
    for changed in ("Tanh", "clip_high"):
        other = onnx.ModelProto.FromString(model.SerializeToString())
        if changed == "Tanh":
            next(node for node in other.graph.node if node.op_type == "Tanh").op_type = "Sigmoid"
        else:
            limit = next(one for one in other.graph.initializer if one.name == changed)
            limit.CopyFrom(
                onnx.numpy_helper.from_array(np.full(1, 9.0, dtype=np.float32), changed)
            )
        onnx.save(other, tmp_path / "other.onnx")
        said = refusal(tmp_path / "other.onnx", tmp_path / "out")
        assert "its graph is not one that `stallward export` writes. Give the run" in said


def test_what_is_not_a_finished_run_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert "There is no policy 'moon'. Give the directory of a run" in refusal("moon", out)
    assert "is not the directory of a run" in refusal(tmp_path, out)
    save_policy(tmp_path / "run/seeds/1", slot_policy(), ARGS)
    assert "is not finished. Repeat its command, or give" in refusal(tmp_path / "run", out)
    assert read_start(str(tmp_path / "run/seeds/1"), out).name == "1"
    (tmp_path / "mine.zip").write_text("no zip")
    assert "mine.zip does not hold a trained policy" in refusal(tmp_path / "mine.zip", out)


def test_a_run_does_not_begin_with_its_own_result(tmp_path: Path) -> None:
    save_policy(tmp_path / "run", slot_policy(), ARGS)
    shutil.copytree(tmp_path / "run", tmp_path / "run/seeds/1")
    for name in ("run", "run/policy.zip", "run/seeds/1"):
        said = refusal(tmp_path / name, tmp_path / "run")
        assert "would begin with its own result. Name a new directory with --out." in said


@pytest.mark.slow
def test_train_begins_with_a_policy_and_says_how_both_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    full = ppo.Args

    def brief(**given: Any) -> Args:
        return replace(full(**given), n_envs=64, n_steps=16, batch_size=256, evaluation_episodes=2)

    monkeypatch.setattr(ppo, "Args", brief)
    twin, out = tmp_path / "small.json", tmp_path / "run"
    save_fitted(twin, small_twin())
    command = [
        *("train", "--from", "default", "--twin", str(twin), "--judged-on", str(twin)),
        *("--composed", "0", "--decisions", "2048", "--seeds", "1", "--out", str(out)),
    ]
    assert main([*command, "--features", "phases"]) == 2
    assert "default does not fit this training. It has: features basic" in capsys.readouterr().err
    assert not out.exists(), "it was refused before anything was written"
    assert main(command) == 0
    printed = capsys.readouterr().out
    headers = printed.splitlines()[0].split("  ")
    assert [word.strip() for word in headers if word][:4] == [
        "twin", "policy", "lower bound", "start"
    ]  # fmt: skip
    assert "trained from `default`" in printed
    assert load_policy(out).provenance["start"]["name"] == "default"
    assert main(["export", str(out), "--out", str(tmp_path / "policy.onnx")]) == 0
    assert "`default` (SHA-256 `" in (tmp_path / "policy.md").read_text()
