"""Small policy files for tests: a network of one layer, for either action table."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from stallward.agent.action_table import LEVELS, SET_POINTS, ActionTable
from stallward.agent.control_law.thresholds import as_values
from stallward.agent.controllers.partition import PartitionThresholds
from stallward.agent.observation.encoder import (
    BASIC,
    OBSERVATION_SIZE,
    FeatureSet,
    schema,
    schema_hash,
)

ZEROS = np.zeros(OBSERVATION_SIZE, dtype=np.float32)


def metadata(table: ActionTable = LEVELS, features: FeatureSet = BASIC) -> dict[str, str]:
    """The metadata of a policy; one of set-points holds for longer, and has numbers."""
    numbers = json.dumps(as_values(PartitionThresholds()))
    return {
        "stallward.schema_hash": schema_hash(table, features),
        "stallward.schema": json.dumps(schema(table, features)),
        **({"stallward.partition": numbers} if table is SET_POINTS else {}),
        "stallward.ticks_per_action": "2",
        "stallward.observation_low": json.dumps([-1.0] * features.size),
        "stallward.observation_high": json.dumps([3.0] * features.size),
        "stallward.ood_limit": "0.2",
        "stallward.provenance": "{}",
    }


def write_policy(
    path: Path,
    entries: dict[str, str] | None = None,
    bias: float = 0.0,
    inputs: int | None = None,
    *,
    table: ActionTable = LEVELS,
    features: FeatureSet = BASIC,
    sees: str = "zone_psi_memory_full_share",
    calm: float = 1.0,
) -> Path:
    """A policy that holds slot 0 back when what it sees is above half of ``calm``.

    In the table of limit levels it pauses the slot; as a set-point, the slot is to wait.
    """
    sizes, inputs = table.sizes, inputs or features.size
    size = sum(sizes)
    weights = np.zeros((inputs, size), dtype=np.float32)
    weights[features.names.index(sees), 1] = 2.0
    biases = np.full(size, bias, dtype=np.float32)
    biases[0] += calm
    starts = np.cumsum((0, *sizes))
    nodes = [helper.make_node("Gemm", ["observation", "w", "b"], ["logits"])]
    parts = []
    for i, _ in enumerate(sizes):
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
    for i in range(len(sizes)):
        constants.append(helper.make_tensor(f"s{i}", TensorProto.INT64, [1], [starts[i]]))
        constants.append(helper.make_tensor(f"e{i}", TensorProto.INT64, [1], [starts[i + 1]]))
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info("observation", TensorProto.FLOAT, [1, inputs])],
        [
            helper.make_tensor_value_info("action", TensorProto.INT64, [1, len(sizes)]),
            helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, size]),
        ],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, metadata(table, features) if entries is None else entries)
    onnx.save(model, str(path))
    return path
