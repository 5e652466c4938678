"""Targets: lines and messages of other programs, and texts that users type."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
from fuzz_mutations import NUMBERS, Material
from fuzz_target import Folder, Target, sound
from fuzz_targets_files import ENTRIES
from fuzz_targets_kernel import sample

from stallward.actuator.config.tables import PolicyConfig
from stallward.actuator.engine.engine import Engine
from stallward.actuator.engine.interface import EngineSettings
from stallward.actuator.engine.lease import Leases
from stallward.actuator.errors import FramesError, GroupError
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.journal.entries import to_line
from stallward.actuator.journal.keeper_process import HeldEntries
from stallward.actuator.kernel.cgroups import parse_name
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.latency.line_format import LineFormat
from stallward.actuator.latency.line_source import LineSource
from stallward.actuator.loop.commands import CommandHandler
from stallward.actuator.loop.policy_loader import PolicyLoader
from stallward.actuator.record.wire import DESIRED_STATE, SAMPLE, TICK_RECORD
from stallward.actuator.service.loop_link import LoopLink
from stallward.agent.errors import ControllerError, StallwardError
from stallward.agent.observation.encoder import OBSERVATION_SIZE
from stallward.agent.registry import make_controller
from stallward.agent.testing import CONTEXT, make_sample
from stallward.env.recording.program_lines import parse_requests, parse_units
from stallward.env.scenario.scenario import LatencyLines, UnitLines
from stallward.evaluation.arms import parse_arms
from stallward.evaluation.errors import PlanError
from stallward.proto.v1 import stallward_pb2 as pb

_LOG: Final = r"(?P<status>\d+) ms=(?P<ms>[0-9.e+-]+)?$"
MAX_LATENCY_MS: Final = 1e9
_ZEROS: Final = np.zeros(OBSERVATION_SIZE, dtype=np.float32)


def text_of(content: bytes) -> str:
    return content.decode("utf-8", "replace")


def never_raises(
    name: str, run: Any, samples: tuple[bytes, ...], check: Any, **material: Any
) -> Target:
    """A target that never refuses an input; it counts the parts that are wrong."""
    return Target(
        name=name,
        run=run,
        material=Material(samples=samples, **material),
        errors=(),
        check=check,
    )


def _lines() -> tuple[Target, ...]:
    folder = Folder()

    def tail(line_format: LineFormat, name: str) -> Any:
        path = folder.path / name

        def run(content: bytes) -> Any:
            path.write_bytes(b"")
            source = LineSource(path, line_format)
            path.write_bytes(content)
            first = source.read(10.0)
            samples = [source.read(10.0 + i / 100) for i in range(1, 5)]
            source.close()
            return first, samples[-1]

        return run

    def check(content: bytes, value: Any) -> None:
        sound(content, value)
        _, last = value
        if last.completed:
            assert 0 <= last.p95_ms <= last.max_ms < MAX_LATENCY_MS
            assert 0 <= last.mean_ms <= last.max_ms * (1 + 1e-9)
            assert last.completed_total >= last.completed

    def requests(source: LatencyLines) -> Any:
        return lambda content: parse_requests(text_of(content), source)

    def check_requests(content: bytes, value: Any) -> None:
        for times in (value.scheduled_s, value.start_s, value.end_s):
            assert np.isfinite(times).all()
        assert (np.diff(value.scheduled_s) >= 0).all()
        ends = content.count(b"\n") + content.count(b"\r")
        assert value.ok.size == value.scheduled_s.size <= ends

    def check_units(_content: bytes, value: Any) -> None:
        assert np.isfinite(value.time_s).all()
        assert np.isfinite(value.units).all()
        for slot in (0, 1):
            work = value.units[value.slot == slot]
            assert (np.diff(work) >= 0).all(), "the work done went back"

    columns = LineFormat(start="0", end="2", ok="3")
    pattern = LineFormat(latency="ms", ok="status", pattern=_LOG, latency_unit_s=1e-3)
    units = LineFormat(latency="l", pattern=r"took=(?P<l>[0-9.]+) ?(?P<unit>[a-zµμ]+)?")
    pgbench = LineFormat(latency="2", latency_unit_s=1e-6)
    csv = LineFormat(latency="1", ok="7", separator=",", latency_unit_s=1e-3)
    of_columns = LatencyLines(path="x", start="0", sent="1", end="2", ok="3")
    of_csv = LatencyLines(path="x", start="0", latency="1", ok="7", separator=",")
    of_pattern = LatencyLines(path="x", start="status", latency="ms", pattern=_LOG)
    work = (UnitLines(path="x", cumulative=True), UnitLines(path="x", cumulative=False))
    lines, log, durations = (sample(n) for n in ("requests.lines", "access.log", "durations.log"))
    return (
        never_raises("latency-lines", tail(columns, "columns"), lines, check),
        never_raises("latency-lines-pattern", tail(pattern, "pattern"), log, check),
        never_raises("latency-lines-units", tail(units, "units"), durations, check),
        never_raises(
            "latency-lines-failed", tail(pgbench, "failed"), sample("pgbench.log"), check
        ),
        never_raises("latency-lines-csv", tail(csv, "csv"), sample("requests.csv"), check),
        never_raises(
            "request-lines-csv", requests(of_csv), sample("requests.csv"), check_requests
        ),
        never_raises("request-lines", requests(of_columns), lines, check_requests),
        never_raises("request-lines-pattern", requests(of_pattern), log, check_requests),
        never_raises(
            "unit-lines",
            lambda content: parse_units([text_of(content)] * 2, work),
            (b"100.5 17\n101.5 35.5\n102.5 0\n103.5 12\n",),
            check_units,
        ),
    )


def _commands() -> tuple[Target, ...]:
    rule = make_controller("none")
    settings = EngineSettings(context=CONTEXT, budgets=Budgets(), late_s=1.0)

    def command(**kind: Any) -> bytes:
        return bytes(pb.Command(id=7, **kind).SerializeToString())

    apply = pb.ApplyRequest(holder="me", lease_s=1.0)
    apply.desired.slots.add(paused=True, limit_bytes=1 << 29)
    apply.desired.slots.add(cpu_max_cores=0.5)
    apply.desired.tuning.name = "flush"
    apply.desired.tuning.swappiness = 60
    apply.desired.stopped.add(pid=17, start_time_ticks=99)
    samples = (
        command(apply=apply),
        command(release=pb.ReleaseRequest(holder="me")),
        command(set_mode=pb.SetModeRequest(mode=pb.MODE_ACTIVE)),
        command(load=pb.LoadRequest(path="default")),
    )

    def run(content: bytes) -> Any:
        engine = Engine(settings=settings, configured=rule, default=rule)
        leases = Leases()
        loader = PolicyLoader(PolicyConfig(dir=Path("/nonexistent")))
        loader.start = lambda name, ticket, now_s: None  # type: ignore[method-assign]
        commands = CommandHandler(engine=engine, leases=leases, loader=loader)
        answer = commands.handle(content, 5.0)
        lease = leases.current(5.0)
        outcome = engine.step(make_sample(), remote=None if lease is None else lease.desired)
        return answer, outcome.granted, commands.after_tick(outcome, 5.0)

    def check(content: bytes, value: Any) -> None:
        answer, granted, later = value
        sound(content, granted)
        DESIRED_STATE.from_wire(DESIRED_STATE.to_wire(granted))
        for message in (answer, *later):
            if message is not None:
                result = pb.LoopMessage.FromString(message).result
                assert not result.code or result.message

    wire = make_record()

    def record(content: bytes) -> Any:
        try:
            message = pb.TickRecord.FromString(content)
        except Exception as error:
            raise FramesError("not a message") from error
        return TICK_RECORD.from_wire(message)

    def check_record(_content: bytes, value: Any) -> None:
        again = TICK_RECORD.from_wire(TICK_RECORD.to_wire(value))
        assert repr(again) == repr(value), "it does not survive the wire"

    return (
        never_raises("commands", run, samples, check),
        Target(
            name="tick-record",
            run=record,
            material=Material(samples=(wire,)),
            errors=(FramesError,),
            check=check_record,
        ),
    )


def make_record() -> bytes:
    """A serialised tick record with a value in most of its parts."""
    record = pb.TickRecord(sequence=3, time_s=5.5, wall_time_s=1.7e9, mode=pb.MODE_SHADOW)
    record.sample.CopyFrom(SAMPLE.to_wire(make_sample()))
    record.decision.controller = "latd"
    record.decision.propensity = 0.5
    record.decision.desired.slots.add(paused=True, limit_bytes=1 << 29)
    record.granted.slots.add()
    record.reasons.fault.controller = "latd"
    record.reasons.fault.decision_late.took_s = 0.06
    record.reasons.changes.add(rule=pb.GUARD_RULE_FLOOR, wish=pb.WISH_LIMIT, slot=0, bound=9)
    record.applied.add(lever="pause:a", value="1", ok=True, took_ms=0.5)
    record.observation.extend([0.5, 1.0])
    record.fallback = True
    return bytes(record.SerializeToString())


class _Connection:
    """A socket that hands out the messages that were put into it."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []

    def setblocking(self, flag: bool) -> None:
        """Do nothing; a real socket has this method."""

    def recv(self, size: int) -> bytes:
        if not self.messages:
            raise BlockingIOError
        return self.messages.pop()[:size]


