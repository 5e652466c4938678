"""Policy files: a broken one is refused before its first decision."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from stallward.agent.controller import PolicyController
from stallward.agent.controllers.onnx import OnnxController
from stallward.agent.desired import ACTION_SIZES, RELEASED
from stallward.agent.errors import PolicyError
from stallward.agent.observation.encoder import (
    OBSERVATION_NAMES,
    OBSERVATION_SIZE,
    schema,
    schema_hash,
)
from stallward.agent.registry import make_controller
from stallward.agent.sample import SlotState
from stallward.agent.testing import CONTEXT, check_controller, make_sample

ZEROS = np.zeros(OBSERVATION_SIZE, dtype=np.float32)


def metadata() -> dict[str, str]:
    return {
        "stallward.schema_hash": schema_hash(),
        "stallward.schema": json.dumps(schema()),
        "stallward.ticks_per_action": "2",
        "stallward.observation_low": json.dumps([-1.0] * OBSERVATION_SIZE),
        "stallward.observation_high": json.dumps([3.0] * OBSERVATION_SIZE),
        "stallward.ood_limit": "0.2",
        "stallward.provenance": "{}",
    }


def write_policy(
    path: Path,
    entries: dict[str, str] | None = None,
    bias: float = 0.0,
    inputs: int = OBSERVATION_SIZE,
) -> Path:
    """A policy that pauses slot 0 when the zone's `full` share is above a half."""
    size = sum(ACTION_SIZES)
    weights = np.zeros((inputs, size), dtype=np.float32)
    weights[OBSERVATION_NAMES.index("zone_psi_memory_full_share"), 1] = 2.0
    biases = np.full(size, bias, dtype=np.float32)
    biases[0] += 1.0
    starts = np.cumsum((0, *ACTION_SIZES))
    nodes = [helper.make_node("Gemm", ["observation", "w", "b"], ["logits"])]
    parts = []
    for i, _ in enumerate(ACTION_SIZES):
        names = [f"s{i}", f"e{i}", "axis"]
        nodes.append(helper.make_node("Slice", ["logits", *names], [f"head{i}"]))
        nodes.append(helper.make_node("ArgMax", [f"head{i}"], [f"a{i}"], axis=1, keepdims=1))
        parts.append(f"a{i}")
    nodes.append(helper.make_node("Concat", parts, ["action"], axis=1))
    constants = [
        helper.make_tensor("w", TensorProto.FLOAT, weights.shape, weights.ravel()),
        helper.make_tensor("b", TensorProto.FLOAT, biases.shape, biases),
        helper.make_tensor("axis", TensorProto.INT64, [1], [1]),
    ]
    for i in range(len(ACTION_SIZES)):
        constants.append(helper.make_tensor(f"s{i}", TensorProto.INT64, [1], [starts[i]]))
        constants.append(helper.make_tensor(f"e{i}", TensorProto.INT64, [1], [starts[i + 1]]))
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info("observation", TensorProto.FLOAT, [1, inputs])],
        [
            helper.make_tensor_value_info("action", TensorProto.INT64, [1, len(ACTION_SIZES)]),
            helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, size]),
        ],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, metadata() if entries is None else entries)
    onnx.save(model, str(path))
    return path


def test_a_policy_conforms(tmp_path: Path) -> None:
    path = write_policy(tmp_path / "p.onnx")
    check_controller(lambda: OnnxController(path))


def test_a_policy_controller_has_the_path_digest_and_limit_of_its_file(tmp_path: Path) -> None:
    path = write_policy(tmp_path / "p.onnx")
    controller = make_controller(f"onnx:path={path}")
    assert isinstance(controller, PolicyController)
    assert controller.path == path
    assert controller.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert controller.ood_limit == 0.2


@pytest.mark.parametrize("name", ["none", "latd", "static", "remote", "excite"])
def test_other_controllers_are_not_policy_controllers(name: str) -> None:
    assert not isinstance(make_controller(name), PolicyController)


