"""The memory of a policy is known before anything runs it, and has a bound."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from policy_files import ZEROS, write_policy

from stallward.agent.controllers import policy_shapes
from stallward.agent.controllers.onnx import OnnxController
from stallward.agent.controllers.policy_shapes import (
    MOST_BYTES,
    RULES,
    check_shapes,
    read_graph,
    tensor_bytes,
)
from stallward.agent.errors import PolicyError
from stallward.agent.inference import import_runtime
from stallward.agent.testing import make_sample
from stallward.models.registry import find_policy

INPUTS = 6


def model_of(
    nodes: Sequence[onnx.NodeProto], opset: int = 18, **constants: Any
) -> onnx.ModelProto:
    """A model of some nodes that reads ``observation`` and returns the last result."""
    last = nodes[-1].output[0]
    graph = helper.make_graph(
        list(nodes),
        "policy",
        [helper.make_tensor_value_info("observation", TensorProto.FLOAT, [1, INPUTS])],
        [onnx.ValueInfoProto(name=last)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def node(operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> onnx.NodeProto:
    names = [f"y{i}" for i in range(outputs)]
    return helper.make_node(operator, ["observation", *inputs], names, **attributes)


ONE = {"v": np.float32(0.5)}
ROW = {"v": np.ones((3, 1), np.float32)}
AXES = {"v": np.array([1])}
CASES = [
    *(
        (name, node(name), {})
        for name in RULES
        if RULES[name] is policy_shapes._same
        and name
        not in {"BatchNormalization", "Cast", "Gelu", "IsNaN", "LayerNormalization", "Not"}
    ),
    *(
        (name, node(name, "v"), ROW)
        for name in (
            "Add",
            "Div",
            "Max",
            "Mean",
            "Min",
            "Mul",
            "Pow",
            "Sub",
            "Sum",
            "Equal",
            "Greater",
            "GreaterOrEqual",
            "Less",
            "LessOrEqual",
        )
    ),
    ("PRelu", node("PRelu", "v"), ONE),
    ("Cast", node("Cast", to=TensorProto.INT64), {}),
    ("IsNaN", node("IsNaN"), {}),
    ("LayerNormalization", node("LayerNormalization", "v"), {"v": np.ones(INPUTS, np.float32)}),
    (
        "BatchNormalization",
        node("BatchNormalization", *"vvvv"),
        {"v": np.ones(INPUTS, np.float32)},
    ),
    ("Gemm", node("Gemm", "v"), {"v": np.ones((INPUTS, 4), np.float32)}),
    ("Gemm", node("Gemm", "v", transA=1, transB=1), {"v": np.ones((4, 1), np.float32)}),
    ("MatMul", node("MatMul", "v"), {"v": np.ones((INPUTS, 4), np.float32)}),
    ("MatMul", node("MatMul", "v"), {"v": np.ones(INPUTS, np.float32)}),
    ("MatMul", node("MatMul", "v"), {"v": np.ones((5, 2, INPUTS, 4), np.float32)}),
    *(
        (name, node(name, "v"), AXES)
        for name in ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum")
    ),
    ("ReduceSum", node("ReduceSum", "v", keepdims=0), {"v": np.array([-1])}),
    ("ReduceSum", node("ReduceSum"), {}),
    ("ReduceSum", node("ReduceSum", "v"), {"v": np.array([], np.int64)}),
    ("ArgMax", node("ArgMax", axis=1), {}),
    ("ArgMin", node("ArgMin", axis=-1, keepdims=0), {}),
    ("Concat", node("Concat", "observation", axis=1), {}),
    ("Concat", node("Concat", "observation", axis=-2), {}),
    ("Expand", node("Expand", "v"), {"v": np.array([2, 3, 1])}),
    ("Flatten", node("Flatten"), {}),
    ("Flatten", node("Flatten", axis=0), {}),
    ("Flatten", node("Flatten", axis=-1), {}),
    ("Gather", node("Gather", "v", axis=1), {"v": np.array([[0, 1], [2, 3]])}),
    ("Reshape", node("Reshape", "v"), {"v": np.array([2, -1])}),
    ("Reshape", node("Reshape", "v"), {"v": np.array([0, 3, 2])}),
    ("Slice", node("Slice", "v", "w"), {"v": np.array([0, 1]), "w": np.array([1, 4])}),
    (
        "Slice",
        node("Slice", "v", "w", "x"),
        {"v": np.array([-3]), "w": np.array([99]), "x": np.array([1])},
    ),
    (
        "Slice",
        node("Slice", "v", "w", "x", "z"),
        {"v": np.array([-1]), "w": np.array([-99]), "x": np.array([-1]), "z": np.array([-2])},
    ),
    ("Split", node("Split", "v", outputs=2, axis=1), {"v": np.array([2, 4])}),
    ("Split", node("Split", outputs=3, axis=1, num_outputs=3), {}),
    ("Squeeze", node("Squeeze"), {}),
    ("Squeeze", node("Squeeze", "v"), {"v": np.array([-2])}),
    ("Tile", node("Tile", "v"), {"v": np.array([3, 2])}),
    ("Transpose", node("Transpose"), {}),
    ("Transpose", node("Transpose", perm=[0, 1]), {}),
    ("Unsqueeze", node("Unsqueeze", "v"), {"v": np.array([0, -1])}),
]
NOT_RUN = {"And", "Gelu", "Not", "Or", "Where"}
"""Operators of the same rules as others, which need another type or a newer set."""


def test_every_operator_has_a_case() -> None:
    assert {name for name, *_ in CASES} | NOT_RUN == set(RULES)


@pytest.mark.parametrize(("name", "step", "constants"), CASES)
def test_a_shape_is_that_which_the_runtime_makes(
    name: str, step: onnx.NodeProto, constants: dict[str, Any], tmp_path: Path
) -> None:
    model = model_of([step], **constants)
    session = import_runtime().InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    made = session.run([step.output[0]], {"observation": np.ones((1, INPUTS), np.float32)})[0]
    if len(step.output) == 1:
        size_bytes = tensor_bytes(read_graph(model.SerializeToString()))
        given = sum(np.asarray(value).nbytes for value in constants.values())
        assert size_bytes == given + 8 * INPUTS + 8 * made.size
    graph = read_graph(model.SerializeToString())
    shapes = {one: constant.shape for one, constant in graph.constants.items()}
    results = policy_shapes._results(
        graph.nodes[0], {**shapes, "observation": (1, INPUTS)}, dict(graph.constants)
    )
    assert results[0] == made.shape, name
    check_shapes(tmp_path, model.SerializeToString())


def added(*nodes: onnx.NodeProto, **constants: Any) -> Any:
    """A change that adds nodes to a policy, whose results nobody uses."""

    def change(model: onnx.ModelProto) -> None:
        model.graph.node.extend(nodes)
        for name, value in constants.items():
            model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))

    return change


def sparse(model: onnx.ModelProto) -> None:
    values = helper.make_tensor("huge", TensorProto.FLOAT, [1], [1.0])
    places = helper.make_tensor("places", TensorProto.INT64, [1], [0])
    model.graph.sparse_initializer.append(
        helper.make_sparse_tensor(values, places, [1 << 20, 1 << 20])
    )


def constant(**attributes: Any) -> onnx.NodeProto:
    """A ``Constant`` named ``to``; the digits behind the names of attributes are left out."""
    made = helper.make_node("Constant", [], ["to"])
    for name, value in attributes.items():
        given = numpy_helper.from_array(np.array(value)) if name[:-1] == "value" else value
        made.attribute.append(helper.make_attribute(name[:-1], given))
    return made


HUGE = 160 << 20
TO_HUGE = helper.make_node("Expand", ["one", "to"], ["z"])
HOSTILE = [
    (added(helper.make_node("Expand", ["one", "to"], ["z"]), one=np.ones(1, np.float32), to=[HUGE // 4]),
     "bytes or more"),
    (added(helper.make_node("Tile", ["one", "to"], ["z"]), one=np.ones(1, np.float32), to=[HUGE // 4]),
     "bytes or more"),
    (added(helper.make_node("Add", ["row", "column"], ["z"]),
           row=np.ones((1, 5000), np.float32), column=np.ones((5000, 1), np.float32)),
     "bytes or more"),
    (added(helper.make_node("MatMul", ["column", "row"], ["z"]),
           row=np.ones((1, 5000), np.float32), column=np.ones((5000, 1), np.float32)),
     "bytes or more"),
    (added(helper.make_node("Gather", ["row", "many"], ["z"], axis=0),
           row=np.ones((1, 5000), np.float32), many=np.zeros(5000, np.int64)),
     "bytes or more"),
    (added(*(helper.make_node("Concat", [f"z{i}"] * 2, [f"z{i + 1}"], axis=0) for i in range(40)),
           z0=np.ones(1, np.float32)),
     "bytes or more"),
    (added(helper.make_node("Cast", ["logits"], ["size"], to=TensorProto.INT64),
           helper.make_node("Expand", ["one", "size"], ["z"]), one=np.ones(1, np.float32)),
     "its shape is no constant"),
    (added(helper.make_node("ArgMax", ["logits"], ["size"], axis=1, keepdims=0),
           helper.make_node("Slice", ["w", "zero", "size"], ["z"]), zero=[0]),
     "its shape is no constant"),
    (added(helper.make_node("Relu", ["later"], ["z"]), helper.make_node("Relu", ["w"], ["later"])),
     "used before it is made"),
    (added(helper.make_node("Relu", ["w"], ["logits"])), "two tensors are named"),
    (sparse, "sparse weights"),
    (added(constant(value1=[HUGE // 4], value2=[1]), TO_HUGE, one=np.ones(1, np.float32)),
     "two attributes of one name"),
    (added(constant(value_ints1=[HUGE // 4], value1=[1]), TO_HUGE, one=np.ones(1, np.float32)),
     "a constant with 2 attributes"),
    (added(constant(), TO_HUGE, one=np.ones(1, np.float32)), "a constant with 0 attributes"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "why"), HOSTILE)
def test_a_policy_that_takes_any_amount_of_memory_is_refused_before_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Any, why: str
) -> None:
    path = write_policy(tmp_path / "p.onnx")
    model = onnx.load(str(path))
    change(model)
    onnx.save(model, str(path))
    monkeypatch.setattr(
        "stallward.agent.controllers.onnx.import_runtime", lambda: pytest.fail("it is opened")
    )
    with pytest.raises(PolicyError, match=why):
        OnnxController(path)


def test_the_shipped_policy_takes_a_hundredth_of_what_it_may() -> None:
    assert tensor_bytes(read_graph(Path(find_policy()).read_bytes())) < MOST_BYTES / 100


def test_a_constant_may_be_given_by_a_node_too() -> None:
    given = helper.make_node("Constant", [], ["to"], value_ints=[2, 3])
    steps = [given, helper.make_node("Reshape", ["observation", "to"], ["y"])]
    assert tensor_bytes(read_graph(model_of(steps).SerializeToString())) == 8 * (6 + 2 + 6)


def test_nothing_is_inferred_from_what_is_too_far_from_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = OnnxController(write_policy(tmp_path / "p.onnx"))
    monkeypatch.setattr(controller, "_run", lambda _seen: pytest.fail("it is inferred"))
    decision = controller.decide(make_sample(), ZEROS + 9.0)
    assert decision.score is not None
    assert decision.score > controller.ood_limit
    assert not any(decision.action or ())