def _messages() -> tuple[Target, ...]:
    folder = Folder()
    paths = Paths(proc=folder.path, cgroup=folder.path)
    entries = "".join(f"{to_line(entry)}\n" for entry in ENTRIES[:3]).encode()
    release = f"{to_line(ENTRIES[0], 'release')}\n".encode()

    def keeper(content: bytes) -> bytes:
        held = HeldEntries(paths, None)
        return b"" if content == b"restore" else held.answer(content)

    def check_keeper(_content: bytes, value: bytes) -> None:
        assert value[:1] in {b"!", b"o", b""}
        assert len(value) < 4000

    link = LoopLink(_Connection())  # type: ignore[arg-type]

    def loop_message(content: bytes) -> Any:
        link._connection.messages.append(content)  # type: ignore[attr-defined]
        link.receive()
        return link.status()

    status = pb.StatusResponse(ticks=5, uptime_s=3.0, lease_remaining_s=1.0, lease_held=True)
    messages = (
        pb.LoopMessage(status=status).SerializeToString(),
        pb.LoopMessage(tick=pb.TickRecord.FromString(make_record())).SerializeToString(),
        pb.LoopMessage(result=pb.CommandResult(id=3, code="X", message="y")).SerializeToString(),
    )
    return (
        never_raises("keeper-messages", keeper, (entries, release), check_keeper),
        never_raises("loop-messages", loop_message, messages, lambda *_: None),
    )


