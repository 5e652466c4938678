"""Tests that everything is put back while the last thread of a killed loop still ends."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
from around_the_guardian import ScriptedDaemon, wait_until

from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.guardian.loop_watch import PauseLimit, is_dying, shows_death

LINGERS = """
import ctypes, threading
proc = loop.folder / "proc" / str(os.getpid())
proc.symlink_to(f"/proc/{os.getpid()}")
if loop.number == 0:
    loop.change(loop.folder / "memory.high", "60", "90")
    threading.Thread(target=lambda: loop.wait_for("go") or loop.die()).start()
    ctypes.CDLL(None).syscall({"x86_64": 60}.get(os.uname().machine, 93), 0)
"""
"""A program whose main thread ends at once; its other thread ends once a file exists.

A process that is killed in a write looks like this.
"""
STUCK = """
import subprocess

class Stuck(subprocess.Popen):
    def wait(self, timeout=None):
        if "scripted_loop" in self.args:
            if timeout is not None:
                raise subprocess.TimeoutExpired(self.args, timeout)
            knob = folder / "memory.high"
            with (folder / "notes").open("a") as notes:
                notes.write(f"waiting for it with {knob.read_text()}\\n")
            knob.write_text("80")
        return super().wait(timeout)

subprocess.Popen = Stuck
"""
"""A loop that is killed but does not end in time, and that writes once more before it ends."""
PROC = Path("/proc")
STATUS = """Name:\tpython3
State:\t{state}
SigQ:\t0/1000
SigPnd:\t{own}
ShdPnd:\t{shared}
SigBlk:\t0000000000000100
"""
NONE, KILL = "0000000000000000", "0000000000000100"


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
def test_a_dead_main_thread_or_a_pending_sigkill_shows_death(
    state: str, own: str, shared: str, dying: bool
) -> None:
    assert shows_death(STATUS.format(state=state, own=own, shared=shared).encode()) is dying


def test_the_name_of_a_process_does_not_show_death() -> None:
    assert not shows_death(b"Name:\tState:\tZ\nState:\tS (sleeping)\n")
    assert not shows_death(b"")


def test_living_and_unknown_processes_are_not_dying() -> None:
    assert not is_dying(PROC, os.getpid())
    assert not is_dying(PROC, 1 << 30)


def test_changes_of_a_killed_loop_are_put_back_before_its_last_thread_has_ended(
    tmp_path: Path,
) -> None:
    knob = tmp_path / "memory.high"
    (tmp_path / "proc").mkdir()
    with ScriptedDaemon(tmp_path, LINGERS, first="look_s = 0.1") as daemon:
        wait_until(lambda: knob.exists() and knob.read_text() == "60")
        assert daemon.notes == ["loop 0"], "its end was not waited for"
        daemon.wait_until_said("The loop is dying; everything is put back.")
        knob.write_text("80")  # the last write of the thread that goes on
        daemon.make("go")
        daemon.wait_for("loop 1")
        assert knob.read_text() == "60", "and is undone at its death"


def test_a_stop_puts_back_the_changes_of_a_loop_that_does_not_end(tmp_path: Path) -> None:
    knob = tmp_path / "memory.high"
    script = 'loop.change(loop.folder / "memory.high", "60", "90"); loop.note("changed")'
    with ScriptedDaemon(tmp_path, script, first=STUCK) as daemon:
        daemon.wait_for("changed")
        assert daemon.stop() == 0
        assert daemon.notes[-1] == "waiting for it with 60", "before it has ended"
    assert knob.read_text() == "60"


def test_a_pause_that_began_under_other_budgets_counts_from_the_change_on() -> None:
    """The loop ends it at its next tick, so the guardian must not kill the loop at once."""
    shorter = PauseLimit(Budgets(max_pause_s=2.0), in_force_s=100.0)
    began_s = 96.0
    none = [math.inf]
    same = PauseLimit(Budgets(max_pause_s=2.0))
    assert same.due_s([began_s], none, 1.0) == pytest.approx(98.6)
    assert shorter.due_s([began_s], none, 1.0) == pytest.approx(102.6)
    assert shorter.due_s([101.0], none, 1.0) == pytest.approx(103.6)
    assert shorter.due_s([0.0], none, 1.0) is None


@pytest.mark.parametrize(("lifted", "due_s"), [(False, 100.9), (True, 100.9)])
def test_a_pause_must_end_as_early_as_the_pod_in_the_slot_needs(
    due_s: float, *, lifted: bool
) -> None:
    limit = PauseLimit(Budgets(max_pause_s=2.0, lift_budgets=lifted))
    assert limit.due_s([99.9, 100.0], [math.inf, 0.3], 1.0) == pytest.approx(due_s)
    assert limit.due_s([99.9, 100.0], [math.inf, 60.0], 1.0) == (
        pytest.approx(160.6 if lifted else 102.5)
    )
