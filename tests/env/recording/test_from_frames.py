"""Frames of a daemon on a real node become a recording that every tool opens."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.load import config_toml
from stallward.actuator.config.tables import (
    ControlConfig,
    JournalConfig,
    NodeConfig,
    ProtectedConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.errors import FramesError
from stallward.actuator.latency.config import LinesLatency
from stallward.actuator.record.frames import FrameWriter
from stallward.agent.errors import StallwardError, UsageError
from stallward.agent.latency_histogram import middle_ms
from stallward.env.errors import RecordingError
from stallward.env.recording import tick_requests
from stallward.env.recording.from_frames import Converted, convert_frames
from stallward.env.recording.recording import Recording, load_recording
from stallward.evaluation.cli import main
from stallward.evaluation.measures.block_measures import measure_recording
from stallward.proto.v1 import stallward_pb2 as pb

GIB = 1 << 30
BOOT_S = 1.7e9
"""CLOCK_REALTIME at CLOCK_MONOTONIC 0."""


def _ticks(start_s: float, count: int) -> list[pb.TickRecord]:
    ticks = []
    for i in range(count):
        at_s = start_s + 0.1 * i
        tick = pb.TickRecord(sequence=i, time_s=at_s, wall_time_s=BOOT_S + at_s)
        tick.sample.node.memory_total_bytes = 3 * GIB
        tick.sample.node.swap_total_bytes = GIB
        tick.sample.zone.memory_limit_bytes = 2 * GIB
        tick.sample.slots.add(name="edge/training")
        tick.sample.slot_states.add(paused=i >= count // 2)
        tick.decision.controller = "ppo" if i else "none"
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
        control=ControlConfig(controller="ppo", slo_ms=60.0),
    )
    (tmp_path / "stallward.toml").write_text(config_toml(config))
    return tmp_path


def _leave(node: Path, ticks: Sequence[pb.TickRecord]) -> None:
    writer = FrameWriter(node / "ticks.frames")
    for tick in ticks:
        writer.append(tick.SerializeToString())
    writer.close()


def _convert(node: Path) -> tuple[Converted, Recording]:
    made = convert_frames(node, node / "out", config=node / "stallward.toml", name="edge")
    return made, load_recording(node / "out")


@pytest.mark.parametrize("clock_s", [0.0, BOOT_S], ids=["since-boot", "unix-time"])
def test_ticks_and_the_log_become_a_recording(node: Path, clock_s: float) -> None:
    _leave(node, _ticks(500.0, 100))
    # before the daemon, two while it ran (one failed), after it
    log = ((400.0, 400.1, "1"), (501.0, 501.5, "1"), (505.0, 505.1, "no"), (600.0, 600.1, "1"))
    (node / "requests.lines").write_text(
        "".join(f"{start + clock_s:.3f} {end + clock_s:.3f} {ok}\n" for start, end, ok in log)
    )
    made, recording = _convert(node)
    assert (made.ticks, made.requests) == (100, 2)
    assert (recording.run.scenario, recording.run.arm, recording.run.slo_ms) == (
        "edge",
        "ppo",
        60.0,
    )
    assert recording.run.slot_names == ("training",)
    assert recording.run.slot_floors_bytes == (96 << 20,)
    assert (recording.run.sandbox_bytes, recording.run.node.memory_total_bytes) == (
        2 * GIB,
        3 * GIB,
    )
    assert recording.run.node.kind == "unknown", "not the machine that this runs on"
    np.testing.assert_allclose(recording.requests.scheduled_s, [501.0, 505.0], atol=1e-3)
    assert recording.requests.ok.tolist() == [True, False]
    measures = measure_recording(node / "out")
    assert measures.windows == 10
    assert measures.paused_s.sum() == pytest.approx(5.0, abs=0.2)


def test_remains_of_a_crash_or_a_reboot_are_reported(node: Path) -> None:
    _leave(node, [*_ticks(9000.0, 7), *_ticks(20.0, 30)])
    with (node / "ticks.frames").open("ab") as file:
        file.write(b"torn")
    made, recording = _convert(node)
    assert (made.ticks, made.left_out_ticks, made.torn_bytes) == (30, 7, 4)
    assert recording.run.start_s == 20.0
    for said in ("30 ticks", "7 ticks from before", "4 bytes"):
        assert said in made.summary


def test_a_fifo_keeps_no_requests_and_is_not_waited_for(node: Path) -> None:
    _leave(node, _ticks(500.0, 20))
    os.mkfifo(node / "requests.lines")
    assert _convert(node)[0].requests == 0


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


def test_without_a_log_the_requests_are_those_of_the_ticks(node: Path) -> None:
    """So a recording of a node has the percentiles of any block of it."""
    _leave(node, _with_requests(_ticks(500.0, 100)))
    os.mkfifo(node / "requests.lines")
    made, recording = _convert(node)
    assert made.requests == pytest.approx(910, abs=10), "those before the start are left out"
    assert recording.requests.ok.all()
    assert np.diff(recording.requests.scheduled_s).min() >= 0.0
    fast_ms, slow_ms = middle_ms(426), middle_ms(576)
    assert set(np.round(recording.requests.sojourn_ms, 2)) == {
        round(fast_ms, 2),
        round(slow_ms, 2),
    }
    later = recording.requests.where(recording.requests.scheduled_s >= 505.0)
    assert np.quantile(later.sojourn_ms, 0.5) == pytest.approx(fast_ms, rel=1e-3)
    assert np.quantile(later.sojourn_ms, 0.999) == pytest.approx(slow_ms, rel=1e-3)
    measures = measure_recording(node / "out")
    assert measures.latency_ms.size == made.requests


def test_a_log_has_more_to_say_than_the_ticks(node: Path) -> None:
    _leave(node, _with_requests(_ticks(500.0, 100)))
    (node / "requests.lines").write_text("501.0 501.5 1\n")
    assert _convert(node)[0].requests == 1


def test_a_log_without_times_leaves_it_to_the_ticks(node: Path) -> None:
    _leave(node, _with_requests(_ticks(500.0, 100)))
    (node / "requests.lines").write_text("no times here\n")
    assert _convert(node)[0].requests > 800


def test_more_requests_than_fit_are_refused(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tick_requests, "MOST_REQUESTS", 100)
    _leave(node, _with_requests(_ticks(500.0, 100)))
    assert "tell of 910 requests" in str(_refused(node))


def _refused(node: Path, **changed: Path) -> StallwardError:
    places = {"source": node, "out": node / "out", "config": node / "stallward.toml"} | changed
    source, out = places.pop("source"), places.pop("out")
    before = sorted(node.iterdir())
    with pytest.raises(StallwardError) as caught:
        convert_frames(source, out, name="edge", **places)
    assert sorted(node.iterdir()) == before, "something was left behind"
    return caught.value


def test_frames_and_files_that_cannot_be_used_are_refused(node: Path) -> None:
    assert isinstance(_refused(node), UsageError)  # no frames
    _leave(node, _ticks(500.0, 1))
    assert isinstance(_refused(node), RecordingError)  # one tick lasts no time
    _leave(node, _ticks(501.0, 9))
    assert isinstance(_refused(node, requests=node / "missing"), UsageError)
    assert "typo.toml" in str(_refused(node, config=node / "typo.toml"))
    (node / "foreign.frames").write_text("hello, world")
    assert isinstance(_refused(node, source=node / "foreign.frames"), FramesError)
    (node / "out").mkdir()
    assert "exists already" in str(_refused(node))


def test_the_command_writes_the_recording_and_a_summary(
    node: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _leave(node, _ticks(500.0, 20))
    out = str(node / "out")
    command = ["record", "edge", "--from", str(node), "--config", str(node / "stallward.toml")]
    assert main([*command, "--out", out]) == 0
    printed = capsys.readouterr()
    assert printed.out.strip() == out
    assert "20 ticks of 2 s, 0 requests" in printed.err
    assert load_recording(Path(out)).run.scenario == "edge"
    assert main(command) == 2
    assert "--out" in capsys.readouterr().err
