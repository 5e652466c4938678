"""What a training saves is a model of stable-baselines3, and is read back without unpickling."""

from __future__ import annotations

import base64
import io
import json
import pickle
import random
import re
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuzz_mutations import JSON_VALUES, Material, draw, make
from fuzz_target import Target, try_input
from slot_policies import observations, slot_policy
from stable_baselines3 import PPO

from stallward.agent.action_table import LEVELS, SET_POINTS, ActionTable
from stallward.agent.controllers.partition import PartitionThresholds
from stallward.agent.observation.encoder import BASIC, PHASES, FeatureSet
from stallward.env.testing import small_twin
from stallward.env.twin.inputs.fitted import save_fitted
from stallward.models.registry import load_policy as load_onnx
from stallward.training.errors import TrainingError
from stallward.training.export.onnx_file import export_policy
from stallward.training.ppo.args import Args
from stallward.training.ppo.saved import load_policy, read_zip, save_policy

PAGE = Path(__file__).parents[3] / "docs/how-to/train-a-policy.md"
ARGS = Args(n_envs=8, n_steps=8, batch_size=16, n_epochs=1, gamma=0.9)
EACH_KIND = pytest.mark.parametrize(
    ("table", "features"), [(LEVELS, BASIC), (SET_POINTS, PHASES)], ids=["levels", "phases"]
)


def same_weights(one: Any, other: Any) -> bool:
    return one.keys() == other.keys() and all(
        np.array_equal(one[name], other[name]) for name in one
    )


@EACH_KIND
def test_ppo_loads_the_zip_which_decides_as_the_onnx_file(
    tmp_path: Path, table: ActionTable, features: FeatureSet
) -> None:
    policy = slot_policy(table=table, features=features)
    save_policy(tmp_path, policy, ARGS)
    model = PPO.load(tmp_path / "policy.zip", device="cpu")
    export_policy(policy, tmp_path / "policy.onnx")
    on_node = load_onnx(tmp_path / "policy.onnx")
    seen = observations(300, features)
    predicted, _ = model.predict(seen, deterministic=True)
    decided = np.array([on_node._infer(row) for row in seen])
    assert (predicted == decided).all(axis=1).mean() > 0.99, "rounding decides between equals"
    assert len(np.unique(decided, axis=0)) > 20, "the policy decides by what it sees"


@pytest.mark.slow
@pytest.mark.reaches("docs/how-to/train-a-policy.md")
def test_the_script_on_the_page_evaluates_the_model_trains_it_further_and_saves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = slot_policy(partition=PartitionThresholds(margin_share=0.125))
    save_policy(tmp_path / "build/run", policy, ARGS)
    save_fitted(tmp_path / "build/mine.json", small_twin())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    settings = names["env"].unwrapped._simulation.settings
    assert (settings.action_table, settings.ticks_per_action) == (SET_POINTS.name, 10)
    assert settings.partition.margin_share == 0.125
    model = names["model"]
    assert (model.gamma, model.n_epochs, model.learning_rate) == (0.9, 1, 0.1 * 1e-3)
    assert not list(tmp_path.glob("SB3-*")), "an empty folder in the temporary directory"
    further = read_zip(tmp_path / "build/model.zip")
    assert not same_weights(further.parameters, policy.parameters)
    assert (further.table, further.partition) == (policy.table, policy.partition)
    assert further.provenance == policy.provenance


@EACH_KIND
def test_a_saved_policy_loads_unchanged(
    tmp_path: Path, table: ActionTable, features: FeatureSet
) -> None:
    partition = PartitionThresholds(margin_share=0.125 if table is SET_POINTS else 0.03)
    policy = slot_policy(table=table, features=features, partition=partition)
    save_policy(tmp_path, replace(policy, provenance={"seed": 7, "steps": 9}), ARGS)
    again = load_policy(tmp_path)
    assert same_weights(again.parameters, policy.parameters)
    for name in ("fine", "mean", "scale", "low", "high", "w0", "b1", "w2"):
        np.testing.assert_array_equal(getattr(again, name), getattr(policy, name))
    assert (again.table, again.features, again.partition) == (table, features, partition)
    assert again.ticks_per_action == policy.ticks_per_action
    assert again.provenance == {"seed": 7, "steps": 9}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["policy.zip", "training.json"]


def test_a_policy_without_a_critic_gets_one(tmp_path: Path) -> None:
    policy = slot_policy()
    actor = {name: array for name, array in policy.parameters.items() if "value" not in name}
    save_policy(tmp_path, replace(policy, parameters=actor), ARGS)
    again = load_policy(tmp_path)
    assert again.parameters.keys() == policy.parameters.keys()
    assert again.parameters["value_net.weight"].any()
    np.testing.assert_array_equal(again.w0, policy.w0)


def rewritten(path: Path, **changes: Callable[[Any], object]) -> None:
    """Change members of a zip: the attributes of the model in ``data``, and ``policy_pth``."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    if "data" in changes:
        data = json.loads(members["data"])
        changes["data"](data)
        members["data"] = json.dumps(data).encode()
    if "policy_pth" in changes:
        members["policy.pth"] = changes["policy_pth"](members["policy.pth"])  # type: ignore[assignment]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


class _Bomb:
    """Fails the test when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return pytest.fail, ("something was unpickled",)


