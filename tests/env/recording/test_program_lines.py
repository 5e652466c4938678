"""Lines of requests and of work in every format, with torn ends and unrelated lines."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from stallward.actuator.latency.config import LinesLatency
from stallward.env.errors import RecordingError
from stallward.env.recording.from_frames import logged_requests
from stallward.env.recording.program_lines import parse_requests, parse_units
from stallward.env.scenario.scenario import LatencyLines, UnitLines

LOAD = LatencyLines(path="x", start="0", sent="1", end="2", ok="3")


def test_columns_with_start_and_end() -> None:
    requests = parse_requests("2.0 2.1 2.5 1\n1.0 1.0 9.0 0\n", LOAD)
    assert requests.scheduled_s.tolist() == [1.0, 2.0]
    assert requests.start_s.tolist() == [1.0, 2.1]
    assert requests.ok.tolist() == [False, True]
    np.testing.assert_allclose(requests.sojourn_ms, [8000, 500])


def test_a_torn_last_line_and_lines_of_something_else_are_left_out() -> None:
    requests = parse_requests("hello\n1 1 2 1\n\n3 3\n5 5 6", LOAD)
    assert requests.scheduled_s.tolist() == [1.0]


def test_a_request_that_was_not_answered_may_say_so_in_words() -> None:
    requests = parse_requests("1 1 2 yes\n3 3 4 false\n5 5 6 no\n", LOAD)
    assert requests.ok.tolist() == [True, False, False]


def test_nothing_is_no_requests() -> None:
    assert len(parse_requests("", LOAD).ok) == 0


def test_pgbench_log_counts_from_the_scheduled_time() -> None:
    source = LatencyLines(
        path="x",
        end="end",
        end_us="us",
        latency="latency",
        pattern=r"^\d+ \d+ (?P<latency>\d+) \d+ (?P<end>\d+) (?P<us>\d+)",
        latency_unit_s=1e-6,
        realtime=True,
    )
    text = "0 199 2241 0 1175850568 995598 81\n"
    requests = parse_requests(text, source, realtime_offset_s=1175850000.0)
    np.testing.assert_allclose(requests.end_s, [568.995598], atol=1e-6)
    np.testing.assert_allclose(requests.sojourn_ms, [2.241], atol=1e-3)
    assert requests.ok.tolist() == [True]


def test_separator_and_units_of_time() -> None:
    source = LatencyLines(
        path="x", start="1", latency="0", separator=",", time_unit_s=1e-9, latency_unit_s=1e-3
    )
    requests = parse_requests("7.5,2000000000,200\n", source)
    assert requests.scheduled_s.tolist() == [2.0]
    np.testing.assert_allclose(requests.sojourn_ms, [7.5])


def test_cumulative_work_goes_on_after_a_restart() -> None:
    units = parse_units(["1 10\n2 20\n3 5\n4 7\n", ""], [UnitLines(path="a"), UnitLines(path="b")])
    assert units.units.tolist() == [10, 20, 25, 27]
    assert units.slot.tolist() == [0, 0, 0, 0]
    assert units.rate_per_s(0, 1, 3) == 7.5
    assert units.rate_per_s(1, 1, 3) is None


def test_incremental_work_is_added_up_and_torn_lines_are_left_out() -> None:
    units = parse_units(["1 10\nx y\n2\n2 20\n3 5"], [UnitLines(path="a", cumulative=False)])
    assert units.units.tolist() == [10, 30]


def test_requests_that_pgbench_skipped_or_gave_up_are_not_answered() -> None:
    source = LatencyLines(path="x", end="4", end_us="5", latency="2", latency_unit_s=1e-6)
    text = "0 80 2000000 0 17 5\n0 81 skipped 0 18 5\n3 0 failed 0 19 5\n3 0 1_0 0 20 5\n"
    requests = parse_requests(text, source)
    assert requests.ok.tolist() == [True, False, False]
    np.testing.assert_allclose(requests.scheduled_s, [15.000005, 18.000005, 19.000005])


def test_latencies_with_units_are_read_as_the_daemon_reads_them() -> None:
    number = LatencyLines(path="x", start="t", latency="l", pattern=r"^(?P<t>\d+) (?P<l>[\d.]+)")
    column = LatencyLines(path="x", start="0", latency="1")
    text = "1 850.2µs\n2 1m2.5s\n3 12ms\n4 2\n"
    for source in (number, column):
        sojourn_ms = parse_requests(text, source).sojourn_ms
        np.testing.assert_allclose(sojourn_ms, [0.8502, 62500.0, 12.0, 2000.0])
    group = LatencyLines(
        path="x", start="t", latency="l", pattern=r"^(?P<t>\d+) (?P<l>[\d.]+) (?P<unit>\w+)"
    )
    np.testing.assert_allclose(parse_requests("1 5 ms\n", group).sojourn_ms, [5.0])


def test_what_the_daemon_takes_for_no_latency_is_no_request() -> None:
    source = LatencyLines(path="x", start="0", latency="1")
    requests = parse_requests("1 -nan\n2 -1\n3 9223372036854776.000\n4 0.5\n", source)
    assert requests.scheduled_s.tolist() == [4.0]


def test_a_failure_needs_no_time_of_completion() -> None:
    requests = parse_requests("2 2 0 0\n", LOAD)
    assert requests.ok.tolist() == [False]


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (LOAD, "1 1 1.5 1\n2 2 - 0\n3 3 timeout 1\n"),
        (LatencyLines(path="x", start="0", end="1"), "1 1.5\n2 failed\n3 KO\n"),
        (LatencyLines(path="x", start="0", latency="1", ok="2"), "1 .5 200\n2 - 502\n3 - 504\n"),
    ],
)
def test_a_failure_whose_end_or_latency_is_no_number_is_kept(
    source: LatencyLines, text: str
) -> None:
    requests = parse_requests(text, source)
    assert requests.scheduled_s.tolist() == [1.0, 2.0, 3.0]
    assert requests.ok.tolist() == [True, False, False]


def test_a_quoted_message_with_the_separator_shifts_no_column() -> None:
    source = LatencyLines(path="x", start="0", latency="1", ok="4", separator=",")
    text = '1,0.1,200,"OK",true\n2,30,Non HTTP,"Read timed out, host",false\n"3","0.2",,,true\n'
    requests = parse_requests(text, source)
    assert requests.scheduled_s.tolist() == [1.0, 2.0, 3.0]
    assert requests.ok.tolist() == [True, False, True]


def test_a_carriage_return_ends_a_line() -> None:
    requests = parse_requests("1 1 2 1\r3 3 4 1\r\n5 5 6 1\r7 7", LOAD)
    assert requests.scheduled_s.tolist() == [1.0, 3.0, 5.0]


def test_failures_and_whole_numbers_are_those_of_the_daemon() -> None:
    pattern = r"^(?P<t>[0-9.]+) (?P<ok>\S+) (?P<l>[0-9.]+)"
    source = LatencyLines(
        path="x", start="t", latency="l", pattern=pattern, failed_status=("429",)
    )
    text = "1 200 1e-3\n2 KO 1e-3\n3 429 0.1\n4 NOK 0.1\n5 OK 7%\n6 500 2 ms\n"
    requests = parse_requests(text, source)
    assert requests.scheduled_s.tolist() == [1.0, 2.0, 3.0, 6.0]
    assert requests.ok.tolist() == [True, False, False, True]
    np.testing.assert_allclose(requests.sojourn_ms[[0, 3]], [1.0, 2.0])


def test_a_log_that_is_compressed_is_refused_by_its_kind(tmp_path: Path) -> None:
    path = tmp_path / "access.log.gz"
    path.write_bytes(gzip.compress(b"1 0.1\n"))
    source = LinesLatency(path=path, start="0", latency="1")
    with pytest.raises(RecordingError, match=r"compressed by gzip.*zcat"):
        logged_requests(source, [], [])
