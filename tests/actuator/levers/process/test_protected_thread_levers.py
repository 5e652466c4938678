"""The levers on single threads, tried on a program of its own: all is given and given back."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stallward.actuator.journal.entries import JournalEntry, ThreadValue
from stallward.actuator.journal.own_entries import Owner, refusal
from stallward.actuator.journal.restore import restore
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.kernel.process_table import start_time_ticks
from stallward.actuator.kernel.scheduling import (
    CPUS,
    NICE,
    SLICE,
    read_value,
    thread_ids,
    why_no_slice,
    write_value,
)
from stallward.actuator.levers.base.originals import Originals
from stallward.actuator.levers.slot_levers import protected_thread_levers
from stallward.actuator.record.lever_result import LeverResult
from stallward.agent.desired import RELEASED, DesiredState
from stallward.agent.threads import ThreadDesire, ThreadRef

PROC = Path("/proc")
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may lower a nice value"),
    pytest.mark.skipif(bool(why_no_slice()), reason=why_no_slice() or "it can"),
]
ONE_CPU = min(os.sched_getaffinity(0))

# Three threads; a line on standard input makes the first start one more.
PROGRAM = """
import sys, threading, time
def sleeper():
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
sleeper(); sleeper()
print(flush=True)
for line in sys.stdin:
    sleeper()
    print(flush=True)
"""


class Application:
    """A program with threads, and the levers on them."""

    def __init__(self, folder: Path | None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._line()
        if folder is not None:
            (folder / "cgroup.procs").write_text(f"{self.process.pid}\n")
        self.journal: dict[JournalEntry, None] = {}
        originals = Originals(
            lambda *entries: self.journal.update(dict.fromkeys(entries)),
            self._release,
        )
        self.levers = protected_thread_levers(
            "app", lambda: (self.process.pid,), folder, PROC, originals
        )

    def _release(self, *entries: JournalEntry) -> None:
        for entry in entries:
            del self.journal[entry]

    def _line(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "\n"

    def start_a_thread(self) -> int:
        """Start a thread from the first one, and return its number."""
        before = set(self.tids)
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self._line()
        (tid,) = set(self.tids) - before
        return tid

    @property
    def tids(self) -> tuple[int, ...]:
        return thread_ids(PROC, self.process.pid)

    def ref(self, tid: int) -> ThreadRef:
        ticks = start_time_ticks(PROC, tid)
        assert ticks is not None
        return ThreadRef(tid=tid, start_time_ticks=ticks)

    def values(self) -> dict[int, tuple[str | None, ...]]:
        return {tid: tuple(read_value(w, tid) for w in (SLICE, NICE, CPUS)) for tid in self.tids}

    def apply(self, *desires: ThreadDesire) -> tuple[LeverResult, ...]:
        """Apply a state and wait until the levers' threads are done."""
        granted = DesiredState(protected_threads=desires) if desires else RELEASED
        return self._finish(lambda lever: lever.apply(granted, time.monotonic()))

    def sweep(self, *desires: ThreadDesire) -> tuple[LeverResult, ...]:
        """The regular look at all threads."""
        granted = DesiredState(protected_threads=desires)
        return self._finish(lambda lever: lever.apply(granted, time.monotonic() + 2.0))

    def restore(self) -> tuple[LeverResult, ...]:
        return self._finish(lambda lever: lever.restore(time.monotonic()))

    def _finish(self, action: Callable[..., tuple[LeverResult, ...]]) -> tuple[LeverResult, ...]:
        results: list[LeverResult] = []
        for lever in self.levers:
            results += action(lever)
            results += lever.finish(time.monotonic() + 20.0)
        return tuple(results)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


