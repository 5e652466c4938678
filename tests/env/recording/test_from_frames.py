"""Frames of a daemon on a real node become recordings that every tool opens."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from profile_files import profile_file

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.load import config_toml, load_config
from stallward.actuator.config.tables import (
    ControlConfig,
    JournalConfig,
    NodeConfig,
    ProtectedConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.errors import FramesError
from stallward.actuator.latency.config import LinesLatency, PrometheusLatency
from stallward.actuator.record.frames import FrameWriter
from stallward.actuator.targets.config import PodConfig
from stallward.agent.action_table import SET_POINTS
from stallward.agent.desired import DEFAULT_FLOOR_BYTES
from stallward.agent.errors import StallwardError, UsageError
from stallward.agent.latency_histogram import middle_ms
from stallward.env.errors import RecordingError
from stallward.env.recording import from_frames as tick_requests
from stallward.env.recording.applications import application_samples
from stallward.env.recording.from_frames import Converted, convert_frames
from stallward.env.recording.recording import Recording, load_recording
from stallward.env.recording.stored import RecordingFolder
from stallward.env.twin.estimate.exogenous import estimate_exogenous
from stallward.evaluation.cli import main
from stallward.evaluation.measures.block_measures import measure_recording
from stallward.proto.v1 import stallward_pb2 as pb

GIB = 1 << 30
BOOT_S = 1.7e9
"""CLOCK_REALTIME at CLOCK_MONOTONIC 0."""


def _ticks(
    start_s: float,
    seconds: float,
    controller: str = "ppo",
    *,
    period_s: float = 0.5,
    slo_ms: float = 60.0,
    units_per_s: float | None = 4.0,
) -> list[pb.TickRecord]:
    """Ticks of a node whose slot is paused in the second half, and counts its work."""
    ticks = []
    count = round(seconds / period_s) + 1
    for i in range(count):
        at_s = start_s + period_s * i
        tick = pb.TickRecord(sequence=i, time_s=at_s, wall_time_s=BOOT_S + at_s, slo_ms=slo_ms)
        tick.sample.node.memory_total_bytes = 3 * GIB
        tick.sample.node.swap_total_bytes = GIB
        tick.sample.zone.memory_limit_bytes = 2 * GIB
        tick.sample.slots.add(
            name="edge/training", cpu_usage_us=round(500_000 * at_s), memory_usage_bytes=GIB
        )
        tick.sample.slot_states.add(paused=i >= count // 2)
        if units_per_s is not None:
            done = units_per_s * (at_s - start_s)
            tick.sample.work.add(
                source=pb.WORK_SOURCE_FILE, unit="steps", units=done, known_s=at_s - start_s,
                read_s=at_s,
            )  # fmt: skip
        tick.decision.controller = controller
        ticks.append(tick)
    return ticks


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node with a daemon's configuration and the directory for its frames."""
    latency = LinesLatency(path=tmp_path / "requests.lines", start="0", end="1", ok="2")
    config = DaemonConfig(
        node=NodeConfig(zone="edge"),
        protected=ProtectedConfig(group="edge/app"),
        background=(SlotConfig(name="training", group="edge/training", floor_bytes=96 << 20),),
        service=ServiceConfig(socket=tmp_path / "s.sock"),
        journal=JournalConfig(path=tmp_path / "journal"),
        latency=latency,
        control=ControlConfig(controller="static:limit=0.5", slo_ms=60.0),
    )
    (tmp_path / "stallward.toml").write_text(config_toml(config))
    return tmp_path


def _leave(node: Path, *parts: Sequence[pb.TickRecord]) -> None:
    writer = FrameWriter(node / "ticks.frames")
    for tick in itertools.chain(*parts):
        writer.append(tick.SerializeToString())
    writer.close()


def _log(node: Path, *spans_s: tuple[float, float], clock_s: float = 0.0) -> None:
    """A log with a request of 20 ms in each second of some spans."""
    lines = [
        f"{second + clock_s:.3f} {second + 0.02 + clock_s:.3f} 1\n"
        for start_s, end_s in spans_s
        for second in range(int(start_s), int(end_s))
    ]
    (node / "requests.lines").write_text("".join(lines))


def _convert(node: Path, **options: Any) -> tuple[Converted, list[Recording]]:
    config = node / "stallward.toml"
    made = convert_frames(node, node / "out", config=config, name="edge", **options)
    assert sorted((node / "out").iterdir()) == list(made.recordings)
    return made, [load_recording(path) for path in made.recordings]


