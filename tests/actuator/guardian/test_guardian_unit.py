"""Tests of how the guardian watches its loop, holds its entries and undoes them."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from around_the_guardian import ScriptedDaemon, config_in, wait_until

from stallward.actuator.config.tables import RestartConfig
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.guardian.children import Channels
from stallward.actuator.guardian.held_journal import HeldJournal
from stallward.actuator.guardian.loop_watch import LoopHealth, LoopMessages, PauseLimit
from stallward.actuator.guardian.sd_notify import Notifier
from stallward.actuator.ipc.channels import BEAT, SILENCE_S
from stallward.actuator.ipc.options import Modules
from stallward.actuator.journal.disk import Journal
from stallward.actuator.journal.entries import Stopped, to_line
from stallward.actuator.runtime import stderr_line as module

CHANGE = """
knob = loop.folder / "memory.high"
if loop.number == 0:
    loop.change(knob, "60", "10")
"""
"""The first loop sets 10 where 60 was."""


@pytest.mark.parametrize("period_s", [0.1, 10.0])
def test_a_loop_is_hung_when_it_misses_several_ticks(tmp_path: Path, period_s: float) -> None:
    health = LoopHealth(config_in(tmp_path, period_s), Notifier(""))
    assert not health.hung(time.monotonic() + 1e6), "a loop that is starting is not hung"
    health.beat()
    now_s = time.monotonic()
    assert not health.hung(now_s + max(SILENCE_S - 1.0, 2 * period_s))
    assert health.hung(now_s + max(SILENCE_S + 1.0, 4 * period_s))
    health.forget("It is dead.")
    assert not health.hung(now_s + 1e6)


def test_a_hung_loop_is_killed_and_its_changes_are_put_back(tmp_path: Path) -> None:
    script = f"{CHANGE}    loop.beat()\n"
    sooner = "from stallward.actuator.guardian import loop_watch; loop_watch.SILENCE_S = 0.5"
    with ScriptedDaemon(tmp_path, script, first=sooner) as daemon:
        daemon.wait_for("loop 1")
        assert (tmp_path / "memory.high").read_text() == "60"
        killed = daemon.said.index("The loop hung: it was killed, everything is put back.")
        assert "The loop ticks." in daemon.said[:killed]


def test_any_message_of_a_ticking_loop_is_a_sign_of_life(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    health = LoopHealth(config, Notifier(""))
    paths = config.node.paths
    journal = HeldJournal(Journal(config.journal.path, paths), paths)
    channels = Channels(config, (), time.monotonic(), Modules())
    messages = LoopMessages(channels, health, journal)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with contextlib.closing(channels), contextlib.closing(journal), ours, theirs:
        entry = to_line(Stopped(999_999, 1)).encode()
        theirs.send(entry)
        messages.take(ours)
        assert health.due_s is None, "it does not tick yet: starting may take long"
        theirs.send(BEAT)
        messages.take(ours)
        due_s = health.due_s
        assert due_s is not None
        time.sleep(0.01)
        theirs.send(entry)
        messages.take(ours)
        assert (health.due_s or 0.0) > due_s
        theirs.settimeout(20.0)
        heard = [theirs.recv(100) for _ in range(3)]
        assert sorted(heard) == [BEAT, b"ok", b"ok"], "and the loop sees that the guardian lives"


def test_a_full_pipe_does_not_block_a_line_on_standard_error() -> None:
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


@pytest.mark.parametrize(
    ("end", "value"), [("sys.exit(0)", "10"), ("sys.exit(1)", "60"), ("loop.die()", "60")]
)
def test_only_changes_that_a_loop_left_are_undone(tmp_path: Path, end: str, value: str) -> None:
    """A loop that ends in order has put its changes back; a later value is another program's."""
    knob = tmp_path / "memory.high"
    with ScriptedDaemon(tmp_path, f"{CHANGE}    {end}\n") as daemon:
        daemon.wait_for("loop 1")
        assert knob.read_text() == value
        knob.write_text("30")  # by the administrator
        assert daemon.stop() == 0
        assert knob.read_text() == "30", "it was not held any more"


@pytest.mark.parametrize("stuck", [False, True])
def test_the_next_loop_learns_whether_something_could_not_be_undone(
    tmp_path: Path, *, stuck: bool
) -> None:
    script = f"""
loop.note(f"unfinished {{loop.left.unfinished}}")
{CHANGE}
    if {stuck}:
        knob.unlink()
        knob.mkdir()
    loop.die()
"""
    with ScriptedDaemon(tmp_path, script) as daemon:
        daemon.wait_for("loop 1")
        daemon.wait_for(f"unfinished {stuck}")
        assert daemon.notes.count("unfinished True") == int(stuck)