def test_an_action_is_held_and_then_inferred_anew(tmp_path: Path) -> None:
    controller = OnnxController(write_policy(tmp_path / "p.onnx"))
    controller.reset(CONTEXT)
    stalled = ZEROS.copy()
    stalled[OBSERVATION_NAMES.index("zone_psi_memory_full_share")] = 1.0
    paused = [
        controller.decide(make_sample(i), o).desired.slot(0).paused
        for i, o in enumerate([ZEROS, stalled, ZEROS, ZEROS, stalled])
    ]
    assert paused == [False, True, True, False, True]  # pausing is held, doing nothing is not


def test_a_policy_leaves_a_node_without_background_work_alone(tmp_path: Path) -> None:
    controller = OnnxController(write_policy(tmp_path / "p.onnx"))
    controller.reset(CONTEXT)
    stalled = ZEROS.copy()
    stalled[OBSERVATION_NAMES.index("zone_psi_memory_full_share")] = 1.0
    sample = make_sample(0)
    empty = replace(sample, slot_states=tuple(SlotState() for _ in sample.slots))
    assert controller.decide(sample, stalled).desired.slot(0).paused
    assert controller.decide(empty, stalled).desired == RELEASED


def test_the_score_is_the_share_of_features_outside_training(tmp_path: Path) -> None:
    controller = OnnxController(write_policy(tmp_path / "p.onnx"))
    controller.reset(CONTEXT)
    strange = ZEROS.copy()
    strange[:10] = 99.0
    assert controller.decide(make_sample(0), strange).score == pytest.approx(10 / OBSERVATION_SIZE)


def _other_schema(entries: dict[str, str]) -> None:
    other = schema()
    names = list(OBSERVATION_NAMES)
    names[3] = "moon_phase"
    other["names"] = names
    entries["stallward.schema"] = json.dumps(other)
    entries["stallward.schema_hash"] = "0" * 64


def _no_schema_hash(entries: dict[str, str]) -> None:
    del entries["stallward.schema_hash"]


def _short_bounds(entries: dict[str, str]) -> None:
    entries["stallward.observation_low"] = "[0.0]"


def _nan_bounds(entries: dict[str, str]) -> None:
    entries["stallward.observation_high"] = json.dumps([float("nan")] * OBSERVATION_SIZE)


def _nan_limit(entries: dict[str, str]) -> None:
    entries["stallward.ood_limit"] = "nan"


def _no_ticks(entries: dict[str, str]) -> None:
    entries["stallward.ticks_per_action"] = "0"


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (_nan_bounds, "not ranges"),
        (_nan_limit, "ood_limit"),
        (_no_ticks, "ticks_per_action"),
        (_other_schema, r"names\[3\] is 'moon_phase' in the policy and 'zone_psi_cpu_some_share'"),
        (_no_schema_hash, "not a stallward policy"),
        (_short_bounds, "training bounds"),
    ],
)
def test_a_policy_with_wrong_metadata_is_refused(
    tmp_path: Path, spoil: Callable[[dict[str, str]], None], complaint: str
) -> None:
    entries = metadata()
    spoil(entries)
    with pytest.raises(PolicyError, match=complaint):
        OnnxController(write_policy(tmp_path / "p.onnx", entries))


@pytest.mark.parametrize("content", [b"", b"not onnx", b"\x08\x07\x12\x00"])
def test_a_file_that_is_not_a_policy_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "p.onnx"
    path.write_bytes(content)
    with pytest.raises(PolicyError, match=r"p\.onnx"):
        OnnxController(path)


def test_a_no_schema_hash_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="cannot be read"):
        OnnxController(tmp_path / "none.onnx")


def test_a_policy_that_returns_nan_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="not finite"):
        OnnxController(write_policy(tmp_path / "p.onnx", bias=float("nan")))


def test_a_policy_with_another_input_size_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="does not run"):
        OnnxController(write_policy(tmp_path / "p.onnx", inputs=OBSERVATION_SIZE - 1))


def test_an_observation_with_nan_is_refused_and_named(tmp_path: Path) -> None:
    controller = OnnxController(write_policy(tmp_path / "p.onnx"))
    observation = ZEROS.copy()
    observation[OBSERVATION_NAMES.index("swap_in_rate")] = np.nan
    with pytest.raises(PolicyError, match="swap_in_rate"):
        controller.decide(make_sample(0), observation)
