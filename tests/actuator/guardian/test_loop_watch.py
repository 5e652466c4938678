"""A loop that was killed and whose last thread takes its time: nothing waits for that thread."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from around_the_guardian import config_in

from stallward.actuator.guardian.guardian import Guardian
from stallward.actuator.guardian.loop_watch import is_dying, tells_death
from stallward.actuator.journal.entries import FileValue, to_line

LINGERS = """
import ctypes, sys, threading
threading.Thread(target=sys.stdin.read).start()
print(flush=True)
ctypes.CDLL(None).syscall({exit_thread}, 0)
"""
"""Its main thread ends at once, another when its input does: as after SIGKILL in a write."""
PROC = Path("/proc")
EXIT_THREAD = {"x86_64": 60}.get(os.uname().machine, 93)
STATUS = """Name:\tpython3
State:\t{state}
SigQ:\t0/1000
SigPnd:\t{own}
ShdPnd:\t{shared}
SigBlk:\t0000000000000100
"""
NONE, KILL = "0000000000000000", "0000000000000100"


@pytest.fixture
def lingering() -> Iterator[subprocess.Popen[bytes]]:
    code = LINGERS.format(exit_thread=EXIT_THREAD)
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[Guardian]:
    made = Guardian(config_in(tmp_path, 0.1))
    yield made
    made._shut_down()


@pytest.mark.parametrize(
    ("state", "own", "shared", "dying"),
    [
        ("S (sleeping)", NONE, NONE, False),
        ("R (running)", "0000000000004000", "0000000000004002", False),
        ("D (disk sleep)", KILL, NONE, True),
        ("D (disk sleep)", NONE, KILL, True),
        ("Z (zombie)", NONE, NONE, True),
        ("X (dead)", NONE, NONE, True),
        ("", "", "?", False),
    ],
)
def test_death_is_told_by_the_main_thread_or_by_what_it_was_sent(
    state: str, own: str, shared: str, dying: bool
) -> None:
    assert tells_death(STATUS.format(state=state, own=own, shared=shared).encode()) is dying


def test_a_name_does_not_tell_death() -> None:
    assert not tells_death(b"Name:\tState:\tZ\nState:\tS (sleeping)\n")
    assert not tells_death(b"")


def test_the_living_and_the_unknown_are_not_dying() -> None:
    assert not is_dying(PROC, os.getpid())
    assert not is_dying(PROC, 1 << 30)


def test_what_a_killed_loop_holds_is_put_back_before_its_last_thread_has_ended(
    parent: Guardian, tmp_path: Path, lingering: subprocess.Popen[bytes]
) -> None:
    knob = tmp_path / "swappiness"
    knob.write_text("90")
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / str(lingering.pid)).symlink_to(PROC / str(lingering.pid))
    parent._journal.take(to_line(FileValue(knob, "60")).encode(), lambda _: None)
    parent.loop.process, parent.loop.pidfd = lingering, os.pidfd_open(lingering.pid)
    wake_read, wake_write = os.pipe()
    try:
        for _ in range(40):  # each of them waits for a quarter of a second at most
            parent._wait(wake_read)
            if knob.read_text() == "60":
                break
        assert knob.read_text() == "60"
        assert lingering.poll() is None, "it was not waited for"
        assert parent._journal.entries, "its last write may still come"
        knob.write_text("80")
        lingering.kill()
        while parent.loop.process is not None:
            parent._wait(wake_read)
        assert knob.read_text() == "60", "and is undone at its death"
    finally:
        os.close(wake_read)
        os.close(wake_write)


class Stuck(subprocess.Popen[bytes]):
    """A killed process that has not ended before something has been put back."""

    def __init__(self, knob: Path) -> None:
        super().__init__([sys.executable, "-c", "import time; time.sleep(60)"])
        self.knob = knob

    def wait(self, timeout: float | None = None) -> int:
        """As if it were in an uninterruptible sleep."""
        if timeout is not None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        assert self.knob.read_text() == "60", "the guardian waits with everything held"
        self.knob.write_text("80")  # its last write
        return super().wait()


def test_a_stop_puts_back_what_a_loop_that_does_not_end_holds(
    tmp_path: Path,
) -> None:
    parent = Guardian(config_in(tmp_path, 0.1))
    knob = tmp_path / "swappiness"
    knob.write_text("90")
    parent._journal.take(to_line(FileValue(knob, "60")).encode(), lambda _: None)
    parent.loop.process = Stuck(knob)
    parent.loop.pidfd = os.pidfd_open(parent.loop.process.pid)
    parent._shut_down()
    assert knob.read_text() == "60"
