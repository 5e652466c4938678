"""Targets: files of our own that a crash, another version or somebody's editor may have spoilt."""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from fuzz_mutations import JSON_VALUES, TOML_VALUES, Material
from fuzz_target import Folder, Target, sound, sound_signed
from fuzz_targets_kernel import sample

from stallward.actuator.config import config_toml, load_config, parse_config
from stallward.actuator.errors import ConfigError, FramesError, JournalError
from stallward.actuator.frames import MAGIC, FrameWriter, encode_frame, extent, read_frames
from stallward.actuator.journal_disk import Journal
from stallward.actuator.journal_entries import (
    FileValue,
    Frozen,
    JournalEntry,
    OomScore,
    OwnedGroup,
    Stopped,
    SwapFile,
    from_line,
    seal,
    to_line,
)
from stallward.actuator.paths import Paths
from stallward.agent.controllers.onnx import _parse_metadata
from stallward.agent.errors import PolicyError, StallwardError
from stallward.agent.observation import OBSERVATION_SIZE, schema, schema_hash
from stallward.env.errors import RecordingError, ScenarioError, TwinError
from stallward.env.recording import (
    NodeInfo,
    Requests,
    RunInfo,
    Units,
    load_recording,
    write_recording,
)
from stallward.env.scenario_file import parse_scenario
from stallward.env.twin.fitted import FittedTwin, load_fitted, save_fitted
from stallward.env.twin.parameters import TwinParameters
from stallward.env.twin.scenario import ProtectedProgram, SlotProgram, TwinScenario
from stallward.evaluation.errors import PlanError
from stallward.evaluation.node_recording import read_ticks, since_boot
from stallward.evaluation.plan import read_json
from stallward.evaluation.record import load_plan
from stallward.proto.v1 import stallward_pb2 as pb

ENTRIES: Final[tuple[JournalEntry, ...]] = (
    FileValue(Path("/sys/fs/cgroup/memory/a b/memory.limit_in_bytes"), "9223372036854771712"),
    Frozen(Path("/sys/fs/cgroup/unified/x/cgroup.freeze")),
    Stopped(17, 3905356),
    OomScore(17, 3905356, -500),
    OwnedGroup("stallward/7f3a"),
    SwapFile(Path("/var/lib/\u00fc.swap")),
)


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1).encode()


def of_file(
    name: str,
    read: Callable[[Path], Any],
    samples: tuple[bytes, ...],
    errors: tuple[type[StallwardError], ...],
    *,
    file: str,
    check: Callable[[bytes, Any], None] = sound_signed,
    values: tuple[bytes, ...] = (),
    slow: int = 1,
) -> Target:
    """A reader of a whole file, whose errors must name it."""
    folder = Folder()
    return Target(
        name=name,
        run=lambda content: read(folder.file(file, content)),
        material=Material(samples=samples, values=values),
        errors=errors,
        names=file,
        check=check,
        slow=slow,
    )


def _config_check(content: bytes, value: Any) -> None:
    sound_signed(content, value)
    assert parse_config(config_toml(value)) == value, "it does not survive being written"


def _scenario_check(_content: bytes, value: Any) -> None:
    limit = value.sandbox.limit_bytes
    assert 32 << 20 <= limit < value.sandbox.ample_bytes < 2**63
    assert value.sandbox.swap_bytes < 2**63
    assert all(0 < spec.floor_bytes < 2**63 for spec in value.background)
    for spec in value.background:
        for phase in spec.phases:
            assert 0 <= phase.start_s <= (phase.stop_s or np.inf)
            assert np.isfinite(phase.start_s)


def _plan_check(_content: bytes, value: Any) -> None:
    for request in value:
        assert isinstance(request.scenario, str)
        assert isinstance(request.arm, str)
        assert 0 < request.seconds < np.inf
        assert 0 <= request.burn_in_s < np.inf
        assert request.seed >= 0


