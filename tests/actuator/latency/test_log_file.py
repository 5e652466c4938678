"""Following a log that is truncated, exchanged or full of hostile lines."""

from __future__ import annotations

import errno
import os
import signal
import statistics
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stallward.actuator.errors import SensorError
from stallward.actuator.latency import line_source
from stallward.actuator.latency.counts import masked
from stallward.actuator.latency.line_format import PATTERN_LINE_BYTES, LineFormat
from stallward.actuator.latency.line_source import TICK_CPU_S, LineSource

MS = LineFormat(latency="0", latency_unit_s=1e-3)


def append(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)


@pytest.mark.parametrize(
    "regrown",
    [
        pytest.param(b"77.25\n" * 12, id="past the old offset"),
        pytest.param(b"77.25\n" * 3, id="less than the old offset"),
        pytest.param(b"99999.125\n" * 4, id="exactly to the old offset, then more"),
    ],
)
def test_a_log_that_is_truncated_and_regrows_between_two_reads_is_noticed(
    tmp_path: Path, regrown: bytes
) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"")
    source = LineSource(path, MS)
    append(path, b"1.5\n" * 10)
    assert source.read(0.0).completed_total == 10
    inode = path.stat().st_ino
    os.truncate(path, 0)
    append(path, regrown)
    source.read(0.1)
    append(path, b"42\n")
    for tick in range(3):
        sample = source.read(0.2 + tick / 10)
    assert path.stat().st_ino == inode
    assert sample.completed_total == 10 + regrown.count(b"\n") + 1, "nothing is torn or left out"
    counts = source.counts
    assert (counts.lost, counts.malformed) == (1, 0)
    source.close()


def failing(source: LineSource, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Have reading the present descriptor fail, as NFS does for a file that it lost."""
    opened = os.fstat(source._file._fd).st_ino
    pread, stale_fd = os.pread, source._file._fd

    def stale(fd: int, size: int, offset: int) -> bytes:
        if fd == stale_fd and os.fstat(fd).st_ino == opened:
            raise OSError(number, os.strerror(number))
        return pread(fd, size, offset)

    monkeypatch.setattr(os, "pread", stale)


def test_after_a_stale_handle_the_file_of_that_name_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"")
    source = LineSource(path, MS)
    failing(source, monkeypatch, errno.ESTALE)
    append(path, b"1\n")
    path.rename(tmp_path / "log.1")
    append(path, b"2\n3\n")
    with pytest.raises(SensorError, match="Stale"):
        source.read(0.0)
    assert source.read(0.1).completed_total == 2
    assert not source.fault
    source.close()


def test_after_a_failure_the_same_file_is_read_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read before must not come again as if it were new."""
    path = tmp_path / "log"
    path.write_bytes(b"0.5\n" * 100)
    source = LineSource(path, MS)
    append(path, b"1\n98")
    assert source.read(0.0).completed_total == 1
    with monkeypatch.context() as patch:
        failing(source, patch, errno.EIO)
        with pytest.raises(SensorError, match="Input/output"):
            source.read(0.1)
    append(path, b"7\n2\n")
    sample = source.read(0.2)
    assert sample.completed_total == 3
    assert sample.max_ms == pytest.approx(987.0)
    assert source.counts.lost == 0
    source.close()


def test_half_a_line_from_before_a_truncation_is_not_joined_with_what_follows(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"")
    source = LineSource(path, MS)
    append(path, b"1\n98")
    assert source.read(0.0).completed_total == 1
    os.truncate(path, 0)
    append(path, b"7\n8\n9\n")
    sample = source.read(0.1)
    assert sample.completed_total == 4
    assert sample.max_ms == pytest.approx(9.0)
    source.close()


def test_lines_that_come_after_a_rotation_made_the_new_file_are_read(tmp_path: Path) -> None:
    """As logrotate does with `create`: only then it tells the program to open the new file."""
    path = tmp_path / "log"
    path.touch()
    source = LineSource(path, MS)
    with path.open("ab", buffering=0) as writer:
        writer.write(b"1\n")
        assert source.read(0.0).completed_total == 1
        path.rename(tmp_path / "log.1")
        path.touch()
        assert source.read(0.1).completed_total == 1
        writer.write(b"2\n")
        assert source.read(0.2).completed_total == 2
    append(path, b"3\n")
    totals = [source.read(0.3 + tick / 10).completed_total for tick in range(2)]
    assert totals[-1] == 3
    source.close()


def test_a_writer_that_keeps_its_place_after_a_truncation_leaves_a_hole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"")
    source = LineSource(path, MS)
    with path.open("wb", buffering=0) as writer:
        writer.write(b"1\n" * 30_000)
        for tick in range(20):
            source.read(tick / 1000)
        os.truncate(path, 0)
        writer.write(b"5.5\n6.5\n")
        for tick in range(5):
            sample = source.read(0.5 + tick / 1000)
        writer.write(b"7.5\n")
        sample = source.read(0.6)
    assert (sample.completed_total, sample.max_ms) == (30_003, 7.5)
    assert (source.counts.lost, source.counts.malformed) == (1, 0)
    source.close()


