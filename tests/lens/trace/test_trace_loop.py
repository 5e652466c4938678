"""The loop of a trace, its file, and the command that it starts."""

from __future__ import annotations

import csv
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stallward.lens.errors import LensError
from stallward.lens.trace.columns import Column, Table, Value
from stallward.lens.trace.command import Command
from stallward.lens.trace.csv_file import CsvSink
from stallward.lens.trace.run import End, Summary, trace
from stallward.lens.trace.tables import TABLES
from stallward.lens.trace.tick import Layout, Tick
from stallward.lens.trace.waiting import Stop, stopping_at_signals

TABLE = Table(
    kind="invented",
    what="an invented thing",
    columns=(
        Column(name="size_bytes", source="nowhere", meaning="a size"),
        Column(name="name", source="nowhere", meaning="a name"),
    ),
    key=("name",),
)
ROWS: list[dict[str, Value]] = [{"size_bytes": 5, "name": 'a "b", c'}, {"name": "d"}]


class Invented:
    """A tracer and a target whose behaviour a test sets."""

    table = TABLE
    missing: tuple[str, ...] = ()
    pid: int | None = None
    name = "an invention"

    def __init__(self, *, reading_s: float = 0.0, ends_after: int = 1 << 30) -> None:
        self.reads = 0
        self._reading_s = reading_s
        self._ends_after = ends_after

    def read(self) -> list[dict[str, Value]]:
        self.reads += 1
        time.sleep(self._reading_s)
        return ROWS

    def pids(self) -> list[int]:
        return []

    def ended(self) -> bool:
        return self.reads >= self._ends_after

    def close(self) -> None:
        pass


class Kept:
    """Keeps the ticks."""

    def __init__(self) -> None:
        self.ticks: list[Tick] = []

    def take(self, tick: Tick) -> None:
        self.ticks.append(tick)


@pytest.fixture
def stop() -> Iterator[Stop]:
    stop = Stop()
    yield stop
    stop.close()


def run(
    invented: Invented, stop: Stop, *, period_s: float = 0.01, seconds: float | None = None
) -> tuple[Summary, list[Tick]]:
    summary, kept = Summary(), Kept()
    trace(
        invented,
        invented,
        [kept],
        stop,
        period_s=period_s,
        seconds=seconds,
        summary=summary,
    )
    return summary, kept.ticks


def test_a_trace_lasts_as_long_as_it_should(stop: Stop) -> None:
    summary, ticks = run(Invented(), stop, seconds=0.1)
    assert summary.end is End.TIME
    assert summary.ticks + summary.lost == 10
    assert summary.rows == 2 * summary.ticks
    assert [tick.number for tick in ticks] == sorted({tick.number for tick in ticks})
    assert all(b.time_us > a.time_us for a, b in itertools.pairwise(ticks))


def test_ticks_that_reading_takes_too_long_for_are_lost_counted_and_said(stop: Stop) -> None:
    summary, ticks = run(Invented(reading_s=0.025, ends_after=4), stop)
    assert summary.lost >= 6
    assert ticks[-1].number - summary.ticks <= summary.lost
    assert f"lost ticks {summary.lost} (" in summary.text


def test_a_trace_ends_with_its_target_and_when_it_is_told(stop: Stop) -> None:
    summary, ticks = run(Invented(ends_after=3), stop)
    assert (summary.end, len(ticks)) == (End.TARGET, 4), "once more for what it did at last"
    timer = threading.Timer(0.05, stop.request)
    timer.start()
    summary, _ = run(Invented(), stop, period_s=30.0)
    assert (summary.end, summary.ticks) == (End.STOPPED, 1)
    timer.join()


def test_waiting_ends_when_the_process_does(stop: Stop) -> None:
    process = subprocess.Popen(["sleep", "0.1"])
    stop.watch(process.pid)
    stop.wait(time.monotonic() + 60.0)
    assert not stop.requested
    assert process.wait() == 0
    before_s = time.monotonic()
    stop.wait(before_s + 0.02)
    assert time.monotonic() >= before_s + 0.02, "it must not spin afterwards"


