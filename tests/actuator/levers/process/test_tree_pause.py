"""Pausing process trees: who is stopped, who is continued, and what the journal holds."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stallward.actuator.errors import JournalError
from stallward.actuator.journal.entries import JournalEntry, Stopped
from stallward.actuator.journal.restore import restore
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.kernel.process_spec import ProcessesConfig
from stallward.actuator.kernel.process_table import ProcessTable, read_seen
from stallward.actuator.kernel.process_trees import Forest
from stallward.actuator.levers.base.lever import ExemptProcesses
from stallward.actuator.levers.base.originals import Originals
from stallward.actuator.levers.process.tree_pause import BATCH, CONFIRM_S, TreePause, send
from stallward.agent.desired import DesiredState, ProcessRef, SlotDesire

PROC = Path("/proc")
PAUSED = DesiredState(slots=(SlotDesire(paused=True),))
RUNNING = DesiredState()

# Forks children that wait; one line on standard input makes it fork one more.
PARENT = """
import os, signal, sys
def fork():
    if os.fork() == 0:
        signal.pause()
        os._exit(0)
for _ in range(int(sys.argv[1])):
    fork()
print("ready", flush=True)
for line in sys.stdin:
    fork()
"""
# Says so when it is continued, and starts a child then.
# SIGCONT is blocked until the child no longer catches it.
CATCHER = """
import os, signal
def caught(number, frame):
    os.write(1, b"continued\\n")  # print() fails while it is interrupted itself
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCONT])
    if os.fork() == 0:
        signal.signal(signal.SIGCONT, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCONT])
        while True:
            signal.pause()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCONT])
signal.signal(signal.SIGCONT, caught)
print("ready", flush=True)
while True:
    signal.pause()
"""


class FakeJournal:
    """A guardian's journal: the entries that it holds, and the number of messages."""

    def __init__(self) -> None:
        self.held: list[JournalEntry] = []
        self.messages = 0
        self.refuses = False

    def hold(self, *entries: JournalEntry) -> None:
        if self.refuses:
            raise JournalError("The guardian is gone.")
        self.messages += 1
        self.held += entries

    def release(self, *entries: JournalEntry) -> None:
        for entry in entries:
            self.held.remove(entry)