def test_a_floor_of_a_profile_is_that_of_the_daemon(node: Path) -> None:
    path = node / "stallward.toml"
    config = load_config(path)
    profile = profile_file(node / "training.json", working_set_mib=123, least_mib=45)
    slot = replace(config.background[0], floor_bytes=DEFAULT_FLOOR_BYTES, profile=profile)
    # That of the application, which no recording needs, may be on the node alone.
    protected = ProtectedConfig(group="edge/app", profile=node / "not-here.json")
    path.write_text(config_toml(replace(config, protected=protected, background=(slot,))))
    _leave(node, _ticks(500.0, 100.0))
    _log(node, (400.0, 700.0))
    _, (recording,) = _convert(node)
    assert recording.run.slot_floors_bytes == (45 << 20,)


@pytest.mark.parametrize("clock_s", [0.0, BOOT_S], ids=["since-boot", "unix-time"])
def test_ticks_and_the_log_become_a_recording(node: Path, clock_s: float) -> None:
    _leave(node, _ticks(500.0, 100.0))
    _log(node, (400.0, 700.0), clock_s=clock_s)  # also before and after the daemon ran
    made, (recording,) = _convert(node)
    assert (made.ticks, made.requests) == (201, 100)
    run = recording.run
    assert (run.scenario, run.condition, run.arm, run.slo_ms) == ("edge", "together", "ppo", 60.0)
    assert (run.slot_names, run.slot_floors_bytes) == (("training",), (96 << 20,))
    assert (run.sandbox_bytes, run.node.memory_total_bytes) == (2 * GIB, 3 * GIB)
    assert run.node.kind == "unknown", "not the machine that this runs on"
    assert run.burn_in_s == pytest.approx(10.0)
    assert run.request_rate_per_s == pytest.approx(1.0)
    np.testing.assert_allclose(recording.requests.scheduled_s[[0, -1]], [500.0, 599.0], atol=1e-3)
    measures = measure_recording(recording.path)
    assert measures.windows == 90
    assert measures.paused_s.sum() == pytest.approx(50.0, abs=1.0)


def test_work_is_in_the_units_of_the_slot_or_else_processor_time(node: Path) -> None:
    _leave(node, _ticks(500.0, 100.0))
    _log(node, (500.0, 600.0))
    made, (recording,) = _convert(node)
    assert (made.slot_units, recording.run.slot_units) == ((("training", "steps"),), ("steps",))
    assert recording.units.rate_per_s(0, 520.0, 560.0) == pytest.approx(4.0)
    (node / "ticks.frames").unlink()
    _leave(node, _ticks(500.0, 100.0, units_per_s=None))
    shutil.rmtree(node / "out")
    made, (recording,) = _convert(node)
    assert recording.run.slot_units == ("cpu-s",)
    assert recording.units.rate_per_s(0, 520.0, 560.0) == pytest.approx(0.5)
    assert "training in cpu-s" in made.summary


def test_a_trace_is_cut_where_the_controller_changes(node: Path) -> None:
    _leave(
        node,
        _ticks(500.0, 100.0, "none"),
        _ticks(600.5, 30.0, "rule"),  # too short
        _ticks(631.0, 100.0, "static"),
        _ticks(800.0, 90.0, "static"),  # the daemon was down before
    )
    _log(node, (500.0, 900.0))
    made, recordings = _convert(node)
    assert [one.run.arm for one in recordings] == ["none", "static:limit=0.5", "static:limit=0.5"]
    assert [path.name for path in made.recordings] == [
        "0001-none",
        "0002-static-limit=0.5",
        "0003-static-limit=0.5",
    ]
    assert dict(made.left_out_s) == {"in pieces under 60 s": 30.0}
    assert "30 s in pieces under 60 s" in made.summary


def test_a_daemon_that_was_started_again_may_have_other_arguments(node: Path) -> None:
    _leave(node, _ticks(500.0, 100.0, "static"), _ticks(602.5, 100.0, "static"))
    _log(node, (500.0, 703.0))
    made, recordings = _convert(node)
    assert [one.run.start_s for one in recordings] == [500.0, 602.5]
    assert "1 recordings are from before the daemon was last started" in made.summary
    assert {one.run.arm for one in recordings} == {"static:limit=0.5"}