def test_a_signal_ends_a_trace_once() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stopping_at_signals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.requested
        assert signal.getsignal(signal.SIGTERM) == before, "the next one acts as usual"
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_file_has_a_line_for_each_row(tmp_path: Path) -> None:
    path = tmp_path / "new/trace.csv"
    sink = CsvSink.create(path, Layout(table=TABLE))
    sink.take(Tick(number=3, time_us=7, wall_us=1_800_000_000_000_042, rows=ROWS))
    sink.close()
    with path.open(newline="") as file:
        lines = list(csv.reader(file))
    assert lines == [
        ["tick", "time_us", "wall_time", "size_bytes", "name"],
        ["3", "7", "2027-01-15T08:00:00.000042Z", "5", 'a "b", c'],
        ["3", "7", "2027-01-15T08:00:00.000042Z", "", "d"],
    ]


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(LensError, match=r"cannot be written.*Give another --out"):
        CsvSink.create(tmp_path, Layout(table=TABLE))
    sink = CsvSink.create(Path("/dev/full"), Layout(table=TABLE))
    tick = Tick(number=1, time_us=0, wall_us=0, rows=ROWS)
    with pytest.raises(LensError, match=r"/dev/full cannot be written on: No space left"):
        sink.take(tick)
    sink.close()


def test_a_pipe_that_nobody_reads_ends_the_trace(stop: Stop) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    sink = CsvSink(writing, "stdout", Layout(table=TABLE), stop.request)
    invented, summary = Invented(), Summary()
    trace(invented, invented, [sink], stop, period_s=0.01, seconds=None, summary=summary)
    assert (summary.end, summary.ticks) == (End.STOPPED, 1)
    sink.close()


def test_a_command_hands_its_exit_code_on() -> None:
    assert Command(["sh", "-c", "exit 7"]).end(grace_s=60.0) == 7
    assert Command(["sh", "-c", "kill -9 $$"]).end(grace_s=60.0) == 128 + signal.SIGKILL
    assert Command(["sleep", "60"]).end() == 128 + signal.SIGTERM


def test_a_command_does_not_survive_an_impatient_user(monkeypatch: pytest.MonkeyPatch) -> None:
    command = Command(["sleep", "60"])
    monkeypatch.setattr(Command, "_ended_within", interrupted)
    with pytest.raises(KeyboardInterrupt):
        command.end(grace_s=60.0)
    with pytest.raises(ProcessLookupError):
        os.kill(command.pid, 0)


def interrupted(_command: Command, _seconds: float) -> bool:
    raise KeyboardInterrupt


def test_a_command_that_does_not_exist_is_named() -> None:
    with pytest.raises(LensError, match="no-such-program cannot be started: No such file"):
        Command(["no-such-program"])


@pytest.mark.slow
def test_a_command_ends_with_a_trace_that_is_killed() -> None:
    code = (
        "import time\n"
        "from stallward.lens.trace.command import Command\n"
        "print(Command(['sleep', '600']).pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    tracing = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert tracing.stdout is not None
    command = os.pidfd_open(int(tracing.stdout.readline()))
    tracing.kill()
    tracing.wait()
    tracing.stdout.close()
    try:
        signal.pidfd_send_signal(command, 0)
        end_s = time.monotonic() + 60.0
        while time.monotonic() < end_s:
            signal.pidfd_send_signal(command, 0)
            time.sleep(0.01)
        pytest.fail("the command is still there")
    except ProcessLookupError:
        pass
    finally:
        os.close(command)


def test_the_name_of_a_process_reaches_no_terminal_as_it_is(tmp_path: Path) -> None:
    (table,) = (one for one in TABLES if one.kind == "largest")
    sink = CsvSink.create(tmp_path / "t.csv", Layout(table=table))
    sink.take(Tick(number=0, time_us=1, wall_us=1, rows=[{"name": "\x1b]0;pw\x07\x1b[2J\n"}]))
    sink.close()
    written = (tmp_path / "t.csv").read_text()
    assert "?]0;pw??[2J?" in written
    assert all(line.isprintable() for line in written.split("\n"))
