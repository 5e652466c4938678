"""Targets: stallward's own files, which a crash, another version or an editor may have spoilt."""

from __future__ import annotations

import json
import os
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from fuzz_mutations import JSON_VALUES, TOML_VALUES, Material
from fuzz_target import Folder, Target, sound_signed
from fuzz_targets_kernel import sample

from stallward.actuator.config.load import config_toml, load_config, parse_config
from stallward.actuator.errors import ConfigError, FramesError, JournalError
from stallward.actuator.journal.disk import Journal
from stallward.actuator.journal.entries import (
    FileValue,
    Frozen,
    JournalEntry,
    Noted,
    OomScore,
    OwnedFolder,
    OwnedGroup,
    Stopped,
    SwapFile,
    ZramDevice,
    from_line,
    seal,
    to_line,
)
from stallward.actuator.journal.own_entries import Owner, refusal
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.record.frames import MAGIC, FrameWriter, encode_frame, extent, read_frames
from stallward.actuator.record.reading import read_ticks
from stallward.agent.errors import StallwardError
from stallward.env.errors import ScenarioError
from stallward.env.recording.pieces import cut
from stallward.env.scenario.file import parse_scenario
from stallward.evaluation.blocks.record import load_plan
from stallward.evaluation.errors import PlanError
from stallward.proto.v1 import stallward_pb2 as pb

ENTRIES: Final[tuple[JournalEntry, ...]] = (
    FileValue(Path("/sys/fs/cgroup/memory/a b/memory.limit_in_bytes"), "9223372036854771712"),
    Frozen(Path("/sys/fs/cgroup/unified/x/cgroup.freeze")),
    Stopped(17, 3905356),
    OomScore(17, 3905356, -500),
    OwnedGroup("stallward/7f3a"),
    SwapFile(Path("/var/lib/\u00fc.swap")),
    ZramDevice(Path("/dev/zram1")),
    Noted(FileValue(Path("/proc/sys/vm/swappiness"), "60"), 17),
)


def json_bytes(value: object) -> bytes:
    """A value as JSON, indented as in stallward's files."""
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


def as_saved(samples: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Contents, and the first as some editors save it: with a byte-order mark, and CR LF."""
    return (*samples, BOM_UTF8 + samples[0].replace(b"\n", b"\r\n"))


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
    for request in value.runs:
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
            as_saved(sample("daemon.toml", "daemon-prometheus.toml", "daemon-processes.toml")),
            (ConfigError,),
            file="daemon.toml",
            check=_config_check,
            slow=8,
        ),
        toml(
            "scenario",
            parse_scenario,
            as_saved(sample("scenario.toml")),
            (ScenarioError,),
            file="fuzzed.toml",
            check=_scenario_check,
            slow=8,
        ),
        toml(
            "record-plan",
            load_plan,
            as_saved(sample("plan.toml")),
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
    for owner in Owner:
        if not refusal(entry, Paths(), owner):
            _check_ours(entry)
    for name in ("pid", "tid"):
        assert 0 < getattr(entry, name, 1) < 1 << 31, f"{name} is none"
    for name in ("path", "folder"):
        assert getattr(entry, name, Path("/")).is_absolute(), f"{name} is not absolute"


def _check_ours(entry: JournalEntry) -> None:
    """What would be undone is below the roots of the levers, whatever a line says."""
    inner = entry.entry if isinstance(entry, Noted) else entry
    path = getattr(inner, "path", getattr(inner, "folder", None))
    if isinstance(path, Path) and not isinstance(inner, SwapFile | OwnedFolder):
        real = Path(os.path.normpath(path))
        roots = ("/sys/fs/cgroup", "/proc/sys/vm", "/sys/module/zswap/parameters")
        devices = isinstance(inner, ZramDevice) and real.parent == Path("/dev")
        assert devices or any(real.is_relative_to(root) for root in roots)


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
        # A line with a right checksum holds an entry as it was written.
        assert set(value) <= known, "an entry that was never written"

    bodies = tuple(
        json_bytes({k: v for k, v in json.loads(to_line(entry)).items() if k != "crc"})
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


def make_tick(number: int) -> pb.TickRecord:
    """A tick record with a value in most of its parts."""
    record = pb.TickRecord(sequence=number, time_s=100.0 + number, mode=pb.MODE_ACTIVE)
    record.sample.zone.psi.memory_some_us = 1000 * number
    record.sample.slots.add(name="a", memory_usage_bytes=1 << 30)
    record.sample.slot_states.add(paused=bool(number % 2))
    record.decision.controller = "latd"
    record.decision.desired.slots.add(paused=True, limit_bytes=1 << 29)
    record.granted.slots.add(paused=True)
    record.reasons.fault.controller = "latd"
    record.observation.extend([0.5, 1.0])
    return record


def _frames() -> tuple[Target, ...]:
    payloads = tuple(make_tick(number).SerializeToString() for number in range(4))
    whole = MAGIC + b"".join(map(encode_frame, payloads))

    def read(path: Path) -> Any:
        frames = list(read_frames(path))
        size = extent(path)
        writer = FrameWriter(path)
        writer.append(b"more")
        writer.close()
        return frames, size, list(read_frames(path))

    def check(content: bytes, value: Any) -> None:
        frames, size, extended = value
        assert size.frames == len(frames)
        assert size.whole_bytes + size.torn_bytes == len(content)
        assert all(
            len(payload) < 64 or payload in payloads or zlib.crc32(payload) for payload in frames
        )
        assert extended == [*frames, b"more"], "a frame appended to it cannot be read back"
        if len(content) >= len(MAGIC):
            assert content[: size.whole_bytes] == MAGIC + b"".join(map(encode_frame, frames))

    def ticks(content: bytes) -> Any:
        """A frame whose checksum is right, whatever it holds."""
        path = folder.file("ticks.frames", whole + encode_frame(content))
        return cut(read_ticks(path), 600.0)

    def check_ticks(_content: bytes, value: Any) -> None:
        assert value.ticks == sum(piece.ticks for piece in value.pieces)
        assert 1 <= value.ticks + value.earlier_ticks <= len(payloads) + 1
        assert not any(b.start_s < a.end_s for a, b in pairwise(value.pieces))
        assert all(piece.stall_us >= 0 for piece in value.pieces)

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


def targets() -> tuple[Target, ...]:
    """All targets of this file."""
    return (
        *_tomls(),
        *_journal(),
        *_frames(),
    )