class Setting:
    """A program as a process tree, and the lever on it."""

    def __init__(self, source: str, *arguments: str, exempt: frozenset[int] = frozenset()) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", source, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.said = self.say_next()
        wanted = ProcessesConfig(pids=(self.process.pid,))
        self.forest = Forest(PROC, [None, wanted], ["protected", "batch"])
        tree = self.forest.trees[1]
        assert tree is not None
        self.tree = tree
        self.journal = FakeJournal()
        self.originals = Originals(self.journal.hold, self.journal.release)
        self.lever = TreePause(0, tree, PROC, self.originals, exempt=ExemptProcesses(exempt))

    def say_next(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def fork(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def pids(self) -> tuple[int, ...]:
        self.forest.refresh()
        return self.tree.pids()

    def stopped(self) -> list[int]:
        """The members that are stopped now."""
        return [pid for pid in self.pids() if is_stopped(pid)]

    def apply(self, state: DesiredState) -> list[str]:
        """Apply, and return the errors."""
        results = list(self.lever.apply(state, time.monotonic()))
        return [result.error for result in results if not result.ok]

    def end(self) -> None:
        for pid in {self.process.pid, *self.pids()}:
            os.kill(pid, signal.SIGKILL)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


def is_stopped(pid: int) -> bool:
    seen = read_seen(PROC, pid)
    return seen is not None and seen.stopped


def wait_for_stopped(setting: Setting, count: int, timeout_s: float = 5.0) -> bool:
    deadline_s = time.monotonic() + timeout_s
    while len(setting.stopped()) != count:
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.005)
    return True


@pytest.fixture
def family() -> Iterator[Setting]:
    setting = Setting(PARENT, "3")
    try:
        yield setting
    finally:
        setting.end()


def test_every_member_stops_and_continues(family: Setting) -> None:
    assert family.lever.idle
    assert family.apply(PAUSED) == []
    assert family.lever.requested()
    assert family.lever.held
    assert wait_for_stopped(family, 4)
    assert {entry.pid for entry in family.journal.held if isinstance(entry, Stopped)} == set(
        family.pids()
    )
    assert family.apply(RUNNING) == []
    assert wait_for_stopped(family, 0)
    assert family.journal.held == []
    assert not family.lever.requested()
    assert family.lever.idle


def test_a_process_that_joins_a_paused_tree_is_stopped_too(family: Setting) -> None:
    family.apply(PAUSED)
    assert wait_for_stopped(family, 4)
    os.kill(family.process.pid, signal.SIGCONT)  # another program lets the parent fork once more
    family.fork()
    assert wait_for_stopped(family, 3)
    deadline_s = time.monotonic() + 5.0
    while len(family.pids()) < 5 and time.monotonic() < deadline_s:
        time.sleep(0.005)
    family.apply(PAUSED)
    assert wait_for_stopped(family, 4), "the new one too, but not what another program continued"
    family.apply(RUNNING)
    assert wait_for_stopped(family, 0)


def test_a_big_tree_takes_few_messages_to_the_journal() -> None:
    setting = Setting(PARENT, "299")
    try:
        assert setting.apply(PAUSED) == []
        assert setting.journal.messages == 300 // BATCH
        assert wait_for_stopped(setting, 300)
        setting.apply(RUNNING)
        assert wait_for_stopped(setting, 0)
    finally:
        setting.end()


def test_a_stop_by_another_program_is_not_undone(family: Setting) -> None:
    theirs = family.pids()[-1]
    os.kill(theirs, signal.SIGSTOP)
    assert wait_for_stopped(family, 1)
    family.apply(PAUSED)
    assert wait_for_stopped(family, 4)
    assert Stopped(theirs, _start(theirs)) not in family.journal.held
    family.apply(RUNNING)
    assert wait_for_stopped(family, 1)
    assert is_stopped(theirs)


def test_a_process_that_another_program_continues_is_left_alone_and_reported(
    family: Setting,
) -> None:
    family.apply(PAUSED)
    assert wait_for_stopped(family, 4)
    now_s = time.monotonic()
    assert list(family.lever.look(now_s)) == []
    taken = family.pids()[-1]
    os.kill(taken, signal.SIGCONT)
    assert wait_for_stopped(family, 3)
    (result,) = family.lever.look(now_s)
    assert "another program continued 1 processes" in result.error
    assert family.lever.foreign_total == 1
    (state,) = family.lever.states(now_s)
    assert state.foreign
    family.apply(PAUSED)
    assert len(family.stopped()) == 3
    family.apply(RUNNING)
    family.apply(PAUSED)
    assert wait_for_stopped(family, 4), "the next pause is a new one"
    family.apply(RUNNING)


def test_exempt_processes_are_never_stopped() -> None:
    first = Setting(PARENT, "2")
    try:
        exempt = first.pids()[-1]
        lever = TreePause(
            0, first.tree, PROC, first.originals, exempt=ExemptProcesses(frozenset({exempt}))
        )
        list(lever.apply(PAUSED, time.monotonic()))
        assert wait_for_stopped(first, 2)
        assert not is_stopped(exempt)
        list(lever.restore(time.monotonic()))
        assert wait_for_stopped(first, 0)
    finally:
        first.end()


def test_without_a_journal_nothing_is_stopped(family: Setting) -> None:
    family.journal.refuses = True
    (error,) = family.apply(PAUSED)
    assert "The guardian is gone" in error
    assert family.stopped() == []
    assert not family.lever.held
    assert family.apply(PAUSED) == [], "not tried again at once"
    assert not family.lever.idle


def test_a_process_that_ends_while_paused_is_forgotten(family: Setting) -> None:
    family.apply(PAUSED)
    assert wait_for_stopped(family, 4)
    ended = family.pids()[-1]
    os.kill(ended, signal.SIGKILL)
    deadline_s = time.monotonic() + 5.0
    while any(e == Stopped(ended, e.start_time_ticks) for e in _stops(family)):
        assert time.monotonic() < deadline_s
        list(family.lever.look(time.monotonic()))
        time.sleep(0.01)
    assert family.lever.foreign_total == 0
    family.apply(RUNNING)
    assert family.journal.held == []


def test_a_process_that_leaves_the_tree_is_continued(family: Setting) -> None:
    family.apply(PAUSED)
    assert wait_for_stopped(family, 4)
    left = family.pids()[-1]
    member = family.tree.members.pop(left)
    family.apply(PAUSED)
    assert not is_stopped(left)
    family.tree.members[left] = member
    family.apply(RUNNING)


def test_a_program_that_catches_sigcont_is_stopped_again_and_again() -> None:
    setting = Setting(CATCHER)
    try:
        for members in (1, 2, 3):
            assert len(setting.pids()) == members
            setting.apply(PAUSED)
            assert wait_for_stopped(setting, members)
            setting.apply(RUNNING)
            assert setting.say_next() == "continued"
            deadline_s = time.monotonic() + 5.0
            while len(setting.pids()) == members and time.monotonic() < deadline_s:
                time.sleep(0.005)
    finally:
        setting.end()


def test_parents_are_stopped_first_and_continued_last(family: Setting) -> None:
    # Else a job-control parent inside the tree would see its child stop (all but always: the
    # kernel may still be about to stop the parent when the child stands).
    parent = family.process.pid
    order: list[JournalEntry] = []
    release = family.journal.release

    def noted(*entries: JournalEntry) -> None:
        order.extend(entries)
        release(*entries)

    family.originals = Originals(family.journal.hold, noted)
    family.lever = TreePause(0, family.tree, PROC, family.originals, exempt=ExemptProcesses())
    family.apply(PAUSED)
    assert wait_for_stopped(family, 4)
    assert _pids(family.journal.held)[0] == parent
    family.apply(RUNNING)
    assert wait_for_stopped(family, 0)
    assert _pids(order)[-1] == parent


def _pids(entries: list[JournalEntry]) -> list[int]:
    return [entry.pid for entry in entries if isinstance(entry, Stopped)]


def test_a_plan_says_how_many_and_changes_nothing(family: Setting) -> None:
    (plan,) = family.lever.plan(PAUSED)
    assert (plan.target, plan.after) == ("4 processes of batch", "SIGSTOP")
    assert family.stopped() == []
    assert list(family.lever.plan(RUNNING)) == []
    family.apply(PAUSED)
    (plan,) = family.lever.plan(RUNNING)
    assert plan.after == "SIGCONT"
    family.apply(RUNNING)


def test_a_process_that_does_not_stop_is_reported_once(family: Setting) -> None:
    family.apply(PAUSED)
    assert wait_for_stopped(family, 4)
    os.kill(family.pids()[-1], signal.SIGCONT)  # as if the stop had not got through yet
    assert wait_for_stopped(family, 3)
    (result,) = family.lever.look(time.monotonic() + 2 * CONFIRM_S)
    assert "are not stopped" in result.error
    family.apply(RUNNING)


def test_a_journal_of_a_killed_loop_continues_the_tree(family: Setting) -> None:
    family.apply(PAUSED)
    assert wait_for_stopped(family, 4)
    assert restore(family.journal.held, Paths()) == ()
    assert wait_for_stopped(family, 0)


def test_a_pid_that_is_used_again_is_not_signalled(
    family: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = family.pids()[-1]
    stranger = ProcessRef(pid=child, start_time_ticks=_start(child) - 1)
    assert send(PROC, [stranger], signal.SIGSTOP).gone == [stranger]
    # The table looks again at a few processes each time; it must not come to this one yet.
    monkeypatch.setattr(ProcessTable, "recheck", lambda *_: [])
    member = family.tree.members[child]
    member.start_time_ticks -= 1
    family.apply(PAUSED)
    assert wait_for_stopped(family, 3)
    assert not is_stopped(child)
    family.apply(RUNNING)
    assert family.journal.held == []


def _start(pid: int) -> int:
    seen = read_seen(PROC, pid)
    assert seen is not None
    return seen.start_time_ticks


def _stops(setting: Setting) -> list[Stopped]:
    return [entry for entry in setting.journal.held if isinstance(entry, Stopped)]


def test_a_process_that_cannot_be_read_now_is_not_taken_for_gone() -> None:
    setting = Setting(PARENT, "1")
    try:
        setting.apply(PAUSED)
        assert wait_for_stopped(setting, 2)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        try:
            list(setting.lever.look(time.monotonic()))
            errors = setting.apply(RUNNING)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert any("cannot be continued" in error for error in errors)
        assert setting.lever.held
        assert len(setting.journal.held) == 2, "a crash would still undo it"
        assert setting.apply(RUNNING) == []
        assert not setting.journal.held
        assert wait_for_stopped(setting, 0)
    finally:
        setting.end()
