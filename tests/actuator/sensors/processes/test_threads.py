"""The application's threads, read from /proc while they run, sleep and end."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stallward.actuator.errors import SensorError
from stallward.actuator.kernel.threads.timeslice import why_no_slice, write_slice_us
from stallward.actuator.sensors.processes import threads as module
from stallward.actuator.sensors.processes.threads import ThreadFiles, ThreadReader, parse_thread
from stallward.agent.threads import ThreadSample

PROC = Path("/proc")
STAT = (
    b"12 (a b) R) R 1 1 1 0 -1 0 1 2 3 4 5 6 0 0 20 -3 4 0 777 1 2 3 4 5 6 7 8 0 0 0 0 0 0 0 17 5 "
    b"0 0 0 0 0 0 0 0 0 0 0 0 0\n"
)
SCHEDSTAT = b"1500000 7000 4\n"
STATUS = b"Name:\ta\nvoluntary_ctxt_switches:\t31\nnonvoluntary_ctxt_switches:\t9\n"


class Members:
    """The processes of the test."""

    fault = None

    def __init__(self, *pids: int) -> None:
        self.now = frozenset(pids)

    def pids(self) -> frozenset[int]:
        return self.now

    def close(self) -> None:
        pass


@contextmanager
def sleeping_thread() -> Iterator[threading.Thread]:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        yield thread
    finally:
        done.set()
        thread.join()


def read_by_tid(reader: ThreadReader) -> dict[int, ThreadSample]:
    return {thread.tid: thread for thread in reader.read() or ()}


def until_asleep(reader: ThreadReader, thread: threading.Thread) -> dict[int, ThreadSample]:
    deadline_s = time.monotonic() + 10.0
    while True:
        threads = read_by_tid(reader)
        if threads[thread.native_id or 0].state == "S" or time.monotonic() > deadline_s:
            return threads
        time.sleep(0.01)


def test_the_files_of_a_thread_are_parsed() -> None:
    found = parse_thread(STAT, SCHEDSTAT, STATUS, Path("/proc/1/task/12"))
    assert found == ThreadFiles(
        start_time_ticks=777,
        state="R",
        cpu=5,
        nice=-3,
        run_us=1500,
        wait_us=7,
        voluntary_switches=31,
        involuntary_switches=9,
    )


@pytest.mark.parametrize(
    ("stat", "schedstat", "status"),
    [
        (STAT[:60], SCHEDSTAT, STATUS),
        (STAT.replace(b" -3 ", b" x "), SCHEDSTAT, STATUS),
        (STAT, b"1 2\n", STATUS),
        (STAT, SCHEDSTAT, STATUS[:-20]),
        (b"", b"", b""),
    ],
)
def test_a_malformed_file_is_refused_by_name(stat: bytes, schedstat: bytes, status: bytes) -> None:
    with pytest.raises(SensorError, match="/proc/1/task/12"):
        parse_thread(stat, schedstat, status, Path("/proc/1/task/12"))


def test_running_and_sleeping_threads_are_told_apart() -> None:
    reader = ThreadReader([Members(os.getpid())], PROC)
    with sleeping_thread() as thread:
        before = until_asleep(reader, thread)
        until_s = time.thread_time() + 0.02
        while time.thread_time() < until_s:
            pass
        now = read_by_tid(reader)
        me, asleep = threading.get_native_id(), thread.native_id or 0
        assert now[me].state == "R"
        assert now[me].run_us >= before[me].run_us + 15_000
        assert now[asleep].state == "S"
        assert now[asleep].run_us == before[asleep].run_us
        assert now[asleep].pid == os.getpid()
        assert set(now[asleep].cpus) == os.sched_getaffinity(0)
    reader.close()


@pytest.mark.skipif(bool(why_no_slice()), reason=why_no_slice() or "it can")
def test_a_threads_timeslice_is_read() -> None:
    reader = ThreadReader([Members(os.getpid())], PROC)
    with sleeping_thread() as thread:
        write_slice_us(thread.native_id or 0, 500)
        assert read_by_tid(reader)[thread.native_id or 0].slice_us == 500
    reader.close()


def test_a_thread_that_ends_is_left_out_and_loses_nothing_else() -> None:
    reader = ThreadReader([Members(os.getpid(), 1 << 22)], PROC)
    with sleeping_thread() as thread:
        assert thread.native_id in read_by_tid(reader)
    deadline_s = time.monotonic() + 10.0
    while thread.native_id in read_by_tid(reader) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert thread.native_id not in read_by_tid(reader)
    assert threading.get_native_id() in read_by_tid(reader)
    assert reader.fault is None
    reader.close()


def test_each_thread_is_told_with_its_application() -> None:
    reader = ThreadReader([Members(os.getppid()), Members(), Members(os.getpid())], PROC)
    threads = reader.read() or ()
    assert {one.pid: one.application for one in threads} == {os.getppid(): 0, os.getpid(): 2}
    reader.close()


def test_too_many_threads_are_not_read_and_the_reason_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_THREADS", 1)
    reader = ThreadReader([Members(os.getpid())], PROC)
    with sleeping_thread():
        assert reader.read() is None
        assert "of 1 at most" in str(reader.fault)
    reader.close()