def test_what_ran_under_an_earlier_configuration_is_left_out(node: Path) -> None:
    other_slots = _ticks(800.0, 100.0)
    for tick in other_slots:
        tick.sample.slots[0].name = "edge/indexer"
    _leave(
        node,
        _ticks(500.0, 100.0, slo_ms=50.0),
        _ticks(601.0, 100.0, units_per_s=None),
        other_slots,
        _ticks(901.0, 100.0),
    )
    _log(node, (500.0, 1001.0))
    made, (recording,) = _convert(node)
    assert recording.run.start_s == 901.0
    assert dict(made.left_out_s) == {"under an earlier configuration": 300.0}


def test_pieces_without_requests_or_work_are_left_out_and_none_is_refused(node: Path) -> None:
    unknown = _ticks(601.0, 100.0)
    for tick in unknown:
        tick.sample.work[0].known_s = 0.0
        tick.sample.work[0].fault = pb.WORK_FAULT_ABSENT
    _leave(node, _ticks(500.0, 100.0, "none"), unknown)
    _log(node, (601.0, 701.0))
    before = sorted(node.iterdir())
    with pytest.raises(RecordingError) as caught:
        _convert(node)
    assert "100 s are with fewer than 20 requests" in str(caught.value)
    assert "100 s are without the work of every slot" in str(caught.value)
    assert sorted(node.iterdir()) == before
    _log(node, (500.0, 701.0))
    made, (recording,) = _convert(node)
    assert recording.run.arm == "none"
    assert dict(made.left_out_s) == {"without the work of every slot": 100.0}


def test_a_long_time_is_cut_into_pieces_of_which_some_are_kept(node: Path) -> None:
    _leave(node, _ticks(500.0, 1000.0, period_s=1.0))
    _log(node, (500.0, 1500.0))
    made, recordings = _convert(node, most_piece_s=100.0, most_pieces=4)
    assert len(recordings) == 4
    assert all(one.run.end_s - one.run.start_s <= 100.0 for one in recordings)
    (left_out,) = made.left_out_s
    assert left_out[0] == "beyond the most pieces of a controller"
    assert left_out[1] == pytest.approx(600.0, abs=20.0)


def test_a_node_without_background_programs_was_alone(node: Path) -> None:
    idle = _ticks(500.0, 100.0)
    for tick in idle:
        tick.sample.slots[0].memory_usage_bytes = 4096
        tick.sample.ClearField("work")
        tick.sample.slots[0].ClearField("cpu_usage_us")
    _leave(node, idle)
    _log(node, (500.0, 600.0))
    _, (recording,) = _convert(node)
    assert recording.run.condition == "alone"


def test_random_set_points_are_told_from_random_levels(node: Path) -> None:
    ticks = _ticks(500.0, 100.0, "excite")
    for tick in ticks:
        tick.decision.action.extend([0] * len(SET_POINTS.sizes))
    _leave(node, ticks)
    _log(node, (500.0, 600.0))
    _, (recording,) = _convert(node)
    assert recording.run.arm == "excite:table=set-points"


def test_logs_that_were_rotated_are_read_together(node: Path) -> None:
    _leave(node, _ticks(500.0, 100.0))
    _log(node, (500.0, 560.0))
    (node / "requests.lines").rename(node / "requests.lines.1")
    _log(node, (560.0, 600.0))
    logs = [node / "requests.lines.1", node / "requests.lines"]
    made, _ = _convert(node, requests=logs)
    assert made.requests == 100


@pytest.mark.parametrize("clock_s", [0.0, BOOT_S], ids=["since-boot", "unix-time"])
def test_what_a_rotated_log_no_longer_holds_is_in_the_ticks(node: Path, clock_s: float) -> None:
    _leave(node, _with_requests(_ticks(500.0, 400.0)))
    _log(node, (640.0, 900.0), clock_s=clock_s)
    made, recordings = _convert(node, most_piece_s=100.0)
    from_log = [20.0 in np.round(one.requests.sojourn_ms, 3) for one in recordings]
    assert from_log == [False, False, True, True], "the second begins before the log"
    assert all(one.requests.scheduled_s[0] < one.run.start_s + 2.0 for one in recordings)
    assert "requests of 2 recordings are those of the ticks" in made.summary