def test_nothing_in_a_zip_is_unpickled(tmp_path: Path) -> None:
    save_policy(tmp_path, slot_policy(), ARGS)
    bomb = pickle.dumps(_Bomb(), protocol=2)
    serialized = {":type:": "x", ":serialized:": base64.b64encode(bomb).decode()}
    rewritten(tmp_path / "policy.zip", data=lambda data: data.update(clip_range=serialized))
    assert load_policy(tmp_path).table is SET_POINTS
    rewritten(tmp_path / "policy.zip", policy_pth=lambda _: bomb)
    with pytest.raises(TrainingError, match="does not hold a trained policy"):
        load_policy(tmp_path)


def test_what_is_not_a_saved_policy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="does not hold a trained policy"):
        load_policy(tmp_path)
    save_policy(tmp_path, slot_policy(), ARGS)
    (tmp_path / "training.json").write_text("{}")
    with pytest.raises(TrainingError, match=r"training\.json does not hold a trained policy"):
        load_policy(tmp_path)
    (tmp_path / "policy.zip").write_bytes(b"PK torn")
    with pytest.raises(TrainingError, match="does not hold a trained policy"):
        load_policy(tmp_path)
    (tmp_path / "policy.zip").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(TrainingError, match=r"a Git LFS pointer.*git lfs pull"):
        load_policy(tmp_path)
    PPO("MlpPolicy", "CartPole-v1", device="cpu").save(other := io.BytesIO())
    (tmp_path / "policy.zip").write_bytes(other.getvalue())
    with pytest.raises(
        TrainingError, match=r"not one of `stallward train`\. Give the policy\.zip"
    ):
        load_policy(tmp_path)


def packed(members: dict[str, bytes], packing: int) -> bytes:
    """A zip of these members."""
    with zipfile.ZipFile(made := io.BytesIO(), "w", packing, compresslevel=1) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return made.getvalue()


def members_of(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_a_small_zip_that_holds_any_amount_is_refused(tmp_path: Path) -> None:
    save_policy(tmp_path, slot_policy(), ARGS)
    path = tmp_path / "policy.zip"
    members = members_of(path.read_bytes())
    huge = {"data": members["data"] + b" " * (64 << 20)}
    weights = {"policy.pth": packed(members_of(members["policy.pth"]), zipfile.ZIP_DEFLATED)}
    for changes, packing, said in (
        (huge, zipfile.ZIP_DEFLATED, r"data has \d+ bytes, more than 67108864"),
        ({}, zipfile.ZIP_BZIP2, "data is packed in another way"),
        (weights, zipfile.ZIP_STORED, "its weights are packed"),
    ):
        path.write_bytes(packed({**members, **changes}, packing))
        with pytest.raises(TrainingError, match=f"does not hold a trained policy: {said}"):
            read_zip(path)
    path.write_bytes(packed(members, zipfile.ZIP_DEFLATED))
    assert same_weights(read_zip(path).parameters, slot_policy().parameters)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("schema_hash", "0", "another schema"),
        ("schema", "[]", "another schema"),
        ("observation_low", "[0.0]", "training bounds for"),
        ("ticks_per_action", "often", "not a stallward policy"),
        ("partition", '{"moon": 1}', "'moon', which is not a threshold"),
    ],
)
def test_metadata_that_do_not_fit_are_refused(
    tmp_path: Path, key: str, value: str, said: str
) -> None:
    save_policy(tmp_path, slot_policy(), ARGS)

    def change(data: dict[str, Any]) -> None:
        data["stallward"]["metadata"][f"stallward.{key}"] = value

    rewritten(tmp_path / "policy.zip", data=change)
    with pytest.raises(TrainingError, match=rf"{said}.* Train again with `stallward train`"):
        load_policy(tmp_path)


def test_another_network_is_refused_with_the_first_difference(tmp_path: Path) -> None:
    save_policy(tmp_path, slot_policy(features=PHASES), ARGS)
    basic = tmp_path / "basic"
    save_policy(basic, slot_policy(), ARGS)
    notes = json.loads(zipfile.ZipFile(basic / "policy.zip").read("data"))["stallward"]
    rewritten(tmp_path / "policy.zip", data=lambda data: data.update({"stallward": notes}))
    with pytest.raises(TrainingError, match=r"network .* features_extractor\.fine is \d+ and not"):
        load_policy(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["zip", "notes"])
def test_whatever_a_zip_holds_is_read_or_refused(tmp_path: Path, part: str) -> None:
    save_policy(tmp_path, slot_policy(), ARGS)
    path = tmp_path / "policy.zip"
    whole = path.read_bytes()
    notes = json.loads(zipfile.ZipFile(path).read("data"))["stallward"]

    def run(content: bytes) -> object:
        path.write_bytes(content if part == "zip" else whole)
        if part == "notes":
            try:
                changed = json.loads(content)
            except ValueError:
                return None
            rewritten(path, data=lambda data: data.update({"stallward": changed}))
        return read_zip(path)

    target = Target(
        name=f"policy-{part}",
        run=run,
        material=Material(
            samples=(whole if part == "zip" else json.dumps(notes).encode(),), values=JSON_VALUES
        ),
        errors=(TrainingError,),
        names="policy.zip",
        check=lambda _content, _value: None,
    )
    rng = random.Random(1)
    understood = [try_input(target, make(draw(rng), target.material)) for _ in range(150)]
    assert not all(understood)