def _tomls() -> tuple[Target, ...]:
    toml = partial(of_file, values=TOML_VALUES)
    return (
        toml(
            "daemon-config",
            load_config,
            sample("daemon.toml", "daemon-prometheus.toml", "daemon-processes.toml"),
            (ConfigError,),
            file="daemon.toml",
            check=_config_check,
            slow=8,
        ),
        toml(
            "scenario",
            parse_scenario,
            sample("scenario.toml"),
            (ScenarioError,),
            file="fuzzed.toml",
            check=_scenario_check,
            slow=8,
        ),
        toml(
            "record-plan",
            load_plan,
            sample("plan.toml"),
            (PlanError,),
            file="plan.toml",
            check=_plan_check,
            slow=4,
        ),
    )


def _sealed(content: bytes) -> Any:
    """The entry of a line whose fields are the input and whose checksum is right."""
    try:
        fields = json.loads(content)
        fields.pop("crc", None)
        line = seal(fields)
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise JournalError("Not an object.") from error
    return from_line(line)


def _entry_check(_content: bytes, value: Any) -> None:
    operation, entry = value
    sound_signed(b"", entry)
    assert from_line(to_line(entry, operation)) == value
    for name in ("pid", "tid"):
        assert 0 < getattr(entry, name, 1) < 1 << 31, f"{name} is none"
    for name in ("path", "folder"):
        assert getattr(entry, name, Path("/")).is_absolute(), f"{name} is not absolute"


def _journal() -> tuple[Target, ...]:
    folder = Folder()
    (folder.path / "proc/sys/kernel/random").mkdir(parents=True)
    (folder.path / "proc/sys/kernel/random/boot_id").write_text("one\n")
    paths = Paths(proc=folder.path / "proc", cgroup=folder.path)
    lines = [seal({"boot": "one"}), *(to_line(entry) for entry in ENTRIES)]
    lines += [to_line(ENTRIES[0], "release"), to_line(ENTRIES[2])]
    whole = "".join(f"{line}\n" for line in lines).encode()
    known = set(ENTRIES)

    def load(path: Path) -> tuple[JournalEntry, ...]:
        path.chmod(0o600)
        return Journal(path, paths).load()

    def check(_content: bytes, value: Any) -> None:
        # A checksum lets nothing pass that nobody wrote.
        assert set(value) <= known, "an entry that nobody wrote"

    bodies = tuple(
        _json({k: v for k, v in json.loads(to_line(entry)).items() if k != "crc"})
        for entry in ENTRIES
    )
    return (
        of_file("journal", load, (whole,), (JournalError,), file="journal", check=check),
        Target(
            name="journal-line",
            run=lambda content: from_line(content.decode("utf-8", "replace")),
            material=Material(samples=tuple(map(str.encode, lines[1:])), values=JSON_VALUES),
            errors=(JournalError,),
            check=_entry_check,
        ),
        Target(
            name="journal-line-sealed",
            run=_sealed,
            material=Material(samples=bodies, values=JSON_VALUES),
            errors=(JournalError,),
            check=_entry_check,
        ),
    )


def _tick(number: int) -> pb.TickRecord:
    record = pb.TickRecord(sequence=number, time_s=100.0 + number, mode=pb.MODE_ACTIVE)
    record.sample.zone.psi.memory_some_us = 1000 * number
    record.sample.slots.add(name="a", memory_usage_bytes=1 << 30)
    record.sample.slot_states.add(paused=bool(number % 2))
    record.decision.controller = "latd"
    record.decision.desired.slots.add(paused=True, limit_bytes=1 << 29)
    record.granted.slots.add(paused=True)
    record.guard_notes.append("said")
    record.observation.extend([0.5, 1.0])
    return record