@pytest.fixture(params=["group", "tree"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Application]:
    made = Application(tmp_path if request.param == "group" else None)
    yield made
    made.close()


def all_three(app: Application, tid: int) -> ThreadDesire:
    return ThreadDesire(thread=app.ref(tid), slice_us=300, nice=-2, cpus=(ONE_CPU,))


def test_one_thread_gets_what_is_wanted_and_the_others_keep_their_own(app: Application) -> None:
    before = app.values()
    results = app.apply(all_three(app, app.tids[1]))
    assert all(result.ok for result in results), results
    now = app.values()
    assert now.pop(app.tids[1]) == ("300", "-2", str(ONE_CPU))
    assert before.items() >= now.items()
    assert {state.lever for one in app.levers for state in one.states(0.0)} == {
        "thread_slice:app",
        "thread_nice:app",
        "thread_cpus:app",
    }
    app.restore()
    assert app.values() == before
    assert not any(lever.held for lever in app.levers)
    assert app.journal == {}


def test_a_thread_that_is_wanted_no_more_gets_its_own_back(app: Application) -> None:
    before = app.values()
    first, second = app.tids[1:3]
    app.apply(all_three(app, first))
    app.apply(all_three(app, second))
    now = app.values()
    assert now[first] == before[first]
    assert now[second] == ("300", "-2", str(ONE_CPU))
    app.apply()
    assert app.values() == before


def test_another_threads_number_is_not_acted_on(app: Application) -> None:
    before = app.values()
    ref = app.ref(app.tids[1])
    stranger = ThreadRef(tid=ref.tid, start_time_ticks=ref.start_time_ticks - 1)
    app.apply(ThreadDesire(thread=stranger, slice_us=300, nice=-2))
    assert app.values() == before


def test_the_journal_alone_puts_every_thread_back(app: Application, tmp_path: Path) -> None:
    """As after a kill -9: nobody but the journal knows anything."""
    before = app.values()
    app.apply(*(all_three(app, tid) for tid in app.tids[1:]))
    assert app.values() != before
    paths = Paths(proc=PROC, cgroup=tmp_path.parent)
    assert [refusal(entry, paths, Owner.DAEMON) for entry in app.journal] == [""] * len(
        app.journal
    )
    assert restore(app.journal, paths) == ()
    assert app.values() == before
    restore(app.journal, paths)
    assert app.values() == before


def test_a_thread_that_was_started_meanwhile_gets_its_parents_own(app: Application) -> None:
    parent = app.process.pid
    own = app.values()[parent]
    wanted = all_three(app, parent)
    app.apply(wanted)
    child = app.start_a_thread()
    assert app.values()[child] == ("300", "-2", str(ONE_CPU)), "it inherits them"
    app.sweep(wanted)
    assert app.values()[child] == own
    assert app.values()[parent] != own
    app.restore()
    assert app.values()[parent] == own


def test_a_foreign_change_stays(app: Application) -> None:
    tid = app.tids[1]
    wanted = ThreadDesire(thread=app.ref(tid), nice=-2)
    app.apply(wanted)
    write_value(NICE, tid, "4")
    results = app.sweep(wanted)
    assert "set by another program" in results[0].error
    assert read_value(NICE, tid) == "4"
    app.restore()
    assert read_value(NICE, tid) == "4"


def test_a_thread_that_has_ended_is_no_failure(app: Application) -> None:
    wanted = all_three(app, app.tids[1])
    app.process.kill()
    app.process.wait()
    assert all(result.ok for result in app.apply(wanted))
    app.restore()
    assert not any(lever.held for lever in app.levers)


def test_the_usual_timeslice_comes_back_as_the_usual_one() -> None:
    """A thread without a timeslice of its own follows the kernel's."""
    me = subprocess.Popen(["sleep", "60"])
    try:
        own = read_value(SLICE, me.pid)
        assert own is not None
        write_value(SLICE, me.pid, "700")
        assert read_value(SLICE, me.pid) == "700"
        write_value(SLICE, me.pid, own)
        assert read_value(SLICE, me.pid) == own
    finally:
        me.kill()
        me.wait()


def test_the_journal_takes_no_impossible_timeslice() -> None:
    for value, ours in (("300", True), ("-1", False), ("1e3", False), ("", False)):
        entry = ThreadValue(SLICE, 4242, 7, value)
        assert (refusal(entry, Paths(), Owner.DAEMON) == "") is ours