def test_a_change_that_could_not_be_undone_is_tried_again_at_the_end(tmp_path: Path) -> None:
    """The guardian tries again even if no loop runs at that time."""
    knob = tmp_path / "memory.high"
    script = f"{CHANGE}    knob.unlink()\n    knob.mkdir()\n    loop.die()\n"
    later = RestartConfig(delay_s=60.0, max_delay_s=60.0)
    with ScriptedDaemon(tmp_path, script, restart=later) as daemon:
        daemon.wait_until_said("The loop ended with status -9")
        knob.rmdir()
        knob.write_text("10")
        assert daemon.stop() == 0
        assert daemon.notes == ["loop 0"]
    assert knob.read_text() == "60"


def test_a_heartbeat_that_a_dead_loop_left_is_not_the_next_one_s(tmp_path: Path) -> None:
    script = """
if loop.number == 0:
    loop.note(os.getpid())
    loop.wait_for("go")
    for _ in range(3):
        loop.beat()
    loop.die()
"""
    slow = RestartConfig(delay_s=0.5, max_delay_s=0.5)  # time to hear what was left
    with ScriptedDaemon(tmp_path, script, restart=slow) as daemon:
        wait_until(lambda: len(daemon.notes) == 2)
        loop = psutil.Process(int(daemon.notes[1]))
        daemon.process.send_signal(signal.SIGSTOP)
        daemon.make("go")
        wait_until(lambda: loop.status() == psutil.STATUS_ZOMBIE)
        daemon.process.send_signal(signal.SIGCONT)
        daemon.wait_for("loop 1")
        dead = daemon.said.index("The loop ended with status -9; everything is put back.")
        assert "The loop ticks." not in daemon.said[dead:]


@pytest.mark.parametrize(
    ("since_s", "lifted", "due_s"),
    [
        ((1000.0, 0.0), False, 1005.6),
        ((1007.0, 1003.0), False, 1008.6),
        ((1000.0,), True, None),
        ((0.0, 0.0), False, None),
        ((899.0,), False, None),
        ((), False, None),
    ],
)
def test_the_time_by_which_a_pause_must_have_ended(
    since_s: tuple[float, ...], due_s: float | None, *, lifted: bool
) -> None:
    """A pause in memory from before 900 is an earlier loop's and does not count."""
    limit = PauseLimit(Budgets(lift_budgets=lifted))
    limit_s = limit.due_s(since_s, [math.inf] * len(since_s), started_s=900.0)
    assert limit_s == (None if due_s is None else pytest.approx(due_s))


SHORT = Budgets(max_pause_s=0.2, late_allowance_s=0.0)
"""Budgets with which the guardian ends a loop 0.7 s after it began a pause."""


def test_a_pause_that_no_budget_allows_ends_with_the_loop(tmp_path: Path) -> None:
    """The guardian wakes up for it; its next regular check would be in a minute."""
    script = f"""
if loop.number == 0:
    loop.note(time.monotonic())
    loop.pause()
{CHANGE}
"""
    with ScriptedDaemon(tmp_path, script, guard=SHORT) as daemon:
        daemon.wait_for("loop 1")
        lasted_s = time.monotonic() - float(daemon.notes[1])
        assert (tmp_path / "memory.high").read_text() == "60"
        assert "The loop hung: it was killed, everything is put back." in daemon.said
    assert 0.7 < lasted_s < 45.0


@pytest.mark.parametrize(
    ("script", "lifted"),
    [
        pytest.param("loop.pause()", True, id="budgets lifted"),
        pytest.param(
            "loop.pause(); loop.beat(); time.sleep(0.1); loop.thaw()", False, id="ended in time"
        ),
        pytest.param("", False, id="none"),
        pytest.param(
            "if loop.number == 0: loop.pause(); loop.die()", False, id="of an earlier loop"
        ),
    ],
)
def test_a_loop_within_its_budgets_is_left_alone(
    tmp_path: Path, script: str, *, lifted: bool
) -> None:
    budgets = replace(SHORT, lift_budgets=lifted)
    loops = [f"loop {number}" for number in range(1 + ("die" in script))]
    with ScriptedDaemon(tmp_path, f"{script}\nloop.beat()", guard=budgets) as daemon:
        daemon.wait_until_said("The loop ticks.")
        time.sleep(1.0)
        assert daemon.notes == loops
        assert not any("hung" in line for line in daemon.said)
