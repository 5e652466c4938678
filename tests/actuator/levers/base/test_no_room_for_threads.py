"""Everything is put back even where the system has no room for another thread."""

from __future__ import annotations

import _thread
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from stallward.actuator.journal.entries import FileValue, Frozen
from stallward.actuator.journal.restore import restore, run_bounded
from stallward.actuator.kernel.cgroups import Hierarchy
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.levers.base.worker import Superseded, Worker
from stallward.actuator.levers.lever_set import LeverSet
from stallward.actuator.record.lever_result import LeverResult
from stallward.agent.desired import DesiredState, Tuning

# A loop that has lost its guardian restores by itself. Its list of entries fails once, or no
# thread can be started.
ORPHAN = """
import sys, threading
from pathlib import Path
from stallward.actuator.journal.entries import FileValue, Frozen
from stallward.actuator.loop.loop import end_and_restore
from stallward.actuator.kernel.paths import Paths

folder, fault = Path(sys.argv[1]), sys.argv[2]

def refuse(_thread):
    raise RuntimeError("can't start new thread")

asked = []

def entries():
    asked.append(1)
    if fault == "error" and len(asked) == 1:
        raise RuntimeError("dictionary changed size during iteration")
    return [Frozen(folder / "cgroup.freeze"), FileValue(folder / "memory.high", "60")]

if fault == "threads":
    threading.Thread.start = refuse
end_and_restore(entries, Paths(proc=folder, cgroup=folder), folder / "journal", [])
"""


class NoThreads:
    """Refuses threads while ``full``, after ``room`` of them."""

    def __init__(self, start: Callable[..., object], room: int = 0) -> None:
        self.start = start
        self.room = room
        self.full = True

    def __call__(self, *arguments: object) -> object:
        if self.full and self.room == 0:
            raise RuntimeError("can't start new thread")
        self.room -= 1
        return self.start(*arguments)


def patch_threads(monkeypatch: pytest.MonkeyPatch, room: int = 0) -> NoThreads:
    refusing = NoThreads(threading.Thread.start, room)

    def start(thread: threading.Thread) -> None:
        refusing(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    return refusing


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> NoThreads:
    refusing = NoThreads(_thread.start_new_thread)
    monkeypatch.setattr(_thread, "start_new_thread", refusing)
    return refusing


def test_without_room_for_threads_the_caller_undoes_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch_threads(monkeypatch)
    freeze, knob = tmp_path / "cgroup.freeze", tmp_path / "memory.high"
    freeze.write_text("1")
    knob.write_text("90")
    stuck = tmp_path / "memory.max"
    stuck.mkdir()
    entries = (Frozen(freeze), FileValue(stuck, "x"), FileValue(knob, "60"))
    (problem,) = restore(entries, Paths(cgroup=tmp_path))
    assert str(stuck) in str(problem)
    assert (freeze.read_text(), knob.read_text()) == ("0", "60")


def test_beside_a_thread_that_blocks_the_caller_does_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patch_threads(monkeypatch, room=1)
    never, seen = threading.Event(), list[int]()
    actions: list[Callable[[], object]] = [
        partial(never.wait, 20.0),
        *(partial(seen.append, n) for n in range(5)),
    ]
    (problem,) = run_bounded(actions, patience_s=0.01, give_up_s=0.3)
    never.set()
    assert seen == list(range(5))
    assert "not done after" in str(problem)


def test_an_action_with_a_bug_keeps_nothing_from_being_done() -> None:
    seen = list[int]()
    (failure,) = run_bounded([partial(int, "x"), partial(seen.append, 1)], give_up_s=0.3)
    assert failure.why == "invalid literal for int() with base 10: 'x'"
    assert seen == [1]


@pytest.mark.parametrize("fault", ["threads", "error"])
def test_the_child_of_a_loop_without_a_guardian_restores_all_the_same(
    tmp_path: Path, fault: str
) -> None:
    freeze, knob = tmp_path / "cgroup.freeze", tmp_path / "memory.high"
    freeze.write_text("1")
    knob.write_text("90")
    done = subprocess.run(
        [sys.executable, "-c", ORPHAN, str(tmp_path), fault], check=False, timeout=60
    )
    assert done.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 10
    while (freeze.read_text(), knob.read_text()) != ("0", "60"):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def counted(done: list[str], wish: str, _superseded: Superseded) -> tuple[LeverResult, ...]:
    done.append(f"{wish} by {threading.current_thread().name}")
    return (LeverResult(lever="lever", value=wish),)


def test_a_wish_waits_for_a_thread(full: NoThreads) -> None:
    done: list[str] = []
    slow = Worker("lever", partial(counted, done))
    slow.ask("90")
    (refused,) = slow.poll(time.monotonic())
    assert not refused.ok
    assert "no room for another thread" in refused.error
    assert slow.busy
    assert slow.poll(time.monotonic() + 60) == (), "said once, and it is not the kernel"
    full.full = False
    assert slow.poll(time.monotonic()) == ()
    assert slow.wait(time.monotonic() + 5)
    assert len(done) == 1
    assert "MainThread" not in done[0]
    assert [result.ok for result in slow.poll(time.monotonic())] == [True]
    slow.stop()


def test_work_that_is_waited_for_needs_no_thread(full: NoThreads) -> None:
    done: list[str] = []
    slow = Worker("lever", partial(counted, done))
    slow.ask("original")
    assert slow.wait(time.monotonic() + 5)
    assert done == ["original by MainThread"]
    assert not slow.busy
    slow.stop()


def test_one_lever_with_a_bug_does_not_keep_the_others_from_being_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = Paths(proc=tmp_path / "proc", cgroup=tmp_path / "cg")
    knob = paths.proc / "sys/vm/swappiness"
    knob.parent.mkdir(parents=True)
    knob.write_text("60")
    hierarchy = Hierarchy(kind="v2", memory_root=paths.cgroup, unified_root=paths.cgroup)
    zone = hierarchy.group("zone")
    levers = LeverSet(
        paths, hierarchy, zone, (zone.child("app"),), (zone.child("bg"),), None, lambda *_: None
    )
    levers.apply(DesiredState(tuning=Tuning(swappiness=90)))
    assert knob.read_text() == "90"

    def fail(_now_s: float) -> tuple[LeverResult, ...]:
        raise RuntimeError("deque mutated during iteration")

    monkeypatch.setattr(levers._every[0], "restore", fail)
    results = levers.restore()
    assert [r.error for r in results if not r.ok] == ["deque mutated during iteration"]
    assert knob.read_text() == "60"
