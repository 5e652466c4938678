"""The guardian's own steps, on files of our own and without children."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from around_the_guardian import config_in

from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.guardian.guardian import Guardian
from stallward.actuator.guardian.loop_watch import PauseLimit
from stallward.actuator.ipc.channels import BEAT, SILENCE_S
from stallward.actuator.ipc.options import LoopOptions
from stallward.actuator.ipc.pause_memory import PauseMemory
from stallward.actuator.journal.entries import FileValue, Stopped, to_line
from stallward.actuator.runtime import stderr_line as module


@pytest.fixture
def period_s() -> float:
    return 0.1


@pytest.fixture
def parent(period_s: float, tmp_path: Path) -> Iterator[Guardian]:
    made = Guardian(config_in(tmp_path, period_s))
    yield made
    made._shut_down()


def silent_for(parent: Guardian, silence_s: float) -> bool:
    """Whether the guardian takes a loop for hung that was heard ``silence_s`` ago."""
    parent.health.beat()
    parent._check_health(time.monotonic() + silence_s)
    return not parent.health.ticking


@pytest.mark.parametrize("period_s", [0.1, 10.0])
def test_a_loop_is_hung_when_it_misses_several_ticks(parent: Guardian, period_s: float) -> None:
    assert not silent_for(parent, max(SILENCE_S - 1.0, 2 * period_s))
    assert silent_for(parent, max(SILENCE_S + 1.0, 4 * period_s))


def test_any_message_of_a_ticking_loop_is_a_sign_of_life(parent: Guardian) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        entry = to_line(Stopped(999_999, 1)).encode()
        theirs.send(entry)
        parent.hearing.take(ours)
        assert not parent.health.ticking, "it does not tick yet: starting may take long"
        theirs.send(BEAT)
        parent.hearing.take(ours)
        due_s = parent.health.due_s
        assert due_s is not None
        time.sleep(0.01)
        theirs.send(entry)
        parent.hearing.take(ours)
        assert (parent.health.due_s or 0.0) > due_s
        heard = [theirs.recv(100) for _ in range(3)]
        assert sorted(heard) == [BEAT, b"ok", b"ok"], "and the loop sees that the guardian lives"


def test_a_stopped_reader_of_its_messages_does_not_stop_it() -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write, bytes(65536))
    os.set_blocking(write, True)
    code = f"from {module.__name__} import say; say('a line that has no room')"
    subprocess.run([sys.executable, "-c", code], stderr=write, timeout=20, check=True)
    os.close(read)
    os.close(write)


@pytest.mark.parametrize(("status", "value"), [(0, "10"), (1, "60"), (-9, "60"), (None, "60")])
def test_only_what_a_loop_left_is_undone(
    parent: Guardian, tmp_path: Path, status: int | None, value: str
) -> None:
    knob = tmp_path / "swappiness"
    answers: list[bytes] = []
    parent._journal.take(to_line(FileValue(knob, "60")).encode(), answers.append)
    knob.write_text("10")  # by the administrator, or by a loop that died
    parent._undo(status)
    assert knob.read_text() == value
    assert parent._journal.entries == ()


@pytest.mark.parametrize("stuck", [False, True])
def test_the_next_loop_is_told_of_what_could_not_be_undone(
    parent: Guardian, tmp_path: Path, stuck: bool
) -> None:
    knob = tmp_path / "swappiness"
    if stuck:
        knob.mkdir()
    parent._journal.take(to_line(FileValue(knob, "60")).encode(), lambda _: None)
    parent._undo(-9)
    launch = parent._launch_loop()
    for end in launch.handed_over:
        end.close()
    assert isinstance(launch.options, LoopOptions)
    assert launch.options.left.unfinished is stuck


def test_a_heartbeat_that_a_dead_loop_left_is_not_the_next_one_s(parent: Guardian) -> None:
    launch = parent._launch_loop()
    (theirs,) = launch.handed_over
    for _ in range(3):
        theirs.send(BEAT)
    theirs.close()
    parent._on_death(parent.loop, -9, time.monotonic())
    read, write = os.pipe()
    parent.loop.due_s = None
    for _ in range(3):
        os.write(write, b"\0")
        parent._wait(read)
    assert not parent.health.ticking
    os.close(read)
    os.close(write)


class Killed:
    """In the place of a loop's process: what it is sent."""

    pid = 1 << 30

    def __init__(self) -> None:
        self.signals: list[int] = []

    def send_signal(self, number: int) -> None:
        self.signals.append(number)

    def wait(self, _timeout_s: float | None = None) -> int:
        return -9

    poll = wait


@pytest.mark.parametrize(
    ("kept_s", "lifted", "kills"),
    [(5.0, False, 0), (5.7, False, 1), (3600.0, True, 0), (None, False, 0), (1e6, False, 0)],
)
def test_a_pause_that_no_budget_allows_ends_with_the_loop(
    parent: Guardian, tmp_path: Path, kept_s: float | None, lifted: bool, kills: int
) -> None:
    """Also the pause that an earlier loop left in memory, long ago, which is not this one's."""
    budgets = Budgets(lift_budgets=lifted)
    parent._pause_limit = PauseLimit(budgets)
    knob = tmp_path / "freeze"
    knob.write_text("1")
    memory = parent._journal.share(("a",))
    parent._journal.take(to_line(FileValue(knob, "0")).encode(), lambda _: None)
    now_s = time.monotonic() + 10_000.0
    process = Killed()
    parent.loop.process, parent.loop.started_s = process, now_s - 5_000.0  # type: ignore[assignment]
    parent.loop.pidfd = os.open("/dev/null", os.O_RDONLY)
    if kept_s is not None:
        PauseMemory(memory.pauses(), 1).keep(now_s - kept_s, [0])
    parent._check_health(now_s)
    parent._check_health(now_s + 0.1)
    assert process.signals == [signal.SIGKILL] * kills
    assert knob.read_text() == ("0" if kills else "1")


def test_the_guardian_is_awake_when_a_pause_must_have_ended(parent: Guardian) -> None:
    memory = parent._journal.share(("a",))
    parent.loop.process = Killed()  # type: ignore[assignment]
    parent.loop.pidfd = os.open("/dev/null", os.O_RDONLY)
    parent.loop.started_s = 1.0
    PauseMemory(memory.pauses(), 1).keep(time.monotonic() - 5.5, [0])
    assert parent._timeout_ms() < 150.0
