"""Policy files: a broken one is refused before its first decision."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from policy_files import ZEROS, metadata, write_policy

from stallward.agent.believed_file import may_be_believed
from stallward.agent.controller import PolicyController
from stallward.agent.controllers import policy_file
from stallward.agent.controllers.onnx import OnnxController
from stallward.agent.desired import RELEASED
from stallward.agent.errors import PolicyError
from stallward.agent.observation.encoder import BASIC, OBSERVATION_NAMES, PHASES, schema
from stallward.agent.registry import make_controller
from stallward.agent.sample import SlotState
from stallward.agent.testing import CONTEXT, check_controller, make_sample


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
    stalled[BASIC.names.index("zone_psi_memory_full_share")] = 1.0
    paused = [
        controller.decide(make_sample(i), o).desired.slot(0).paused
        for i, o in enumerate([ZEROS, stalled, ZEROS, ZEROS, stalled])
    ]
    assert paused == [False, True, True, False, True]  # pausing is held, doing nothing is not


def test_a_policy_leaves_a_node_without_background_work_alone(tmp_path: Path) -> None:
    controller = OnnxController(write_policy(tmp_path / "p.onnx"))
    controller.reset(CONTEXT)
    stalled = ZEROS.copy()
    stalled[BASIC.names.index("zone_psi_memory_full_share")] = 1.0
    sample = make_sample(0)
    empty = replace(sample, slot_states=tuple(SlotState() for _ in sample.slots))
    assert controller.decide(sample, stalled).desired.slot(0).paused
    assert controller.decide(empty, stalled).desired == RELEASED


def test_the_score_is_the_share_of_features_outside_training(tmp_path: Path) -> None:
    controller = OnnxController(write_policy(tmp_path / "p.onnx"))
    controller.reset(CONTEXT)
    strange = ZEROS.copy()
    strange[:10] = 99.0
    assert controller.decide(make_sample(0), strange).score == pytest.approx(10 / BASIC.size)


def test_a_policy_reads_as_much_of_an_observation_as_its_schema_names(tmp_path: Path) -> None:
    phase = "slot0_since_phase_change"
    both = (
        OnnxController(write_policy(tmp_path / "basic.onnx")),
        OnnxController(write_policy(tmp_path / "phases.onnx", features=PHASES, sees=phase)),
    )
    observation = ZEROS.copy()
    observation[OBSERVATION_NAMES.index(phase)] = 5.0
    basic, phases = (policy.decide(make_sample(0), observation) for policy in both)
    assert not basic.desired.slot(0).paused
    assert basic.score == 0.0, "what it does not read is not outside its training"
    assert phases.desired.slot(0).paused
    assert phases.score == pytest.approx(1 / PHASES.size)
    assert [policy.metadata.features for policy in both] == [BASIC, PHASES]
    assert both[0].schema_hash != both[1].schema_hash


def _other_schema(entries: dict[str, str]) -> None:
    other = schema()
    names = list(BASIC.names)
    names[3] = "moon_phase"
    other["names"] = names
    entries["stallward.schema"] = json.dumps(other)
    entries["stallward.schema_hash"] = "0" * 64


def _no_schema_hash(entries: dict[str, str]) -> None:
    del entries["stallward.schema_hash"]


def _short_bounds(entries: dict[str, str]) -> None:
    entries["stallward.observation_low"] = "[0.0]"


def _nan_bounds(entries: dict[str, str]) -> None:
    entries["stallward.observation_high"] = json.dumps([float("nan")] * BASIC.size)


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


@pytest.mark.parametrize(
    ("content", "cause", "step"),
    [
        (b"", "is empty", "Copy or export"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:4d\n",
            "Git LFS",
            "git lfs pull",
        ),
        (b"<!doctype html><html>Sign in</html>", "HTML page", "Download the file itself"),
        (b"PK\x03\x04archive/data.pkl", "ZIP archive", "stallward export"),
        (b"\x80\x02}q\0X", "Python pickle", "stallward export"),
        (b"\x18\0\0\0ORTM\0\0", "format of ONNX Runtime", "stallward export"),
        (b"policy: 1\n", "not an ONNX model", "stallward export"),
    ],
)
def test_what_was_given_in_place_of_a_policy_is_named(
    tmp_path: Path, content: bytes, cause: str, step: str
) -> None:
    path = tmp_path / "p.onnx"
    path.write_bytes(content)
    with pytest.raises(PolicyError, match=cause) as caught:
        OnnxController(path)
    assert str(path) in caught.value.cause
    assert step in caught.value.next_step


def test_a_policy_cut_short_anywhere_is_refused(tmp_path: Path) -> None:
    path = write_policy(tmp_path / "p.onnx")
    whole = path.read_bytes()
    for length in range(1, len(whole), len(whole) // 40):
        path.write_bytes(whole[:length])
        with pytest.raises(PolicyError, match=r"p\.onnx") as caught:
            OnnxController(path)
        check_plain(caught.value)


def check_plain(error: PolicyError) -> None:
    """An error shows nothing of the C++ code of ONNX Runtime."""
    assert len(str(error).splitlines()) == 1
    for sign in (".cc", ".h:", "::", "ONNXRuntimeError", "std::"):
        assert sign not in str(error)


def changed(path: Path, change: Callable[[onnx.ModelProto], None]) -> Path:
    """The file of a policy with a change made to its model."""
    model = onnx.load(str(path))
    change(model)
    path.write_bytes(model.SerializeToString())
    return path


def _next_ir_version(model: onnx.ModelProto) -> None:
    model.ir_version = 99


def _next_opset(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = 999


def _unknown_operator(model: onnx.ModelProto) -> None:
    model.graph.node[0].op_type = "Ponder"


def _loose_end(model: onnx.ModelProto) -> None:
    model.graph.node[0].input[0] = "nowhere"


def _other_kind_of_weights(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].data_type = TensorProto.STRING


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (_next_ir_version, "its IR version is 99, and this ONNX Runtime reads up to"),
        (_next_opset, "its opset is 999, and this ONNX Runtime knows up to"),
        (_unknown_operator, "uses what no policy may: Ponder"),
        (_loose_end, "p.onnx"),
        (_other_kind_of_weights, "p.onnx"),
    ],
)
def test_a_model_that_the_runtime_refuses_is_explained_without_its_code(
    tmp_path: Path, change: Callable[[onnx.ModelProto], None], cause: str
) -> None:
    with pytest.raises(PolicyError) as caught:
        OnnxController(changed(write_policy(tmp_path / "p.onnx"), change))
    assert cause in caught.value.cause
    check_plain(caught.value)


def _branch(model: onnx.ModelProto) -> None:
    inner = helper.make_graph([helper.make_node("Loop", ["w"], ["y"])], "inner", [], [])
    model.graph.node.append(helper.make_node("If", ["w"], ["z"], then_branch=inner))


def _foreign(model: onnx.ModelProto) -> None:
    model.graph.node[0].domain = "com.example"


def _dice(model: onnx.ModelProto) -> None:
    model.graph.node.append(helper.make_node("RandomNormal", [], ["z"], shape=[1]))


def _functions(model: onnx.ModelProto) -> None:
    model.functions.add(name="Gemm", domain="")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (_branch, "If, Loop"),
        (_foreign, "Gemm of com.example"),
        (_dice, "RandomNormal"),
        (_functions, "functions of its own"),
    ],
)
def test_a_network_that_is_more_than_arithmetic_is_refused_before_it_runs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[onnx.ModelProto], None],
    named: str,
) -> None:
    path = changed(write_policy(tmp_path / "p.onnx"), change)
    monkeypatch.setattr(
        "stallward.agent.controllers.onnx.import_runtime", lambda: pytest.fail("it is opened")
    )
    with pytest.raises(PolicyError, match=f"uses what no policy may: {named}"):
        OnnxController(path)


def test_a_field_that_other_readers_see_under_another_number_is_refused(tmp_path: Path) -> None:
    """Protobuf cuts a tag of five bytes off at 32 bits: a node could be hidden behind one."""
    path = write_policy(tmp_path / "p.onnx")
    hidden = helper.make_node("If", ["w"], ["z"]).SerializeToString()
    tag = bytes((0x8A, 0x80, 0x80, 0x80, 0x10))  # field 1 of the graph, and bit 32
    graph = tag + bytes((len(hidden),)) + hidden
    path.write_bytes(path.read_bytes() + bytes((0x3A, len(graph))) + graph)
    with pytest.raises(PolicyError, match="impossible number"):
        OnnxController(path)


def test_a_policy_that_fails_inside_its_training_bounds_is_refused_at_once(
    tmp_path: Path,
) -> None:
    def steep(model: onnx.ModelProto) -> None:
        weights = next(t for t in model.graph.initializer if t.name == "w")
        huge = np.full(numpy_helper.to_array(weights).shape, 3e38, dtype=np.float32)
        weights.CopyFrom(numpy_helper.from_array(huge, "w"))

    with pytest.raises(PolicyError, match="not finite"):
        OnnxController(changed(write_policy(tmp_path / "p.onnx"), steep))


def test_a_policy_that_is_too_slow_for_a_tick_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stallward.agent.controllers.onnx.MAX_INFERENCE_S", 0.0)
    with pytest.raises(PolicyError, match="ms for an action, and at most"):
        OnnxController(write_policy(tmp_path / "p.onnx"))


def _outside(model: onnx.ModelProto, location: str) -> None:
    tensor = model.graph.initializer[0]
    tensor.ClearField("float_data")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)


@pytest.mark.parametrize(
    "location", ["p.onnx.data", "../p.onnx.data", "/etc/passwd", "a/../../x", "", "\x00"]
)
def test_weights_in_another_file_are_refused_wherever_that_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: str
) -> None:
    # A model that is read from memory would find it in the working folder.
    (tmp_path / "p.onnx.data").write_bytes(bytes(1 << 20))
    monkeypatch.chdir(tmp_path)
    path = changed(write_policy(tmp_path / "p.onnx"), lambda model: _outside(model, location))
    with pytest.raises(PolicyError, match="in other files") as caught:
        OnnxController(path)
    assert repr(location) in caught.value.cause


def test_the_command_that_a_policy_in_two_files_is_refused_with_makes_it_one(
    tmp_path: Path,
) -> None:
    path = write_policy(tmp_path / "p.onnx")
    model = onnx.load(str(path))
    for tensor in model.graph.initializer:  # only raw data can be kept elsewhere
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))
    onnx.save(
        model,
        str(path),
        save_as_external_data=True,
        all_tensors_to_one_file=True,
        location="p.onnx.data",
        size_threshold=0,
    )
    with pytest.raises(PolicyError, match=r"in other files \('p\.onnx\.data'\)") as caught:
        OnnxController(path)
    _, _, command = caught.value.next_step.partition('python3 -c "')
    subprocess.run([sys.executable, "-c", command.removesuffix('"')], check=True)
    (tmp_path / "p.onnx.data").unlink()
    check_controller(lambda: OnnxController(path))


def test_tensors_are_looked_for_in_every_part_of_a_model_that_can_hold_one() -> None:
    def parts(message: Any) -> dict[int, str]:
        return {
            field.number: field.message_type.name
            for field in message.fields
            if field.message_type is not None and "TensorProto" in reachable(field.message_type)
        }

    def reachable(message: Any, seen: frozenset[str] = frozenset()) -> frozenset[str]:
        if message.name in seen:
            return seen
        seen |= {message.name}
        for field in message.fields:
            if field.message_type is not None:
                seen |= reachable(field.message_type, seen)
        return seen

    found: dict[str, dict[int, str]] = {}
    left: list[Any] = [onnx.ModelProto.DESCRIPTOR]
    while left:
        message = left.pop()
        if message.name not in found and message.name != "TensorProto":
            found[message.name] = parts(message)
            left += [f.message_type for f in message.fields if f.number in found[message.name]]
    known = {name: fields for name, fields in policy_file._PARTS.items() if name != "TensorProto"}
    assert known == found
    tensor = TensorProto.DESCRIPTOR.fields_by_name
    assert (tensor["external_data"].number, tensor["data_location"].number) == (13, 14)


def test_a_model_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    nested = b""
    for _ in range(3000):  # a graph in the attribute of a node, again and again
        for tag in (0x32, 0x2A, 0x0A):
            nested = bytes([tag]) + _varint(len(nested)) + nested
    path = tmp_path / "p.onnx"
    path.write_bytes(b"\x3a" + _varint(len(nested)) + nested)
    with pytest.raises(PolicyError, match="nested too deeply"):
        OnnxController(path)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def test_a_policy_larger_than_the_bound_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "p.onnx"
    with path.open("wb") as file:
        file.truncate(policy_file.MAX_POLICY_BYTES + 1)
    with pytest.raises(PolicyError, match="at most 67108864 are read"):
        OnnxController(path)


def test_what_never_ends_or_waits_for_a_writer_is_no_policy(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p.onnx")
    for path in (tmp_path / "p.onnx", Path("/dev/zero"), tmp_path):
        with pytest.raises(PolicyError, match=r"regular file|Is a directory"):
            OnnxController(path)


def status(uid: int, gid: int, mode: int) -> os.stat_result:
    return os.stat_result((stat.S_IFREG | mode, 1, 1, 1, uid, gid, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("file", "program", "guarded"),
    [
        ((0, 0, 0o644), (0, 0, 0o644), True),
        ((0, 0, 0o666), (0, 0, 0o644), False),
        ((0, 50, 0o664), (0, 0, 0o644), False),
        ((1000, 1000, 0o644), (0, 0, 0o644), False),
        ((1000, 1000, 0o600), (0, 0, 0o644), False),
        # Run from a user's own installation, as with sudo .venv/bin/stallward.
        ((1000, 1000, 0o644), (1000, 1000, 0o644), True),
        ((1000, 1000, 0o664), (1000, 1000, 0o664), True),
        ((1000, 1001, 0o664), (1000, 1000, 0o664), False),
        ((1001, 1001, 0o644), (1000, 1000, 0o644), False),
        ((1000, 1000, 0o646), (1000, 1000, 0o646), False),
    ],
)
def test_root_takes_a_policy_guarded_as_well_as_the_program(
    file: tuple[int, int, int],
    program: tuple[int, int, int],
    guarded: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert may_be_believed(status(*file), status(*program)) == guarded


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is refused what others wrote")
def test_root_refuses_a_policy_that_others_can_write(tmp_path: Path) -> None:
    path = write_policy(tmp_path / "p.onnx")
    path.chmod(0o666)
    with pytest.raises(PolicyError, match="mode 666, so others may have written it"):
        OnnxController(path)
    path.chmod(0o644)
    OnnxController(path)


def test_a_missing_policy_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="cannot be read"):
        OnnxController(tmp_path / "none.onnx")


def test_a_policy_that_returns_nan_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="not finite"):
        OnnxController(write_policy(tmp_path / "p.onnx", bias=float("nan")))


def test_a_policy_with_another_input_size_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="does not run"):
        OnnxController(write_policy(tmp_path / "p.onnx", inputs=BASIC.size - 1))


def test_an_observation_with_nan_is_refused_and_named(tmp_path: Path) -> None:
    controller = OnnxController(write_policy(tmp_path / "p.onnx"))
    observation = ZEROS.copy()
    observation[BASIC.names.index("swap_in_rate")] = np.nan
    with pytest.raises(PolicyError, match="swap_in_rate"):
        controller.decide(make_sample(0), observation)