def typed(name: str, run: Any, samples: tuple[bytes, ...], errors: Any, check: Any) -> Target:
    """A target that reads a text typed by a user."""
    return Target(
        name=name,
        run=run,
        material=Material(samples=samples, values=NUMBERS),
        errors=errors,
        check=check,
    )


def _typed() -> tuple[Target, ...]:
    """The targets for texts that users type."""
    specs = (
        b"static:pause=0+1,limit=0.4,profile=flush",
        b"static:limit_mib=200,slots=all",
        b"latd",
        b"excite:seed=3",
        b"none",
    )

    def controller(content: bytes) -> Any:
        made = make_controller(text_of(content))
        made.reset(CONTEXT)
        return made.decide(make_sample(), _ZEROS).desired

    def group(content: bytes) -> str:
        name = parse_name(text_of(content))
        assert parse_name(name) == name
        return name

    def check_group(_content: bytes, name: str) -> None:
        parts = name.split("/")
        assert not {".", ".."} & set(parts)
        assert name == "" or "" not in parts
        name.encode()

    return (
        typed("controller-spec", controller, specs, (StallwardError,), sound),
        typed(
            "arms",
            lambda content: parse_arms(text_of(content)),
            (b"none,latd,static:pause=1,limit=0.4,none#2",),
            (PlanError, ControllerError),
            sound,
        ),
        typed("group-name", group, (b"/stallward/1/app", b"/"), (GroupError,), check_group),
    )


def targets() -> tuple[Target, ...]:
    """All targets of this file."""
    return (
        *_lines(),
        *_commands(),
        *_messages(),
        *_typed(),
    )