def test_a_log_whose_first_request_comes_late_has_more_to_say_than_the_ticks(node: Path) -> None:
    _leave(node, _with_requests(_ticks(500.0, 600.0)))
    (node / "requests.lines").write_text(
        "".join(f"{second} {second + 0.02} 1\n" for second in range(530, 1100, 20))
    )
    made, _ = _convert(node)
    assert made.requests == 29
    assert "of the ticks" not in made.summary


def _clock_set(ticks: list[pb.TickRecord], by_s: float) -> list[pb.TickRecord]:
    """The same ticks by a system clock that was set."""
    for tick in ticks:
        tick.wall_time_s += by_s
    return ticks


def _logs(node: Path, *spans: tuple[tuple[float, float], float]) -> list[Path]:
    """A log of each span, by a system clock that is ahead by so much."""
    paths = []
    for number, (span_s, ahead_s) in enumerate(spans):
        _log(node, span_s, clock_s=BOOT_S + ahead_s)
        paths.append((node / "requests.lines").rename(node / f"requests.{number}"))
    return paths


def test_requests_stay_where_they_were_when_the_system_clock_is_set(node: Path) -> None:
    _leave(node, _ticks(500.0, 100.0), _clock_set(_ticks(600.5, 100.0), 3600.0))
    logs = _logs(node, ((500.0, 600.0), 0.0), ((601.0, 701.0), 3600.0))
    made, (before, after) = _convert(node, requests=logs)
    assert made.requests == 200
    for recording, ends_s in ((before, [500.0, 599.0]), (after, [601.0, 700.0])):
        np.testing.assert_allclose(recording.requests.scheduled_s[[0, -1]], ends_s, atol=1e-3)


def test_a_tick_that_takes_long_is_not_taken_for_a_clock_that_was_set(node: Path) -> None:
    ticks = _ticks(500.0, 100.0)
    ticks[100].timings.sense_ms, ticks[100].timings.apply_ms = 300.0, 100.0
    _clock_set(ticks[100:101], 0.4)
    _leave(node, ticks)
    made, _ = _convert(node, requests=_logs(node, ((500.0, 600.0), 0.0)))
    assert (len(made.recordings), made.requests) == (1, 100)


def test_unix_times_that_came_twice_tell_no_requests(node: Path) -> None:
    _leave(
        node,
        _with_requests(_ticks(500.0, 100.0)),
        _with_requests(_clock_set(_ticks(600.5, 100.0), -50.0)),
        _with_requests(_clock_set(_ticks(701.0, 100.0, "none"), -50.0)),
    )
    logs = _logs(node, ((500.0, 600.0), 0.0), ((601.0, 801.0), -50.0))
    _, recordings = _convert(node, requests=logs)
    from_log = [20.0 in np.round(one.requests.sojourn_ms, 3) for one in recordings]
    assert from_log == [False, False, True]


def test_remains_of_a_crash_or_a_reboot_are_reported(node: Path) -> None:
    _leave(node, _ticks(9000.0, 70.0), _ticks(20.0, 80.0))
    with (node / "ticks.frames").open("ab") as file:
        file.write(b"torn")
    _log(node, (20.0, 100.0))
    made, (recording,) = _convert(node)
    assert (made.ticks, made.left_out_ticks, made.torn_bytes) == (161, 141, 4)
    assert recording.run.start_s == 20.0
    for said in ("161 ticks", "141 ticks from before", "4 bytes"):
        assert said in made.summary


@pytest.mark.parametrize("removed", [1, 2])
def test_ticks_that_are_removed_meanwhile_take_no_others_with_them(
    node: Path, monkeypatch: pytest.MonkeyPatch, removed: int
) -> None:
    parts = [_ticks(9000.0, 70.0), _ticks(20.0, 80.0), _ticks(101.0, 300.0)]
    readings = iter([parts, parts[removed:], parts[removed:]])
    monkeypatch.setattr(
        tick_requests, "read_ticks", lambda _file: itertools.chain(*next(readings))
    )
    _leave(node, *parts)
    _log(node, (20.0, 401.0))
    made, recordings = _convert(node, most_piece_s=81.0)
    starts_s = [recording.run.start_s for recording in recordings]
    assert starts_s == [20.0, 101.0, 182.0, 263.0][removed - 1 :]
    assert ("that the daemon removed" in str(made.left_out_s)) is (removed == 2)


