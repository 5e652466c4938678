"""A write that blocks in the kernel is interrupted by a newer request, and by time."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.memory.limit_writes import (
    INTERRUPT,
    allow_interrupts,
    interrupt,
    write_interruptibly,
)
from stallward.actuator.levers.base.worker import Worker
from stallward.actuator.record.lever_result import LeverResult


@pytest.fixture
def full_pipe(tmp_path: Path) -> Iterator[Path]:
    """A FIFO that takes no more: a write to it blocks as one to a memory limit may."""
    path = tmp_path / "limit"
    os.mkfifo(path)
    fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    try:
        while True:
            os.write(fd, bytes(4096))
    except BlockingIOError:
        pass
    before = signal.getsignal(INTERRUPT)
    allow_interrupts()
    yield path
    signal.signal(INTERRUPT, before)
    os.close(fd)


class Blocked:
    """A worker whose first request blocks in a write; the others only say that they were done."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.begun = threading.Event()
        self.errors: list[int] = []
        self.worker: Worker[str] = Worker("limit:bg", self._work)

    def _work(
        self, request: str, superseded: Callable[[], bool]
    ) -> tuple[LeverResult, ...] | None:
        while request == "block" and not superseded():
            self.begun.set()
            try:
                write_interruptibly(self._path, "1")
            except KernelFileError as error:
                self.errors.append(error.number)
        return None if superseded() else (LeverResult(lever="limit:bg", value=request),)

    def start(self) -> None:
        self.worker.ask("block")
        assert self.begun.wait(20)


def test_a_newer_request_interrupts_a_write_that_blocks(full_pipe: Path) -> None:
    blocked = Blocked(full_pipe)
    blocked.start()
    while blocked.worker.busy and not blocked.errors:
        blocked.worker.ask("release")  # again: the first may come just before the write begins
        blocked.worker.wait(0.05)
    assert blocked.worker.wait(time.monotonic() + 60.0)
    # On a busy machine it is asked for once more before the first answer is seen.
    assert {result.value for result in blocked.worker.poll(0.0)} == {"release"}
    blocked.worker.stop()


def test_time_interrupts_a_write_that_blocks(full_pipe: Path) -> None:
    blocked = Blocked(full_pipe)
    blocked.start()
    now_s = 1e6
    while not blocked.errors:
        now_s += 1.0
        blocked.worker.poll(now_s)
    assert set(blocked.errors) == {errno.EINTR}
    blocked.worker.ask("release")
    assert blocked.worker.wait(time.monotonic() + 60.0)
    blocked.worker.stop()


def test_without_leave_no_signal_is_sent() -> None:
    assert signal.getsignal(INTERRUPT) is signal.SIG_DFL
    interrupt(threading.get_ident())  # it would end this process


def test_other_failures_say_what_was_written(tmp_path: Path) -> None:
    with pytest.raises(KernelFileError, match="open for writing '7'") as missing:
        write_interruptibly(tmp_path / "missing", "7")
    assert missing.value.number == errno.ENOENT
    with pytest.raises(KernelFileError, match="write '7'") as full:
        write_interruptibly(Path("/dev/full"), "7")
    assert full.value.number == errno.ENOSPC


def test_a_file_is_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "limit"
    path.write_text("a longer value")
    write_interruptibly(path, "42")
    assert path.read_text() == "42"