def _frames() -> tuple[Target, ...]:
    payloads = tuple(_tick(number).SerializeToString() for number in range(4))
    whole = MAGIC + b"".join(map(encode_frame, payloads))

    def read(path: Path) -> Any:
        found = list(read_frames(path))
        size = extent(path)
        writer = FrameWriter(path)
        writer.append(b"more")
        writer.close()
        return found, size, list(read_frames(path))

    def check(content: bytes, value: Any) -> None:
        found, size, extended = value
        assert size.frames == len(found)
        assert size.whole_bytes + size.torn_bytes == len(content)
        assert all(
            len(payload) < 64 or payload in payloads or zlib.crc32(payload) for payload in found
        )
        assert extended == [*found, b"more"], "a frame appended to it cannot be read back"
        if len(content) >= len(MAGIC):
            assert content[: size.whole_bytes] == MAGIC + b"".join(map(encode_frame, found))

    def ticks(content: bytes) -> Any:
        """A frame whose checksum is right, whatever it holds."""
        path = folder.file("ticks.frames", whole + encode_frame(content))
        return since_boot(list(read_ticks(path)))

    def check_ticks(_content: bytes, value: Any) -> None:
        times = [tick.time_s for tick in value]
        assert value
        assert not any(b < a for a, b in pairwise(times))

    folder = Folder()
    return (
        of_file("frames", read, (whole,), (FramesError,), file="ticks.frames", check=check),
        Target(
            name="frames-ticks",
            run=ticks,
            material=Material(samples=payloads),
            errors=(FramesError,),
            names="ticks.frames",
            check=check_ticks,
        ),
    )


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
    """A recording of which one file is the input."""
    folder = Folder()
    times = np.linspace(100.0, 103.9, 40)
    requests = Requests(
        scheduled_s=times, start_s=times + 0.001, end_s=times + 0.01, ok=np.ones(40, dtype=bool)
    )
    units = Units(slot=np.zeros(4, dtype=np.int32), time_s=times[:4], units=np.arange(4.0))
    whole = folder.path / "whole"
    write_recording(
        whole, run=_RUN, ticks=[_tick(i) for i in range(4)], requests=requests, units=units
    )

    def target(name: str, values: tuple[bytes, ...] = (), slow: int = 4) -> Target:
        copy = folder.path / name.partition(".")[0]
        shutil.copytree(whole, copy)

        def run(content: bytes) -> Any:
            (copy / name).write_bytes(content)
            return load_recording(copy)

        return Target(
            name=f"recording-{name}",
            run=run,
            material=Material(samples=((whole / name).read_bytes(),), values=values),
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
    scenario = TwinScenario(
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
        "stallward.observation_low": json.dumps([-1.0] * OBSERVATION_SIZE),
        "stallward.observation_high": json.dumps([3.0] * OBSERVATION_SIZE),
        "stallward.ood_limit": "0.2",
        "stallward.provenance": '{"seed": 1}',
    }

    def run(content: bytes) -> Any:
        found = dict(entries)
        for line in content.decode("utf-8", "replace").split("\n"):
            key, _, value = line.partition(": ")
            found[key] = value
        return _parse_metadata(Path("p.onnx"), found, "0" * 64)

    def check(_content: bytes, value: Any) -> None:
        assert len(value.observation_low) == len(value.observation_high) == OBSERVATION_SIZE
        low, high = np.float32(value.observation_low), np.float32(value.observation_high)
        assert np.isfinite(low).all()
        assert np.isfinite(high).all()
        assert (low <= high).all()
        assert 0.0 <= value.ood_limit < np.inf
        assert 1 <= value.ticks_per_action < 1 << 31
        assert isinstance(value.provenance, dict)

    lines = [f"{key}: {value}" for key, value in entries.items() if key != "stallward.schema"]
    lines.append("stallward.schema: " + json.dumps({"names": ["a", "b"], "version": 1}))
    return Target(
        name="policy-metadata",
        run=run,
        material=Material(samples=("\n".join(lines).encode(),), values=JSON_VALUES),
        errors=(PolicyError,),
        names="p.onnx",
        check=check,
        slow=2,
    )


def _any_json() -> Target:
    def check(_content: bytes, value: Any) -> None:
        assert value is None or isinstance(value, dict)

    return of_file(
        "any-json",
        read_json,
        (_json({"schema": 1, "arms": {"none": [1.5, None, True, "x"]}}),),
        (),
        file="block.json",
        check=check,
        values=JSON_VALUES,
    )


def targets() -> tuple[Target, ...]:
    """All targets of this file."""
    return (
        *_tomls(),
        *_journal(),
        *_frames(),
        *_recordings(),
        _twin(),
        _policy(),
        _any_json(),
    )