def _refused(node: Path, **changed: Any) -> StallwardError:
    places = {"source": node, "out": node / "out", "config": node / "stallward.toml"} | changed
    source, out = places.pop("source"), places.pop("out")
    before = sorted(node.iterdir())
    with pytest.raises(StallwardError) as caught:
        convert_frames(source, out, name="edge", **places)
    assert sorted(node.iterdir()) == before, "something was left behind"
    return caught.value


def test_frames_and_files_that_cannot_be_used_are_refused(node: Path) -> None:
    assert isinstance(_refused(node), UsageError)  # no frames
    _leave(node, _ticks(500.0, 0.0))
    assert isinstance(_refused(node), RecordingError)  # one tick lasts no time
    _leave(node, _ticks(501.0, 9.0))
    assert "10 s are in pieces under 60 s" in str(_refused(node))
    _leave(node, _ticks(511.0, 90.0))
    assert "are with fewer than 20 requests" in str(_refused(node)), "neither log nor ticks"
    assert isinstance(_refused(node, requests=[node / "missing"]), UsageError)
    os.mkfifo(node / "fifo")
    said = str(_refused(node, requests=[node / "fifo"]))
    assert "a FIFO, which keeps nothing" in said, "and it is not waited for"
    assert "typo.toml" in str(_refused(node, config=node / "typo.toml"))
    (node / "foreign.frames").write_text("hello, world")
    assert isinstance(_refused(node, source=node / "foreign.frames"), FramesError)
    (node / "out").mkdir()
    assert "exists already" in str(_refused(node))


def test_a_configuration_that_does_not_fit_the_trace_is_refused(node: Path) -> None:
    _leave(node, _ticks(500.0, 90.0))
    config = load_config(node / "stallward.toml")
    other = node / "other.toml"
    other.write_text(config_toml(replace(config, background=())))
    assert "1 slots, and the configuration 0" in str(_refused(node, config=other))
    latency = PrometheusLatency(url="http://127.0.0.1:1/", metric="m")
    other.write_text(config_toml(replace(config, latency=latency)))
    named = [node / "requests.lines"]
    assert "no [latency] of lines" in str(_refused(node, config=other, requests=named))


def _with_requests(ticks: list[pb.TickRecord]) -> list[pb.TickRecord]:
    """Each tick tells of 9 requests of about 5 ms; every tenth also of one of about 100 ms."""
    for number, tick in enumerate(ticks):
        new = tick.sample.latency.new_requests
        new.buckets.append(426)
        new.counts.append(9)
        if number % 10 == 0:
            new.buckets.append(576)
            new.counts.append(1)
    return ticks


@pytest.mark.parametrize("log", ["missing", "a FIFO", "without times"])
def test_without_a_log_the_requests_are_those_of_the_ticks(node: Path, log: str) -> None:
    """So a recording of a node has the percentiles of any block of it."""
    _leave(node, _with_requests(_ticks(500.0, 100.0)))
    if log == "a FIFO":
        os.mkfifo(node / "requests.lines")
    elif log == "without times":
        (node / "requests.lines").write_text("no times here\n")
    made, (recording,) = _convert(node)
    ticks = made.ticks
    assert made.requests == pytest.approx(9 * ticks + ticks / 10, abs=10), "not those before it"
    assert recording.requests.ok.all()
    assert np.diff(recording.requests.scheduled_s).min() >= 0.0
    fast_ms, slow_ms = middle_ms(426), middle_ms(576)
    assert set(np.round(recording.requests.sojourn_ms, 1)) == {
        round(fast_ms, 1),
        round(slow_ms, 1),
    }
    assert np.quantile(recording.requests.sojourn_ms, 0.5) == pytest.approx(fast_ms, rel=1e-3)
    assert np.quantile(recording.requests.sojourn_ms, 0.999) == pytest.approx(slow_ms, rel=1e-3)
    assert measure_recording(recording.path).latency_ms.size > 0


@pytest.mark.parametrize("rate_per_s", [20.0, 2.8])
@pytest.mark.parametrize(("arrivals", "low", "high"), [("steady", 0.0, 0.4), ("random", 0.8, 1.2)])
def test_steady_arrivals_stay_steady_and_random_ones_random(
    node: Path, rate_per_s: float, arrivals: str, low: float, high: float
) -> None:
    rng = np.random.default_rng(1)
    gaps_s = (
        rng.exponential(1.0 / rate_per_s, round(240.0 * rate_per_s))
        if arrivals == "random"
        else np.full(round(240.0 * rate_per_s), 1.0 / rate_per_s)
    )
    ends_s = 500.0 + np.cumsum(gaps_s)
    ticks = _ticks(500.0, 240.0)
    for tick in ticks:
        new = tick.sample.latency.new_requests
        new.buckets.append(426)
        new.counts.append(int(((ends_s > tick.time_s - 0.5) & (ends_s <= tick.time_s)).sum()))
    _leave(node, ticks)
    _, (recording,) = _convert(node)
    gaps_s = np.diff(recording.requests.scheduled_s)
    assert low <= gaps_s.std() / gaps_s.mean() <= high
    assert recording.requests.end_s.max() <= ticks[-1].time_s + 1e-6


