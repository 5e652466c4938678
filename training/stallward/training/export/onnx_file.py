"""Export of a trained policy to one ONNX file that any node runs, with its card, and back.

The graph is built by hand, without an exporter: it has a few kilobytes, and the same weights give
the same bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from stallward.agent.errors import PolicyError
from stallward.models.registry import load_policy
from stallward.training.errors import ExportError, TrainingError
from stallward.training.export.card import card
from stallward.training.network.arrays import CLIP, TrainedPolicy, metadata_of

OPSET: Final = 17
IR_VERSION: Final = 8
_WEIGHTS: Final = ("fine", "mean", "scale", "w0", "b0", "w1", "b1", "w2", "b2")
"""What a policy and its graph call by the same name."""


def build_model(policy: TrainedPolicy) -> onnx.ModelProto:
    """The policy as an ONNX model, with all the metadata that a node checks."""
    sizes = policy.table.sizes
    log_ranges = np.log(np.where(policy.fine > 0.0, 1.0 + policy.fine, np.e))
    constants = {
        "fine": policy.fine,
        "one": np.array(1.0, dtype=np.float32),
        # A feature without a log scale has the logarithm 0, and is added unchanged.
        "unit": log_ranges.astype(np.float32),
        "plain": (policy.fine == 0.0).astype(np.float32),
        "mean": policy.mean,
        "scale": policy.scale,
        "clip_low": np.array(-CLIP, dtype=np.float32),
        "clip_high": np.array(CLIP, dtype=np.float32),
        "w0": policy.w0,
        "b0": policy.b0,
        "w1": policy.w1,
        "b1": policy.b1,
        "w2": policy.w2,
        "b2": policy.b2,
        "head_sizes": np.array(sizes, dtype=np.int64),
    }
    heads = [f"head{i}" for i in range(len(sizes))]
    choices = [f"best{i}" for i in range(len(sizes))]
    nodes = [
        helper.make_node("Relu", ["observation"], ["positive"]),
        helper.make_node("Mul", ["positive", "fine"], ["larger"]),
        helper.make_node("Add", ["larger", "one"], ["above_one"]),
        helper.make_node("Log", ["above_one"], ["logarithm"]),
        helper.make_node("Div", ["logarithm", "unit"], ["magnified"]),
        helper.make_node("Mul", ["observation", "plain"], ["as_it_is"]),
        helper.make_node("Add", ["magnified", "as_it_is"], ["seen"]),
        helper.make_node("Sub", ["seen", "mean"], ["centred"]),
        helper.make_node("Div", ["centred", "scale"], ["scaled"]),
        helper.make_node("Clip", ["scaled", "clip_low", "clip_high"], ["clipped"]),
        helper.make_node("Gemm", ["clipped", "w0", "b0"], ["hidden0"], transB=1),
        helper.make_node("Tanh", ["hidden0"], ["active0"]),
        helper.make_node("Gemm", ["active0", "w1", "b1"], ["hidden1"], transB=1),
        helper.make_node("Tanh", ["hidden1"], ["active1"]),
        helper.make_node("Gemm", ["active1", "w2", "b2"], ["logits"], transB=1),
        helper.make_node("Split", ["logits", "head_sizes"], heads, axis=1),
        *(
            helper.make_node("ArgMax", [head], [choice], axis=1, keepdims=1)
            for head, choice in zip(heads, choices, strict=True)
        ),
        helper.make_node("Concat", choices, ["action"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "stallward-policy",
        [
            helper.make_tensor_value_info(
                "observation", TensorProto.FLOAT, [1, policy.features.size]
            )
        ],
        [
            helper.make_tensor_value_info("action", TensorProto.INT64, [1, len(sizes)]),
            helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, sum(sizes)]),
        ],
        [numpy_helper.from_array(np.ascontiguousarray(v), k) for k, v in constants.items()],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )
    model.producer_name = "stallward"
    helper.set_model_props(model, metadata_of(policy))
    onnx.checker.check_model(model, full_check=True)
    return model


def export_policy(policy: TrainedPolicy, path: Path) -> str:
    """Write the ONNX file and its card (``.md`` beside it), and return the file's SHA-256.

    Both are written only after the file was loaded and run in the same way as on a node.

    Raises:
        ExportError: If the result does not run or cannot be written.
    """
    payload = build_model(policy).SerializeToString(deterministic=True)
    building = path.with_name(f".{path.stem}.{os.getpid()}.partial.onnx")
    digest = hashlib.sha256(payload).hexdigest()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        building.write_bytes(payload)
        metadata = load_policy(building).metadata
        path.with_suffix(".md").write_text(
            card(path.stem, metadata, len(payload)), encoding="utf-8"
        )
        building.replace(path)
    except OSError as error:
        raise ExportError(f"The policy could not be written to {path}: {error}.") from error
    except PolicyError as error:
        raise ExportError(f"The exported policy does not run: {error}") from error
    finally:
        with contextlib.suppress(OSError):
            building.unlink()
    return digest


def read_policy(path: Path) -> TrainedPolicy:
    """Read the policy in a file that :func:`export_policy` wrote; its parameters are not there.

    Raises:
        PolicyError: If it is not a policy that runs here.
        ExportError: If its graph is another one, so that its weights do not say what it computes.
    """
    metadata = load_policy(path).metadata
    graph = onnx.load(path).graph
    found = _constants(graph)
    try:
        weights: dict[str, Any] = {name: found[name] for name in _WEIGHTS}
        policy = TrainedPolicy(
            **weights,
            low=np.array(metadata.observation_low, dtype=np.float32),
            high=np.array(metadata.observation_high, dtype=np.float32),
            table=metadata.table,
            features=metadata.features,
            partition=metadata.partition,
            ticks_per_action=metadata.ticks_per_action,
            provenance=metadata.provenance,
        )
    except (KeyError, TrainingError) as error:
        raise _other_graph(path) from error
    again = build_model(policy).graph
    constants = _constants(again)
    # What follows from the weights may be rounded in another way on another processor.
    if list(graph.node) != list(again.node) or not all(
        name in found and np.allclose(found[name], array, rtol=1e-6, atol=0.0)
        for name, array in constants.items()
    ):
        raise _other_graph(path)
    return policy


def _constants(graph: onnx.GraphProto) -> dict[str, NDArray[Any]]:
    return {one.name: np.array(numpy_helper.to_array(one)) for one in graph.initializer}


def _other_graph(path: Path) -> ExportError:
    return ExportError(
        f"The weights in {path} cannot be read back: its graph is not one that `stallward export` "
        "writes.",
        next_step="Give the run that it was exported from, or the policy.zip in it.",
    )
