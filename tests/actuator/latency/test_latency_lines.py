"""Latencies from a file or FIFO of lines, read without ever blocking."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallward.actuator.errors import ConfigError, SensorError
from stallward.actuator.latency import line_source
from stallward.actuator.latency.line_format import LineFormat
from stallward.actuator.latency.line_source import PIECE_BYTES, TICK_PIECES, LineSource

MS = LineFormat(latency="0", latency_unit_s=1e-3)


@pytest.mark.parametrize(
    ("line_format", "line", "latency_ms"),
    [
        (MS, "12.5 x", 12.5),
        (LineFormat(start="0", end="2"), "1.0 1.1 1.25 1", 250.0),
        (LineFormat(start="0", end="1", time_unit_s=1e-6), "1000,4000", None),
        (LineFormat(start="0", end="1", separator=",", time_unit_s=1e-6), "1000,4000", 3.0),
        (LineFormat(start="0", end="1", end_us="2"), "10 11 500000", 1500.0),
        (LineFormat(latency="2", latency_unit_s=1e-6), "0 1 4321 0 5 6", 4.321),
        (LineFormat(latency="l", pattern=r"took=(?P<l>[\d.]+)s"), "GET / took=0.5s ok", 500.0),
        (LineFormat(latency="l", pattern=r"took=(?P<l>\d+)?"), "took=", None),
        (MS, "nan", None),
        (MS, "inf", None),
        (MS, "-1", None),
        (MS, "1e300", None),
        (MS, "abc", None),
        (MS, "1_0", None),
        (MS, "١٢", None),
        (MS, "\u00b2", None),
        (MS, "0x10", None),
        (MS, "1,5", None),
        (MS, "infinity", None),
        (LineFormat(start="0", end="1"), "1_0 20", None),
        (LineFormat(start="0", end="1"), "1 ٢", None),
        (LineFormat(start="0", end="1", end_us="2"), "1 2 1_0", None),
        (LineFormat(latency="7"), "1 2", None),
    ],
)
def test_one_line(line_format: LineFormat, line: str, latency_ms: float | None) -> None:
    if latency_ms is None:
        with pytest.raises((ValueError, TypeError)):
            line_format.latency_ms(line)
    else:
        assert line_format.latency_ms(line) == pytest.approx(latency_ms)


def test_failed_requests_are_no_completions() -> None:
    answered = LineFormat(start="0", end="1", ok="2")
    assert answered.latency_ms("1 2 1") == 1000.0
    for text in ("0", "false", "NO"):
        assert answered.latency_ms(f"1 2 {text}") is None


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"start": "0"},
        {"latency": "x"},
        {"latency": "-1"},
        {"latency": "0", "separator": ""},
        {"latency": "0", "latency_unit_s": 0.0},
        {"latency": "0", "time_unit_s": float("nan")},
        {"latency": "l", "pattern": "("},
        {"latency": "l", "pattern": "(?P<other>.)"},
    ],
)
def test_formats_that_cannot_be_used_are_refused(bad: dict[str, str | float]) -> None:
    with pytest.raises(ConfigError):
        LineFormat(**bad)  # type: ignore[arg-type]


def test_the_last_second_is_summed_up(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.touch()
    source = LineSource(path, MS)
    empty = source.read(10.0)
    assert (empty.completed, empty.mean_ms, empty.last_completion_age_s) == (0, None, None)
    path.write_text("".join(f"{i}\n" for i in range(1, 101)))
    sample = source.read(10.1)
    assert (sample.completed, sample.mean_ms, sample.p95_ms, sample.max_ms) == (100, 50.5, 95, 100)
    with path.open("a") as file:
        file.write("500\n")
    later = source.read(10.6)
    assert (later.completed, later.max_ms, later.last_completion_age_s) == (101, 500, 0)
    last = source.read(11.2)
    assert (last.completed, last.mean_ms, last.completed_total) == (1, 500, 101)
    gone = source.read(12.0)
    assert (gone.completed, gone.p95_ms, gone.completed_total) == (0, None, 101)
    assert gone.last_completion_age_s == pytest.approx(1.4)
    source.close()


def test_a_log_that_is_not_there_yet_is_a_fault_and_no_silence(tmp_path: Path) -> None:
    """Else nobody is told of a path that is wrong, and the application passes for idle."""
    path = tmp_path / "lines"
    source = LineSource(path, MS)
    with pytest.raises(SensorError, match="no such file yet"):
        source.read(0.0)
    assert source.fault == f"{path}: there is no such file yet"
    path.write_text("1\n")
    assert source.read(0.1).completed_total == 1
    assert source.fault == ""
    source.close()


def test_lines_written_before_the_start_are_not_counted(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("1\n2\n")
    source = LineSource(path, MS)
    assert source.read(0.0).completed_total == 0
    with path.open("a") as file:
        file.write("3\n")
    assert source.read(0.1).completed_total == 1
    source.close()


def test_a_line_in_pieces_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    source = LineSource(path, MS)
    with path.open("a") as file:
        for piece, total in (("1", 0), ("2.5", 0), ("\n7", 1), ("\n", 2)):
            file.write(piece)
            file.flush()
            assert source.read(1.0).completed_total == total
    assert source.read(1.0).max_ms == 12.5
    assert source.counts.malformed == 0
    source.close()


def test_truncation_and_rotation_are_followed(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("")
    source = LineSource(path, MS)
    path.write_text("1\n1\n1\n")
    assert source.read(0.0).completed_total == 3
    path.write_text("2\n")  # truncated in place
    assert source.read(0.1).completed_total == 4
    path.rename(tmp_path / "lines.1")
    with (tmp_path / "lines.1").open("a") as file:
        file.write("3\n")
    path.write_text("4\n")
    totals = [source.read(0.2 + i / 10).completed_total for i in range(4)]
    assert totals[-1] == 6
    path.unlink()
    assert source.read(0.9).completed_total == 6
    source.close()


def test_bad_lines_are_counted_and_the_rest_is_used(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    source = LineSource(path, MS)
    long = b"9" * 300_000
    path.write_bytes(b"1\nx\n\n\xff\xfe\n" + long + b"\n2\n")
    for tick in range(10):
        sample = source.read(tick / 100)
    assert sample.completed_total == 2
    assert (source.counts.accepted, source.counts.malformed) == (2, 3)
    source.close()


def test_old_news_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    source = LineSource(path, MS)
    line = b"5.000\n"
    path.write_bytes(line * PIECE_BYTES * 8)
    for tick in range(40):
        after = source.read(0.1 + tick / 100).completed_total
    assert source.counts.lost == 1
    assert after <= PIECE_BYTES // len(line)
    assert source.counts.malformed == 0
    source.close()


def test_the_work_of_a_tick_is_bounded_although_the_writer_never_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_source, "TICK_CPU_S", 60.0)
    path = tmp_path / "fifo"
    os.mkfifo(path)
    source = LineSource(path, MS)
    read_sizes: list[int] = []

    def endless(fd: int, size: int) -> bytes:
        read_sizes.append(size)
        return b"5".ljust(1023) + b"\n" * (size - 1023)

    with monkeypatch.context() as patch:
        patch.setattr(os, "read", endless)
        source.read(0.0)
    assert read_sizes == [PIECE_BYTES] * TICK_PIECES
    source.close()


def test_no_more_is_read_while_lines_wait_for_processor_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_source, "TICK_CPU_S", 1e-3)
    path = tmp_path / "lines"
    source = LineSource(path, MS)
    lines = 2 * PIECE_BYTES // 4
    path.write_bytes(b"5.0\n" * lines)
    assert source.read(0.0).completed_total < lines // 2
    for tick in range(lines):
        if source.read(tick / 1000).completed_total == lines:
            break
    assert (source.counts.accepted, source.counts.malformed, source.counts.lost) == (lines, 0, 0)
    source.close()


BUSY_TICK = 500
"""Requests of half a second, the time between two ticks of a calm node, at 1,000 a second."""


def test_a_busy_log_is_read_to_its_end_in_each_tick_of_a_calm_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_source, "TICK_CPU_S", 60.0)
    path = tmp_path / "lines"
    source = LineSource(path, MS)
    for tick in range(1, 21):
        with path.open("ab") as log:
            log.write(((b"%d " % tick).ljust(249, b"x") + b"\n") * BUSY_TICK)
        sample = source.read(tick / 2)
        assert sample.max_ms == pytest.approx(tick)
        assert sample.completed_total == tick * BUSY_TICK
    assert source.counts.lost == 0
    source.close()


def test_an_application_that_writes_much_to_a_fifo_does_not_wait_for_the_next_tick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_source, "TICK_CPU_S", 60.0)
    path = tmp_path / "fifo"
    os.mkfifo(path)
    source = LineSource(path, MS)
    writer = os.open(path, os.O_WRONLY | os.O_NONBLOCK)  # a write that would wait raises
    for tick in range(1, 21):
        for _ in range(BUSY_TICK):
            os.write(writer, (b"%d " % tick).ljust(199, b"x") + b"\n")
        sample = source.read(tick / 2)
        assert sample.max_ms == pytest.approx(tick)
        assert sample.completed_total == tick * BUSY_TICK
    os.close(writer)
    source.close()


def test_a_fifo_that_holds_more_already_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    monkeypatch.setattr(line_source, "_LAG_BYTES", 2 * PIECE_BYTES)
    writer = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4 * PIECE_BYTES)
    source = LineSource(path, MS)
    assert fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ) == 4 * PIECE_BYTES
    os.close(writer)
    source.close()


def test_a_fifo_that_may_not_be_enlarged_is_read_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*arguments: int) -> int:
        raise PermissionError(arguments)

    monkeypatch.setattr(fcntl, "fcntl", forbidden)
    path = tmp_path / "fifo"
    os.mkfifo(path)
    source = LineSource(path, MS)
    with path.open("wb", buffering=0) as writer:
        writer.write(b"3\n")
        assert source.read(0.0).completed_total == 1
    source.close()


def test_a_fifo_is_read_without_a_writer_and_across_writers(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    started = time.monotonic()
    source = LineSource(path, MS)
    assert source.read(0.0).completed_total == 0
    for total in (1, 2):
        with path.open("wb", buffering=0) as writer:
            assert source.read(0.1).completed_total == total - 1
            writer.write(b"3\n")
            assert source.read(0.2).completed_total == total
        assert source.read(0.3).completed_total == total
    assert time.monotonic() - started < 1.0
    source.close()


def test_a_path_that_cannot_be_tailed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SensorError, match="neither a file nor a FIFO"):
        LineSource(tmp_path, MS)
    with pytest.raises(SensorError, match="neither a file nor a FIFO"):
        LineSource(Path("/dev/zero"), MS)


@given(st.binary(max_size=300), st.integers(1, 40))
def test_hostile_bytes_in_any_pieces_never_raise(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, size: int
) -> None:
    path = tmp_path_factory.mktemp("lines") / "lines"
    source = LineSource(path, MS)
    with path.open("ab", buffering=0) as file:
        for start in range(0, len(content), size):
            file.write(content[start : start + size])
            source.read(0.0)
        file.write(b"\n1\n")
    assert source.read(0.0).completed >= 1
    source.close()


def test_a_line_that_is_too_long_is_bad_also_if_it_comes_in_one_piece(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.touch()
    source = LineSource(path, LineFormat(latency="0"))
    path.write_bytes(b"5 " + b"x" * 60_000 + b"\n7 x\n")
    sample = source.read(10.0)
    assert (sample.completed, sample.max_ms) == (1, 7000.0)
    source.close()