def test_a_log_has_more_to_say_than_the_ticks(node: Path) -> None:
    _leave(node, _with_requests(_ticks(500.0, 100.0)))
    _log(node, (500.0, 600.0))
    assert _convert(node)[0].requests == 100


def test_more_requests_than_fit_are_refused(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tick_requests, "MOST_REQUESTS", 100)
    _leave(node, _with_requests(_ticks(500.0, 100.0)))
    assert "more than 100" in str(_refused(node))


def test_the_command_writes_the_recordings_and_a_summary(
    node: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _leave(node, _ticks(500.0, 90.0))
    _log(node, (500.0, 600.0))
    out = node / "out"
    command = ["record", "edge", "--from", str(node), "--config", str(node / "stallward.toml")]
    assert main([*command, "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert printed.out.strip() == str(out / "0001-ppo")
    assert "1 recordings: 181 ticks of 90 s, 90 requests" in printed.err
    assert load_recording(out / "0001-ppo").run.scenario == "edge"
    assert main(command) == 2
    assert "--out" in capsys.readouterr().err


def test_pods_that_come_and_go_are_no_other_configuration(node: Path) -> None:
    config = load_config(node / "stallward.toml")
    background = tuple(
        SlotConfig(name=f"batch-{number}", pod=PodConfig(role="background")) for number in (1, 2)
    )
    (node / "stallward.toml").write_text(config_toml(replace(config, background=background)))
    first, then = (_ticks(500.0 + 100.5 * k, 100.0, units_per_s=None) for k in range(2))
    for number, tick in enumerate([*first, *then]):
        tick.sequence = number
        pod = f"kubepods.slice/kubepods-besteffort.slice/pod{1 + (tick.time_s > 600.2)}.slice"
        tick.sample.slots[0].name = pod
        tick.sample.slots.add(name="stallward-unbound/batch-2")
        tick.sample.slot_states.add()
    _leave(node, first, then)
    _log(node, (400.0, 800.0))
    made, recordings = _convert(node)
    assert [one.run.end_s - one.run.start_s for one in recordings] == [100.0, 100.0]
    assert made.left_out_s == ()
    for one in recordings:
        assert one.units.rate_per_s(0, one.run.start_s, one.run.end_s) == pytest.approx(0.5)
        assert one.units.rate_per_s(1, one.run.start_s, one.run.end_s) == 0.0, (
            "an empty slot does no work"
        )
    assert [slot.units_per_s > 0.4 for slot in estimate_exogenous("edge", recordings).slots] == [
        True,
        False,
    ]


def test_a_pod_says_of_which_node_it_is(node: Path) -> None:
    _leave(node, _ticks(500.0, 100.0))
    _log(node, (400.0, 700.0))
    command = ["record", "edge", "--from", str(node), "--config", str(node / "stallward.toml")]
    assert main([*command, "--node", "edge-7.example.org", "--out", str(node / "out")]) == 0
    assert RecordingFolder.open(node / "out" / "0001-ppo").node == "edge-7.example.org"


MIDNIGHT_S = 6_400.0
"""CLOCK_MONOTONIC at the first midnight (UTC) after the boot."""
NEXT_DAY = date(2023, 11, 15)


def test_a_day_gives_the_same_recordings_each_time(node: Path) -> None:
    _log(node, (MIDNIGHT_S - 300.0, MIDNIGHT_S + 1300.0))
    ticks = _ticks(MIDNIGHT_S - 250.0, 1500.0)

    def convert(kept: list[pb.TickRecord], out: str) -> set[str]:
        _leave(node, kept)
        made = convert_frames(
            node,
            node / out,
            config=node / "stallward.toml",
            name="edge",
            days=(NEXT_DAY, NEXT_DAY),
        )
        (node / "ticks.frames").unlink()
        assert set(dict(made.left_out_s)) <= {"of other days", "in pieces under 60 s"}
        assert all(load_recording(path).run.start_s >= MIDNIGHT_S for path in made.recordings)
        return {RecordingFolder.open(path).sha256() for path in made.recordings}

    once = convert(ticks[:2000], "once")  # until 750 s after midnight
    again = convert(ticks[300:], "again")  # longer, and what was first is gone

    assert len(once) == len(again) == 2
    assert len(once & again) == 1, "the ten minutes that were over"


def test_a_day_without_a_tick_is_refused(node: Path) -> None:
    _leave(node, _ticks(10.0, 200.0))
    _log(node, (10.0, 210.0))
    with pytest.raises(RecordingError, match=r"No tick of .* is of these days"):
        _convert(node, days=(NEXT_DAY, None))


TWO = (("db", 10.0, 5), ("web", 50.0, 2))
"""Name, target and requests a tick of two applications."""


def _of_two(ticks: list[pb.TickRecord]) -> list[pb.TickRecord]:
    """The same ticks of two applications, each with its requests of about 5 ms."""
    for tick in ticks:
        for name, slo_ms, count in TWO:
            one = tick.sample.applications.add(name=name, slo_ms=slo_ms)
            one.group.name = f"edge/{name}"
            one.latency.p95_ms = 5.0
            one.latency.new_requests.buckets.append(426)
            one.latency.new_requests.counts.append(count)
    return ticks


def _protect_two(node: Path, **web: Any) -> None:
    config = load_config(node / "stallward.toml")
    protected = (
        ProtectedConfig(name="db", group="edge/db", slo_ms=10.0),
        ProtectedConfig(name="web", group="edge/web", slo_ms=50.0, **web),
    )
    two = replace(config, protected=protected, latency=None)
    (node / "stallward.toml").write_text(config_toml(two))


def test_a_node_with_two_applications_has_the_requests_and_samples_of_each(node: Path) -> None:
    _protect_two(node)
    _leave(node, _of_two(_ticks(500.0, 100.0)))
    config = node / "stallward.toml"
    made = convert_frames(node, node / "out", config=config, name="edge")
    recording = load_recording(made.recordings[0], several=True)
    assert recording.run.other_applications == ("web",)
    assert recording.run.slo_ms == 60.0, "what the daemon compared with"
    assert recording.requests.ok.size == pytest.approx(5 * 201, abs=5)
    assert recording.others["web"].ok.size == pytest.approx(2 * 201, abs=2)
    assert made.requests == recording.requests.ok.size + recording.others["web"].ok.size
    db, web = application_samples(recording.ticks)[0]
    assert (db.name, db.slo_ms, web.group.name) == ("db", 10.0, "edge/web")
    with pytest.raises(RecordingError, match="several protected applications"):
        RecordingFolder.open(recording.path).load()


def test_the_log_of_one_application_is_its_own(node: Path) -> None:
    path = node / "requests.lines"
    _protect_two(node, latency=LinesLatency(path=path, start="0", end="1", ok="2"))
    _leave(node, _of_two(_ticks(500.0, 100.0)))
    _log(node, (500.0, 600.0))
    config = node / "stallward.toml"
    made = convert_frames(node, node / "out", config=config, name="edge")
    recording = load_recording(made.recordings[0], several=True)
    assert recording.others["web"].sojourn_ms.tolist() == pytest.approx([20.0] * 100)
    assert recording.requests.ok.size > 900, "those of the ticks"


def test_a_new_target_of_one_application_is_another_configuration(node: Path) -> None:
    earlier = _of_two(_ticks(500.0, 100.0))
    for tick in earlier:
        tick.sample.applications[1].slo_ms = 40.0
    _protect_two(node)
    _leave(node, earlier, _of_two(_ticks(601.0, 100.0)))
    made = convert_frames(node, node / "out", config=node / "stallward.toml", name="edge")
    assert len(made.recordings) == 1
    assert dict(made.left_out_s) == {"under an earlier configuration": 100.0}


def test_other_applications_than_those_of_the_ticks_are_refused(node: Path) -> None:
    _leave(node, _of_two(_ticks(500.0, 100.0)))
    assert "2 protected applications: db, web, and the configuration 1" in str(_refused(node))
    _protect_two(node)
    log = [node / "requests.lines"]
    assert "--requests names a log of one application" in str(_refused(node, requests=log))
