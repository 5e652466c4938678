"""Targets: recordings, fitted twins, policies and results of comparisons."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from fuzz_mutations import JSON_VALUES, Material
from fuzz_target import Folder, Target, sound, sound_signed
from fuzz_targets_files import make_tick, of_file
from google.protobuf.message import DecodeError
from onnx import ModelProto, TensorProto, helper
from onnx.external_data_helper import _get_all_tensors
from onnx.shape_inference import infer_shapes

from stallward.agent.action_table import SET_POINTS
from stallward.agent.control_law.thresholds import as_values, spans
from stallward.agent.controllers.partition import PartitionThresholds
from stallward.agent.controllers.policy_file import read_policy
from stallward.agent.controllers.policy_metadata import parse_metadata
from stallward.agent.controllers.policy_shapes import check_shapes, read_graph, tensor_bytes
from stallward.agent.errors import ControllerError, PolicyError
from stallward.agent.observation.encoder import BASIC, schema, schema_hash
from stallward.env.errors import RecordingError, TwinError
from stallward.env.recording.recording import Requests, Units, load_recording, write_recording
from stallward.env.recording.run_info import NodeInfo, RunInfo
from stallward.env.twin.inputs.exogenous import Exogenous, ProtectedProgram, SlotProgram
from stallward.env.twin.inputs.fitted import FittedTwin, load_fitted, save_fitted
from stallward.env.twin.inputs.parameters import TwinParameters
from stallward.evaluation.errors import ResultError
from stallward.evaluation.results.comparison import ComparisonResult
from stallward.evaluation.results.serialise import from_json, load, to_json
from stallward.papers.controllers.contention import read_contention
from stallward.research.verdict.result import Verdict

_SAMPLES: Final = Path(__file__).parent / "samples"
_RUN: Final = RunInfo(
    scenario="detector-anon",
    condition="together",
    arm="none",
    seed=3,
    start_s=100.0,
    end_s=104.0,
    burn_in_s=0.0,
    sandbox_bytes=600 << 20,
    slo_ms=20.0,
    node=NodeInfo(kind="hybrid", kernel="6.18", cpu_count=2, memory_total_bytes=8 << 30),
    slot_names=("a",),
    scenario_parameters={"protected": {"slo": {"quantile": 0.95}}},
)


def _recordings() -> tuple[Target, ...]:
    """Targets that read a recording in which the input replaces one file."""
    folder = Folder()
    times = np.linspace(100.0, 103.9, 40)
    requests = Requests(
        scheduled_s=times, start_s=times + 0.001, end_s=times + 0.01, ok=np.ones(40, dtype=bool)
    )
    units = Units(slot=np.zeros(4, dtype=np.int32), time_s=times[:4], units=np.arange(4.0))
    whole = folder.path / "whole"
    write_recording(
        whole, run=_RUN, ticks=[make_tick(i) for i in range(4)], requests=requests, units=units
    )

    def target(name: str, values: tuple[bytes, ...] = (), slow: int = 4) -> Target:
        copy = folder.path / name.partition(".")[0]
        shutil.copytree(whole, copy)

        def run(content: bytes) -> Any:
            (copy / name).write_bytes(content)
            return load_recording(copy)

        samples = (_without_checksums(whole / name), (whole / name).read_bytes())
        return Target(
            name=f"recording-{name}",
            run=run,
            material=Material(samples=samples, values=values),
            errors=(RecordingError,),
            names=copy.name,
            check=_recording_check,
            slow=slow,
        )

    return (
        target("run.json", JSON_VALUES),
        target("ticks.parquet"),
        target("requests.parquet"),
        target("units.parquet"),
        target("actions.parquet"),
    )


def _without_checksums(file: Path) -> bytes:
    """The content of a file, without checksums of Parquet pages that would refuse any change."""
    if file.suffix != ".parquet":
        return file.read_bytes()
    table = pq.read_table(file)
    integers = [field.name for field in table.schema if pa.types.is_integer(field.type)]
    encoding = dict.fromkeys(integers, "DELTA_BINARY_PACKED")
    out = pa.BufferOutputStream()
    pq.write_table(table, out, compression="zstd", use_dictionary=False, column_encoding=encoding)
    return bytes(out.getvalue().to_pybytes())


def _recording_check(_content: bytes, value: Any) -> None:
    run = value.run
    assert all(isinstance(name, str) for name in run.slot_names)
    for number in (run.start_s, run.end_s, run.burn_in_s, run.slo_ms, run.slo_quantile):
        assert isinstance(number, int | float)
        assert np.isfinite(number)
    for number in (run.sandbox_bytes, run.seed, run.oom_kills, run.node.memory_total_bytes):
        assert isinstance(number, int)
        assert number >= 0
    sizes = {getattr(value.requests, n).size for n in ("scheduled_s", "start_s", "end_s", "ok")}
    assert len(sizes) == 1
    assert np.isfinite(value.requests.sojourn_ms).all()
    assert len({value.units.slot.size, value.units.time_s.size, value.units.units.size}) == 1
    for table in (value.ticks, value.actions):
        assert len({len(column) for column in table.values()}) == 1
        assert np.issubdtype(table["time_s"].dtype, np.floating)


def _twin() -> Target:
    scenario = Exogenous(
        name="small",
        zone_bytes=600 << 20,
        swap_bytes=2 << 30,
        slo_ms=20.0,
        protected=ProtectedProgram(request_rate_per_s=15.0, service_s=0.02),
        slots=(SlotProgram(name="a", units_per_s=350.0, anon_pages=(1.0, 2.0)),),
    )
    folder = Folder()
    draws = (TwinParameters(), TwinParameters(service_scale=1.1))
    twin = FittedTwin(scenario=scenario, draws=draws, weights=(0.5, 0.5), provenance={"a": 1})
    save_fitted(folder.path / "twin.json", twin)

    def check(_content: bytes, value: Any) -> None:
        parts = (value.scenario, value.draws, value.weights)
        sound_signed(b"", asdict(parts[0]) | {"stream_span_pages": 0, "slots": ()})
        sound(b"", parts[1:])
        for slot in value.scenario.slots:
            numbers = {k: v for k, v in asdict(slot).items() if k != "stream_span_pages"}
            sound(b"", numbers)
            assert slot.stream_span_pages >= 0
        save_fitted(folder.path / "again.json", value)
        assert load_fitted(folder.path / "again.json") == value, "it does not survive writing"
        value.choose(np.random.default_rng(1), 3)

    return of_file(
        "fitted-twin",
        load_fitted,
        ((folder.path / "twin.json").read_bytes(),),
        (TwinError,),
        file="twin.json",
        check=check,
        values=JSON_VALUES,
        slow=4,
    )


def _policy() -> Target:
    entries = {
        "stallward.schema_hash": schema_hash(),
        "stallward.schema": json.dumps(schema()),
        "stallward.ticks_per_action": "2",
        "stallward.observation_low": json.dumps([-1.0] * BASIC.size),
        "stallward.observation_high": json.dumps([3.0] * BASIC.size),
        "stallward.ood_limit": "0.2",
        "stallward.provenance": '{"seed": 1}',
    }

    def run(content: bytes) -> Any:
        metadata = dict(entries)
        for line in content.decode("utf-8", "replace").split("\n"):
            key, _, value = line.partition(": ")
            metadata[key] = value
        return parse_metadata(Path("p.onnx"), metadata, "0" * 64)

    def check(_content: bytes, value: Any) -> None:
        assert len(value.observation_low) == len(value.observation_high) == BASIC.size
        low, high = np.float32(value.observation_low), np.float32(value.observation_high)
        assert np.isfinite(low).all()
        assert np.isfinite(high).all()
        assert (low <= high).all()
        assert 0.0 <= value.ood_limit < np.inf
        assert 1 <= value.ticks_per_action < 1 << 31
        assert isinstance(value.provenance, dict)
        for name, number in as_values(value.partition).items():
            span = spans(PartitionThresholds)[name]
            assert span.low * 0.999 <= number <= span.high * 1.001

    lines = [f"{key}: {value}" for key, value in entries.items() if key != "stallward.schema"]
    lines.append("stallward.schema: " + json.dumps({"names": ["a", "b"], "version": 1}))
    set_points = [
        f"stallward.schema_hash: {schema_hash(SET_POINTS)}",
        f"stallward.schema: {json.dumps({'action_table': SET_POINTS.name})}",
        'stallward.partition: {"margin_share": 0.1, "turn_s": 10.0}',
    ]
    return Target(
        name="policy-metadata",
        run=run,
        material=Material(
            samples=("\n".join(lines).encode(), "\n".join(set_points).encode()), values=JSON_VALUES
        ),
        errors=(PolicyError,),
        names="p.onnx",
        check=check,
        slow=2,
    )


def _policy_file() -> Target:
    weights = helper.make_tensor("w", TensorProto.FLOAT, [2], [0.5, 1.5])
    inner = helper.make_graph(
        [helper.make_node("Identity", ["w"], ["y"])], "in", [], [], [weights]
    )
    nodes = [
        helper.make_node("Constant", [], ["c"], value=weights),
        helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner),
    ]
    model = helper.make_model(helper.make_graph(nodes, "policy", [], [], [weights]))
    folder = Folder()

    def check(content: bytes, value: Any) -> None:
        assert value == content
        try:
            parsed = ModelProto.FromString(content)
        except DecodeError:  # what only a parser can find stays with it
            return
        for tensor in _get_all_tensors(parsed):
            assert tensor.data_location != TensorProto.EXTERNAL, "it names another file"

    return Target(
        name="policy-file",
        run=lambda content: read_policy(folder.file("p.onnx", content)),
        material=Material(
            samples=(model.SerializeToString(),),
            values=(b"\x70\x01", b"\x6a\x0d\x0a\x08location\x12\x01w", b"\x72\x01\x01"),
        ),
        errors=(PolicyError,),
        names="p.onnx",
        check=check,
    )


def _policy_shapes() -> Target:
    """Whatever a network says, what its tensors take is known or refused."""
    weights = helper.make_tensor("w", TensorProto.FLOAT, [4, 3], [0.5] * 12)
    shape = helper.make_tensor("to", TensorProto.INT64, [2], [-1, 2])
    nodes = [
        helper.make_node("Gemm", ["observation", "w"], ["h"]),
        helper.make_node("Concat", ["h", "h"], ["hh"], axis=1),
        helper.make_node("Reshape", ["hh", "to"], ["r"]),
        helper.make_node("ReduceSum", ["r"], ["s"], keepdims=0),
        helper.make_node("Split", ["hh"], ["p", "q"], axis=-1, num_outputs=2),
    ]
    observed = helper.make_tensor_value_info("observation", TensorProto.FLOAT, [1, 4])
    result = helper.make_tensor_value_info("s", TensorProto.FLOAT, [])
    model = helper.make_model(
        helper.make_graph(nodes, "policy", [observed], [result], [weights, shape]),
        opset_imports=[helper.make_opsetid("", 18)],
    )

    def run(content: bytes) -> int:
        check_shapes(Path("p.onnx"), content)
        return tensor_bytes(read_graph(content))

    def check(content: bytes, value: Any) -> None:
        try:
            parsed = ModelProto.FromString(content)
            del parsed.graph.value_info[:]  # what a file claims is not what it does
            inferred = infer_shapes(parsed, strict_mode=True, data_prop=True)
        except Exception:  # what is no model in other ways stays with the runtime
            return
        shapes = [
            [dim.dim_value for dim in one.type.tensor_type.shape.dim]
            for one in inferred.graph.value_info
        ]
        assert sum(8 * prod(shape) for shape in shapes) <= value, "it takes more"

    return Target(
        name="policy-shapes",
        run=run,
        material=Material(
            samples=(model.SerializeToString(),),
            values=(b"Expand", b"Tile", b"Gather", b"Slice", b"\xff\xff\xff\xff\x7f"),
        ),
        errors=(PolicyError,),
        names="p.onnx",
        check=check,
    )


def _result(name: str, kind: type) -> Target:
    def check(_content: bytes, value: Any) -> None:
        again = json.loads(json.dumps(to_json(value), allow_nan=False))
        assert from_json(kind, again) == value, "it does not survive writing"

    return of_file(
        name,
        lambda path: load(kind, path),
        ((_SAMPLES / f"{name}.json").read_bytes(),),
        (ResultError,),
        file=f"{name}.json",
        check=check,
        values=JSON_VALUES,
        slow=4,
    )


def _contention() -> Target:
    application = {
        "name": "hog", "alone_s": 1.5, "together_s": 4.0, "subtasks": 2, "memory_bytes": 1 << 26,
    }  # fmt: skip

    def check(_content: bytes, value: Any) -> None:
        for one in value.applications:
            assert np.isfinite(one.degree)
            assert one.subtasks >= 1
            assert 0 <= one.memory_bytes < 2**63
            assert value.of(one.name) is not None

    return of_file(
        "contention",
        read_contention,
        (json.dumps({"schema": 1, "applications": [application] * 2}, indent=1).encode(),),
        (ControllerError,),
        file="contention.json",
        check=check,
        values=JSON_VALUES,
    )


def targets() -> tuple[Target, ...]:
    """All targets of this file."""
    return (
        *_recordings(),
        _twin(),
        _policy(),
        _policy_file(),
        _policy_shapes(),
        _result("result", ComparisonResult),
        _result("verdict", Verdict),
        _contention(),
    )
