"""Counters in files, on pages of metrics, and in what commands write."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest
from prometheus_pages import Endpoint

from stallward.actuator.errors import WorkError
from stallward.actuator.latency.prometheus.histogram import read_series
from stallward.actuator.latency.prometheus.selector import parse_any_selector
from stallward.actuator.work.collector import make_reader
from stallward.actuator.work.config import CommandWork, FileWork, PrometheusWork, ReadWork
from stallward.agent.sample import WorkFault


def _fault(work: ReadWork) -> WorkFault:
    with pytest.raises(WorkError) as caught:
        make_reader(work).read()
    return caught.value.fault


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("1234\n", None, 1234.0),
        ("1234", None, 1234.0),
        ("epoch 3, step 1.5e3 of 9000", "epoch", 3.0),
        ("done: 12 images", None, 12.0),
        ("v2 of step7: 15", None, 15.0),
        ("rchar: 1\nwchar: 42\n", "wchar", 42.0),
        ("total_more=9\ntotal=3.5\n", "total", 3.5),
        ("jobs2\t1\njobs\t5\n", "jobs", 5.0),
        ("  jobs:\t-5\n", "jobs", -5.0),
        ("jobs:failed 1\njobs:done 5\n", "jobs:done", 5.0),
        ("jobs:done: 5\n", "jobs:done", 5.0),
        ("kind=a 1\nkind=b=5\n", "kind=b", 5.0),
        ("-1\n", None, -1.0),
    ],
)
def test_the_first_number_of_a_file_or_of_a_line_is_the_counter(
    tmp_path: Path, text: str, name: str | None, value: float
) -> None:
    path = tmp_path / "steps"
    path.write_text(text)
    assert make_reader(FileWork(path=path, name=name)).read() == {"": value}


def test_a_file_may_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "steps"
    path.write_text("1")
    reader = make_reader(FileWork(path=path))
    assert reader.read() == {"": 1.0}
    (tmp_path / "new").write_text("2")
    (tmp_path / "new").rename(path)
    assert reader.read() == {"": 2.0}


def test_what_is_wrong_with_a_file_is_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "steps"
    assert _fault(FileWork(path=path)) is WorkFault.ABSENT
    path.write_text("none yet")
    assert _fault(FileWork(path=path)) is WorkFault.NO_NUMBER
    path.write_bytes(b"\xff\xfe\x00")
    assert _fault(FileWork(path=path)) is WorkFault.NO_NUMBER
    assert _fault(FileWork(path=path, name="steps")) is WorkFault.ABSENT
    for text in ("done 12k of 40", "45% of 300", "1,234", "1.2.3"):
        path.write_text(text)
        assert _fault(FileWork(path=path)) is WorkFault.NO_NUMBER, text
    assert _fault(FileWork(path=tmp_path)) is WorkFault.UNREADABLE
    os.mkfifo(tmp_path / "fifo")  # nobody writes to it, and it is not waited for
    assert _fault(FileWork(path=tmp_path / "fifo")) is WorkFault.UNREADABLE


def test_series_of_a_page_are_selected_and_kept_apart(endpoint: Endpoint) -> None:
    endpoint.body = lambda: (
        b'# TYPE done_total counter\ndone_total{job="a"} 3\ndone_total{job="b"} 4 1700000000000\n'
        b'done_total_created{job="a"} 5\ndone_totals 9\nother 7\ndone_total{job="c"} 8'
    )
    url = endpoint.url
    every = make_reader(PrometheusWork(url=url, metric="done_total")).read()
    assert sorted(every.values()) == [3.0, 4.0, 8.0]
    one = make_reader(PrometheusWork(url=url, metric='done_total{job=~"b|c"}')).read()
    assert sorted(one.values()) == [4.0, 8.0]
    assert _fault(PrometheusWork(url=url, metric="missing_total")) is WorkFault.ABSENT


def test_a_line_that_may_be_cut_off_is_left_out() -> None:
    selector = parse_any_selector("done")
    assert read_series(b'done 1\ndone{a="b"} 12', selector) == {"": 1.0}
    assert read_series(b'done{a="b"} 12', selector) == {}


def test_a_name_with_dots_is_found_quoted_or_not(endpoint: Endpoint) -> None:
    work = PrometheusWork(url=endpoint.url, metric='{"jobs.done",kind="x"}')
    for page in (b'{"jobs.done",kind="x"} 5\n', b'jobs_done{kind="x"} 5\n'):
        endpoint.body = lambda page=page: page
        assert list(make_reader(work).read().values()) == [5.0]


def test_an_endpoint_that_is_gone_and_one_that_is_slow_are_told_apart(endpoint: Endpoint) -> None:
    endpoint.pause_s = 10.0
    slow = PrometheusWork(url=endpoint.url, metric="x", timeout_s=0.05)
    assert _fault(slow) is WorkFault.LATE
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
    assert _fault(PrometheusWork(url=url, metric="x")) is WorkFault.UNREADABLE


def _command(script: str, timeout_s: float = 20.0) -> CommandWork:
    return CommandWork(command=("/bin/sh", "-c", script), timeout_s=timeout_s)


@pytest.mark.parametrize(
    ("script", "value"),
    [("echo 7", 7.0), ("echo loading; echo step 8 of 9; echo", 8.0), ("printf 9.5", 9.5)],
)
def test_the_last_line_of_a_command_is_the_counter(script: str, value: float) -> None:
    assert make_reader(_command(script)).read() == {"": value}


def test_what_is_wrong_with_a_command_is_told_apart(tmp_path: Path) -> None:
    assert _fault(_command("echo 7; exit 3")) is WorkFault.FAILED
    assert _fault(_command("true")) is WorkFault.NO_NUMBER
    assert _fault(CommandWork(command=(str(tmp_path / "gone"),))) is WorkFault.ABSENT
    mine = tmp_path / "mine"
    mine.write_text("#!/bin/sh\necho 1\n")
    mine.chmod(0o777)
    assert _fault(CommandWork(command=(str(mine),))) is WorkFault.UNREADABLE, "anybody's program"


@pytest.mark.parametrize("script", ["sleep 60", "while :; do echo 1; done", "sleep 60 & echo 1"])
def test_a_command_that_takes_too_long_is_killed_with_what_it_started(script: str) -> None:
    began_s = time.monotonic()
    assert _fault(_command(script, timeout_s=0.2)) is WorkFault.LATE
    assert time.monotonic() - began_s < 30.0


def test_what_a_command_leaves_behind_with_its_output_open_is_killed(tmp_path: Path) -> None:
    number = tmp_path / "number"
    script = f"sleep 60 & echo $! > {number}; echo 1"
    assert _fault(_command(script, timeout_s=2.0)) is WorkFault.LATE
    _await_end(int(number.read_text()))


def test_what_a_command_leaves_behind_with_its_output_closed_is_killed(tmp_path: Path) -> None:
    number = tmp_path / "number"
    script = f"sleep 60 > /dev/null & echo $! > {number}; echo 7"
    assert make_reader(_command(script)).read() == {"": 7.0}
    _await_end(int(number.read_text()))


def test_a_command_that_goes_on_with_its_output_closed_is_late_and_killed(tmp_path: Path) -> None:
    number = tmp_path / "number"
    script = f"echo $$ > {number}; echo 7; exec > /dev/null; exec sleep 60"
    assert _fault(_command(script, timeout_s=0.2)) is WorkFault.LATE
    _await_end(int(number.read_text()))


def _await_end(pid: int) -> None:
    deadline_s = time.monotonic() + 20.0
    while _runs(pid):
        assert time.monotonic() < deadline_s, "what the command has started still runs"
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def test_a_command_gets_nothing_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "1")
    assert make_reader(_command('echo "${SECRET:-7}"')).read() == {"": 7.0}