def test_the_rest_of_a_line_that_was_begun_before_the_start_is_no_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"1\n123")
    source = LineSource(path, MS)
    append(path, b"45\n6\n")
    sample = source.read(0.0)
    assert (sample.completed, sample.max_ms) == (1, 6.0)
    source.close()


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 90)), min_size=1, max_size=12))
def test_no_torn_line_is_ever_read(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[bool, int]]
) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    path.touch()
    source = LineSource(path, MS)
    number = 100_000
    for tick, (truncates, lines) in enumerate(steps):
        if truncates:
            os.truncate(path, 0)
        append(path, b"".join(b"%d\n" % (number + line) for line in range(lines)))
        number += lines
        sample = source.read(tick / 1000)
        assert sample.completed_total == number - 100_000
        assert sample.max_ms == pytest.approx(number - 1)
    assert source.counts.malformed == 0
    source.close()


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (r"(?P<l>(\d+)+)$", b"1" * 60 + b"x"),
        (r"(.*)1(.*)2(.*)=(?P<l>\d+)", b"1" * 2000),
        (r".*q.*=(?P<l>\d+)", b"q" * 2000),
    ],
)
def test_lines_that_are_made_for_a_slow_pattern_cost_little(
    tmp_path: Path, pattern: str, line: bytes
) -> None:
    path = tmp_path / "log"
    path.touch()
    source = LineSource(path, LineFormat(latency="l", pattern=pattern, latency_unit_s=1e-3))
    append(path, (line + b"\n") * 10 + b"x q 12=7\n")
    took_s: list[float] = []
    while not source.counts.accepted:
        began_s = time.thread_time()
        sample = source.read(len(took_s) / 1000)
        took_s.append(time.thread_time() - began_s)
        assert len(took_s) < 40
    assert source.counts.malformed == 10
    assert sample.max_ms == 7.0
    # The kernel ends a search up to a tick of its clock late: 10 ms with 100 Hz.
    assert statistics.median(took_s) < TICK_CPU_S + 0.012
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)
    source.close()


def test_the_end_of_a_search_does_not_wake_a_loop_that_waits_for_signals(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch()
    source = LineSource(path, LineFormat(latency="l", pattern=r"(?P<l>(\d+)+)$"))
    append(path, b"1" * 60 + b"x\n")
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    os.set_blocking(wake_read, False)
    before = signal.set_wakeup_fd(wake_write)
    try:
        source.read(0.0)
        assert source.counts.malformed == 1
        with pytest.raises(BlockingIOError):
            os.read(wake_read, 1)
    finally:
        assert signal.set_wakeup_fd(before) == wake_write
        os.close(wake_read)
        os.close(wake_write)
    source.close()


def test_lines_that_a_tick_has_no_time_for_wait_for_the_next(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch()
    format_ = LineFormat(latency="l", pattern=r"^(?:\S+ )*(?P<l>\d+)$", latency_unit_s=1e-3)
    source = LineSource(path, format_)
    append(path, (b"a b c d e f g h i j " * 20 + b"5\n") * 150)
    totals = [source.read(tick / 1000).completed_total for tick in range(150)]
    assert totals[-1] == 150
    assert source.counts.malformed == 0
    source.close()


def test_a_line_whose_search_the_end_of_a_tick_ended_is_searched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    path.touch()
    pattern = r"\d*\d*\d*z=(?P<l>\d+)"  # takes a tenth of a second for these digits
    source = LineSource(path, LineFormat(latency="l", pattern=pattern, latency_unit_s=1e-3))
    append(path, b"z=1\n" + b"1" * 150 + b"yz=2\nz=3\n")
    monkeypatch.setattr(line_source, "SEARCH_CPU_S", 60.0)
    for tick in range(3):
        began_s = time.thread_time()
        assert source.read(tick / 1000).completed_total == 1
        assert time.thread_time() - began_s < 0.08, "the tick ends all the same"
    monkeypatch.setattr(line_source, "TICK_CPU_S", 60.0)
    assert source.read(0.003).completed_total == 3
    assert source.counts.malformed == 0
    source.close()


def test_a_line_that_is_too_long_for_a_pattern_is_malformed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch()
    source = LineSource(path, LineFormat(latency="l", pattern=r"=(?P<l>\d+)", latency_unit_s=1e-3))
    append(path, b"x" * PATTERN_LINE_BYTES + b"=1\n=2\n")
    assert source.read(0.0).max_ms == 2.0
    assert source.counts.first_malformed.startswith("longer than a line may be: xxx")
    source.close()


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("1.5foo", "0.0foo"),
        (
            '10.0.0.7 - alice [24/Nov/2026:13:00:00 +0000] "GET /u/alice?token=9f" 200 -',
            '00.0.0.0 - xxxxx [00/xxx/0000:00:00:00 +0000] "..." 000 -',
        ),
        ("user=Zoë id=9b1deb4d mail=zoe@example.org", "xxxx=xxx xx=0b0deb0d xxxx=xxx@xxxxxxx.xxx"),
        ("took 850.2µs", "xxxx 000.0µs"),
        ("a\x1b[31m", "x?[00m"),
        ('open "quote', 'xxxx "..."'),
    ],
)
def test_a_malformed_line_is_shown_without_what_may_be_personal(line: str, shown: str) -> None:
    assert masked(line) == shown
