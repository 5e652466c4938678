"""Levers on processes: nice values, CPUs, page advice, and ending a slot."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stallward.actuator.errors import GroupError, LeverError
from stallward.actuator.journal.entries import GroupThreads, JournalEntry, ThreadValue
from stallward.actuator.journal.restore import restore
from stallward.actuator.kernel.cgroups import Hierarchy
from stallward.actuator.kernel.memory.mappings import mappings
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.kernel.process_table import send_signal, start_time_ticks
from stallward.actuator.kernel.scheduling import (
    CPUS,
    NICE,
    format_cpus,
    nice_of_weight,
    read_value,
    thread_ids,
)
from stallward.actuator.levers.base.lever import Lever, Members
from stallward.actuator.levers.base.originals import Originals
from stallward.actuator.levers.base.plugin import ProcessSource
from stallward.actuator.levers.process.page_advice import (
    PageAdviceLever,
    advise_ranges,
    private_ranges,
)
from stallward.actuator.levers.process.stop import ProcessStopLever, TerminateLever
from stallward.actuator.levers.process.thread_lever import ForAll, ThreadLever, ThreadSpec
from stallward.actuator.levers.slot_levers import SlotProcesses, process_levers
from stallward.actuator.record.lever_result import LeverResult
from stallward.agent.desired import MIB, RELEASED, DesiredState, ProcessRef, SlotDesire

PROC = Path("/proc")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may lower a nice value")

# Two threads; a line on standard input makes it fork.
PROGRAM = """
import os, sys, threading, time
os.setpriority(os.PRIO_PROCESS, 0, 0)
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print(flush=True)
for line in sys.stdin:
    if not os.fork():
        time.sleep(60)
    print(flush=True)
"""


class Children:
    """A program that is not nice, whatever this process is, and the children that it has forked."""

    def __init__(self, folder: Path, code: str = PROGRAM) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        self.read()

    def read(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "\n"
        (self.folder / "cgroup.procs").write_text("\n".join(str(pid) for pid in self.pids()))

    def fork(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.read()

    def pids(self) -> tuple[int, ...]:
        top = self.process.pid
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{top}/task/{top}/children").read_text().split()
            return (top, *(int(pid) for pid in children))
        return ()

    def values(self, what: str) -> list[str | None]:
        tids = [tid for pid in self.pids() for tid in thread_ids(PROC, pid)]
        return [read_value(what, tid) for tid in tids]

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Children]:
    made = Children(tmp_path)
    yield made
    made.close()


class ThreadSetting:
    """A lever on the threads of a family, and the entries that it sent to the journal."""

    def __init__(
        self, family: Children, what: str, folder: Path | None, members: Members | None = None
    ) -> None:
        self.sent: list[JournalEntry] = []
        self.released: list[JournalEntry] = []
        self.refusal = ""

        def wishes_of(granted: DesiredState) -> ForAll | None:
            wish = granted.slot(0)
            if what == CPUS:
                return ForAll(what, format_cpus(wish.cpus)) if wish.cpus else None
            return None if wish.nice is None else ForAll(what, str(wish.nice))

        spec = ThreadSpec(
            name=f"{what}:bg",
            what=what,
            members=members or family.pids,
            folder=folder,
            wishes_of=wishes_of,
            proc=PROC,
            check=self.check,
        )
        originals = Originals(self.sent.append, lambda *entries: self.released.extend(entries))
        self.lever = ThreadLever(spec, originals)

    def check(self) -> None:
        if self.refusal:
            raise LeverError(self.refusal)

    def apply(self, state: DesiredState, now_s: float = 0.0) -> list[LeverResult]:
        return settle(self.lever, state, now_s)


def settle(lever: Lever, state: DesiredState, now_s: float = 0.0) -> list[LeverResult]:
    return [*lever.apply(state, now_s), *lever.finish(time.monotonic() + 20.0)]


def nice(value: int | None) -> DesiredState:
    return DesiredState(slots=(SlotDesire(nice=value),))


@needs_root
@pytest.mark.parametrize("in_group", [True, False])
def test_every_thread_gets_its_own_nice_value_back(family: Children, in_group: bool) -> None:
    second = thread_ids(PROC, family.process.pid)[1]
    os.setpriority(os.PRIO_PROCESS, second, 12)
    held = ThreadSetting(family, NICE, family.folder if in_group else None)
    (result,) = held.apply(nice(10))
    assert (result.ok, result.value) == (True, "10"), result
    assert family.values(NICE) == ["10", "12"], "a thread never gets a better one"
    assert held.lever.held
    (state,) = held.lever.states(5.0)
    assert (state.lever, state.value, state.held_for_s) == ("nice:bg", "10", 5.0)
    kinds = {type(entry) for entry in held.sent}
    assert (GroupThreads in kinds) == in_group
    held.apply(nice(15), 10.0)
    assert family.values(NICE) == ["15", "15"]
    (result,) = held.apply(RELEASED, 20.0)
    assert result.ok
    assert family.values(NICE) == ["0", "12"]
    assert set(held.released) == set(held.sent), "nothing is left to undo"
    assert not held.lever.held
    assert held.lever.states(21.0) == ()


@needs_root
def test_a_process_forked_meanwhile_gets_its_parents_value_back(family: Children) -> None:
    held = ThreadSetting(family, NICE, family.folder)
    held.apply(nice(10))
    time.sleep(0.02)  # the kernel counts start times in hundredths
    family.fork()
    assert family.values(NICE) == ["10", "10", "10"]
    held.apply(RELEASED, 1.0)
    assert family.values(NICE) == ["0", "0", "0"]


@needs_root
@pytest.mark.parametrize("crash", [False, True])
def test_a_process_forked_meanwhile_gets_what_its_own_parent_had(
    family: Children, tmp_path: Path, crash: bool
) -> None:
    """Not what the first thread had that was changed."""
    other = Children(tmp_path)
    try:
        os.setpriority(os.PRIO_PROCESS, other.process.pid, 12)
        held = ThreadSetting(family, NICE, family.folder, lambda: (*family.pids(), *other.pids()))
        held.apply(nice(15))
        time.sleep(0.02)  # the kernel counts start times in hundredths
        other.fork()
        child = other.pids()[1]
        assert read_value(NICE, child) == "15"
        held.apply(nice(15), 2.0)  # a regular look
        if crash:
            assert restore(held.sent, Paths(cgroup=family.folder.parent)) == ()
        held.apply(RELEASED, 4.0)
        assert read_value(NICE, child) == "12"
    finally:
        other.close()


@needs_root
def test_threads_that_have_ended_are_forgotten(tmp_path: Path) -> None:
    reaping = "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
    family = Children(tmp_path, reaping + PROGRAM)
    try:
        held = ThreadSetting(family, NICE, folder=None)
        held.apply(nice(10))
        first = set(held.sent)
        for now_s in range(2, 12, 2):
            family.fork()
            child = family.pids()[1]
            os.setpriority(os.PRIO_PROCESS, child, 3)  # an original of its own
            held.apply(nice(10), float(now_s))
            assert read_value(NICE, child) == "10"
            os.kill(child, signal.SIGKILL)
            while child in family.pids():
                time.sleep(0.001)
        assert len(held.sent) == len(first) + 5
        held.apply(nice(10), 20.0)
        assert set(held.sent) - set(held.released) == first
        assert {thread.tid for thread in held.lever._sweep._given} == set(
            thread_ids(PROC, family.process.pid)
        )
        held.apply(RELEASED, 30.0)
        assert set(held.sent) == set(held.released)
    finally:
        family.close()


@needs_root
def test_a_child_of_a_thread_that_has_ended_gets_its_original_back(
    family: Children,
) -> None:
    members = [family.process.pid]
    held = ThreadSetting(family, NICE, family.folder, lambda: tuple(members))
    held.apply(nice(10))
    time.sleep(0.02)  # the kernel counts start times in hundredths
    family.fork()
    child = family.pids()[1]
    family.process.kill()
    family.process.wait()
    members.clear()  # a sweep that just misses the child
    held.apply(nice(10), 2.0)
    members.append(child)
    assert held.lever.held
    held.apply(RELEASED, 4.0)
    assert read_value(NICE, child) == "0"
    assert not held.lever.held


@needs_root
def test_a_new_process_is_found_by_the_regular_look(family: Children) -> None:
    held = ThreadSetting(family, NICE, family.folder)
    held.apply(nice(10))
    family.fork()
    child = family.pids()[1]
    os.setpriority(os.PRIO_PROCESS, child, 3)
    assert held.apply(nice(10), 0.5) == [], "not yet"
    (result,) = held.apply(nice(10), 1.5)
    assert result.ok
    assert read_value(NICE, child) == "10"
    assert held.apply(nice(10), 3.0) == []
    held.apply(RELEASED, 4.0)
    assert read_value(NICE, child) == "3"


@needs_root
def test_a_thread_that_another_program_changed_is_left_alone(family: Children) -> None:
    held = ThreadSetting(family, NICE, family.folder)
    held.apply(nice(10))
    os.setpriority(os.PRIO_PROCESS, family.process.pid, 4)
    (result,) = held.apply(nice(10), 2.0)
    assert not result.ok
    assert "set by another program" in result.error
    assert held.lever.foreign_total == 1
    (state,) = held.lever.states(3.0)
    assert state.foreign
    assert held.apply(nice(10), 4.0) == []
    held.apply(RELEASED, 5.0)
    assert family.values(NICE) == ["4", "0"]


@needs_root
def test_after_a_crash_the_journal_alone_undoes_it(family: Children) -> None:
    second = thread_ids(PROC, family.process.pid)[1]
    os.setpriority(os.PRIO_PROCESS, second, 10)
    held = ThreadSetting(family, NICE, family.folder)
    held.apply(nice(10))
    family.fork()
    assert family.values(NICE) == ["10", "10", "10"]
    assert restore(held.sent, Paths(cgroup=family.folder.parent)) == ()
    assert family.values(NICE) == ["0", "10", "0"], "the second thread had 10 before"
    assert any(isinstance(entry, ThreadValue) for entry in held.sent)
    held.apply(RELEASED, 1.0)


@needs_root
def test_after_a_crash_processes_forked_meanwhile_get_their_value_back(family: Children) -> None:
    held = ThreadSetting(family, NICE, None)
    held.apply(nice(10))
    family.fork()
    held.apply(nice(10), 2.0)  # a regular look
    assert family.values(NICE) == ["10", "10", "10"]
    assert restore(held.sent, Paths()) == ()
    assert family.values(NICE) == ["0", "0", "0"]
    held.apply(RELEASED, 3.0)


def test_a_cpu_weight_becomes_a_nice_value_where_the_slot_has_no_weight(family: Children) -> None:
    assert [nice_of_weight(weight) for weight in (1, 10, 33, 80, 100, 10_000)] == [
        19,
        10,
        5,
        1,
        0,
        0,
    ]

    def nice_lever(*, weight_by_nice: bool) -> Lever:
        slot = SlotProcesses(
            name="bg",
            source=ProcessSource(members=family.pids, holds=lambda pid: pid in family.pids()),
            populated=lambda: True,
            kill=lambda: (),
            desire_of=lambda granted: granted.slot(0),
            proc=PROC,
            weight_by_nice=weight_by_nice,
        )
        return process_levers(slot, Originals(lambda *_: None))[0]

    low = DesiredState(slots=(SlotDesire(cpu_weight=10),))
    settle(nice_lever(weight_by_nice=False), low)
    assert family.values(NICE) == ["0", "0"], "the group's own weight was set instead"
    lever = nice_lever(weight_by_nice=True)
    settle(lever, low)
    assert family.values(NICE) == ["10", "10"]
    settle(lever, DesiredState(slots=(SlotDesire(cpu_weight=10, nice=15),)), 5.0)
    assert family.values(NICE) == ["15", "15"], "the worse of both"


def test_cpus_are_given_and_taken_back(family: Children) -> None:
    own = format_cpus(os.sched_getaffinity(0))
    first = min(os.sched_getaffinity(0))
    held = ThreadSetting(family, CPUS, family.folder)
    state = DesiredState(slots=(SlotDesire(cpus=(first,)),))
    (plan,) = held.lever.plan(state)
    assert (plan.before, plan.after) == (own, str(first))
    (result,) = held.apply(state)
    assert result.ok
    assert set(family.values(CPUS)) == {str(first)}
    held.apply(RELEASED, 1.0)
    assert set(family.values(CPUS)) == {own}


def test_cpus_that_are_not_there_are_a_failure_and_change_nothing(family: Children) -> None:
    held = ThreadSetting(family, CPUS, family.folder)
    (result,) = held.apply(DesiredState(slots=(SlotDesire(cpus=(4000,)),)))
    assert not result.ok
    assert "Invalid argument" in result.error
    assert not held.lever.held


def test_cpus_of_which_the_kernel_takes_some_are_given_once_and_undone_after_a_crash(
    family: Children,
) -> None:
    """As where the group may use some of them only (cpuset.cpus)."""
    own = format_cpus(os.sched_getaffinity(0))
    first = min(os.sched_getaffinity(0))
    held = ThreadSetting(family, CPUS, family.folder)
    state = DesiredState(slots=(SlotDesire(cpus=(first, 4000)),))
    (result,) = held.apply(state)
    assert f"the kernel took {first} instead of {first},4000" in result.error
    assert set(family.values(CPUS)) == {str(first)}
    assert held.apply(state, 2.0) == []
    assert restore(held.sent, Paths(cgroup=family.folder.parent)) == ()
    assert set(family.values(CPUS)) == {own}
    held.apply(RELEASED, 4.0)


def test_a_refused_slot_is_not_touched(family: Children) -> None:
    held = ThreadSetting(family, CPUS, family.folder)
    held.refusal = "Process 1 in bg is protected."
    state = DesiredState(slots=(SlotDesire(cpus=(min(os.sched_getaffinity(0)),)),))
    (result,) = held.apply(state)
    assert result.error == held.refusal
    assert held.sent == []


# ------------------------------------------------------------------ page advice

MAPS = b"""\
55d0c0000000-55d0c0010000 r-xp 00000000 fe:00 1 /usr/bin/python3
55d0c0010000-55d0c0012000 rw-p 00010000 fe:00 1 /usr/bin/python3
55d0c1000000-55d0c1004000 rw-p 00000000 00:00 0 [heap]
7f0000000000-7f0005000000 rw-p 00000000 00:00 0
7f0006000000-7f0007000000 rw-s 00000000 00:01 9 /dev/zero (deleted)
7f0008000000-7f0008001000 r--p 00000000 00:00 0
7fff00000000-7fff00021000 rw-p 00000000 00:00 0 [stack]
7fff00030000-7fff00032000 rw-p 00000000 00:00 0 [vvar]
garbage
zz-yy rw-p 0 0 0
"""


def test_private_writable_ranges_come_in_bounded_pieces() -> None:
    sizes = [size for _, size in private_ranges(MAPS)]
    assert sizes == [0x2000, 0x4000, 32 * MIB, 32 * MIB, 16 * MIB, 0x21000]
    assert list(private_ranges(b"")) == []


def test_what_has_a_file_is_not_read_back_from_swap() -> None:
    everything, swapped = list(private_ranges(MAPS)), list(private_ranges(MAPS, files=False))
    assert set(swapped) < set(everything)
    of_files = [one for one in mappings(MAPS) if one.own and one.inode]
    assert set(everything) - set(swapped) == {(one.start, one.length) for one in of_files}


@pytest.mark.parametrize("stops_at", [None, 0, 1, 3])
def test_a_range_that_the_kernel_refuses_is_skipped(stops_at: int | None) -> None:
    calls: list[list[tuple[int, int]]] = []

    def advise(_fd: int, ranges: list[tuple[int, int]], number: int) -> int:
        assert number == 21
        calls.append(ranges)
        done = 0
        for address, size in ranges:
            if stops_at is not None and address == stops_at:
                if not done:
                    raise OSError(errno.EINVAL, "refused")
                return done
            done += size
        return done

    ranges = [(at, 10) for at in range(5)]
    total = advise_ranges(advise, -1, ranges, 21, lambda: False)
    assert total == (50 if stops_at is None else 40)


# Writes to 48 MiB of memory of its own, then waits.
HOARDER = """
import time
held = bytearray(48 << 20)
for at in range(0, len(held), 4096):
    held[at] = at >> 12 & 255
print(flush=True)
time.sleep(60)
"""


def advice_lever(family: Children, members: Callable[[], tuple[int, ...]]) -> PageAdviceLever:
    source = ProcessSource(members=members, holds=lambda pid: pid in members())
    return PageAdviceLever("pages:bg", source, lambda granted: granted.slot(0).page_advice, PROC)


@needs_root
def test_cold_is_advised_on_all_private_pages(tmp_path: Path) -> None:
    family = Children(tmp_path, HOARDER)
    try:
        lever = advice_lever(family, family.pids)
        state = DesiredState(slots=(SlotDesire(page_advice="cold"),))
        (result,) = settle(lever, state)
        assert result.ok, result
        word, size, unit = result.value.split()
        assert (word, unit) == ("cold", "bytes")
        assert int(size) >= 48 * MIB
        assert settle(lever, state) == [], "once"
        assert not lever.held
    finally:
        family.close()


def test_a_process_that_left_the_slot_is_not_advised(family: Children) -> None:
    answers = iter([(family.process.pid,), ()])
    lever = advice_lever(family, lambda: next(answers))
    (result,) = settle(lever, DesiredState(slots=(SlotDesire(page_advice="pageout"),)))
    assert (result.ok, result.value) == (True, "pageout 0 bytes")


# ------------------------------------------------------------------ ending a slot

STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(flush=True)
time.sleep(60)
"""
END = DesiredState(slots=(SlotDesire(terminated=True),))
KILL = replace(END, kill_at_once=True)


def _ending(granted: DesiredState) -> signal.Signals | None:
    if not granted.slot(0).terminated:
        return None
    return signal.SIGKILL if granted.kill_at_once else signal.SIGTERM


def end_lever(
    family: Children,
    killed: list[int],
    check: Callable[[], None],
    holds: Callable[[int], bool] | None = None,
    *,
    unnamed: bool = False,
    grace_s: float = 0.2,
) -> TerminateLever:
    def members() -> tuple[int, ...]:
        return () if family.process.poll() is not None else (family.process.pid,)

    def populated() -> bool:
        return bool(members()) or unnamed

    def kill() -> tuple[int, ...]:
        if unnamed:
            raise GroupError("It holds processes that cannot be named.")
        killed.append(family.process.pid)
        family.process.kill()
        family.process.wait()
        return ()

    return TerminateLever(
        "terminate:bg",
        ProcessSource(members=members, holds=holds or (lambda pid: pid in members()), check=check),
        populated=populated,
        kill=kill,
        signal_of=_ending,
        grace_s=grace_s,
    )


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_slot_is_asked_to_end_and_then_made_to(tmp_path: Path, stubborn: bool) -> None:
    family = Children(tmp_path, STUBBORN if stubborn else PROGRAM)
    killed: list[int] = []
    try:
        lever = end_lever(family, killed, lambda: None)
        (result,) = settle(lever, END)
        assert (result.ok, result.value) == (True, "cgroup.kill" if stubborn else "SIGTERM")
        assert bool(killed) == stubborn
        assert family.process.wait(5) == (-signal.SIGKILL if stubborn else -signal.SIGTERM)
        assert settle(lever, END) == [], "once"
    finally:
        family.close()


def test_a_slot_is_killed_at_once_where_that_is_wanted(tmp_path: Path) -> None:
    family = Children(tmp_path, PROGRAM)
    killed: list[int] = []
    try:
        lever = end_lever(family, killed, lambda: None)
        (plan,) = lever.plan(KILL)
        assert (plan.target, plan.after) == ("SIGKILL to 1 processes", "killed")
        (result,) = settle(lever, KILL)
        assert (result.ok, result.value) == (True, "cgroup.kill")
        assert family.process.wait(5) == -signal.SIGKILL, "it would have ended on SIGTERM, too"
        assert killed == [family.process.pid]
    finally:
        family.close()


def test_a_slot_that_does_not_end_is_killed_as_soon_as_that_is_wanted(tmp_path: Path) -> None:
    family = Children(tmp_path, STUBBORN)
    killed: list[int] = []
    try:
        lever = end_lever(family, killed, lambda: None, grace_s=60.0)
        lever.apply(END, 0.0)
        time.sleep(0.1)
        assert killed == []
        settle(lever, KILL)
        assert family.process.wait(5) == -signal.SIGKILL
        assert killed == [family.process.pid]
    finally:
        family.close()


def test_an_end_that_nobody_saw_is_no_success(tmp_path: Path) -> None:
    family = Children(tmp_path, PROGRAM)
    try:
        lever = end_lever(family, [], lambda: None, unnamed=True)
        (result,) = settle(lever, END)
        assert (result.ok, result.value) == (False, "cgroup.kill")
        assert "cannot be named" in result.error
    finally:
        family.close()


def test_an_end_is_called_off_during_the_grace(tmp_path: Path) -> None:
    family = Children(tmp_path, STUBBORN)
    killed: list[int] = []
    try:
        lever = end_lever(family, killed, lambda: None)
        lever.apply(END, 0.0)
        time.sleep(0.05)
        settle(lever, RELEASED)
        time.sleep(0.3)
        assert killed == []
        assert family.process.poll() is None
    finally:
        family.close()


def test_a_protected_slot_is_not_even_asked(family: Children) -> None:
    def refuse() -> None:
        raise LeverError("Process 1 in bg is protected.")

    lever = end_lever(family, [], refuse)
    (result,) = settle(lever, END)
    assert "protected" in result.error
    time.sleep(0.05)
    assert family.process.poll() is None


def test_a_process_with_a_members_pid_is_not_asked_to_end(family: Children) -> None:
    """The member ended after the list was made, and another process has its pid now."""
    killed: list[int] = []
    lever = end_lever(family, killed, lambda: None, holds=lambda _pid: False)
    lever.apply(END, 0.0)
    time.sleep(0.1)
    settle(lever, RELEASED)
    assert family.process.poll() is None
    assert killed == []


def test_a_process_that_has_ended_before_it_could_be_continued_is_no_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        ticks = start_time_ticks(PROC, process.pid)
        assert ticks is not None

        def send(proc: Path, pid: int, expected_ticks: int, number: signal.Signals) -> bool:
            sent = send_signal(proc, pid, expected_ticks, number)
            if number is signal.SIGTERM:
                process.wait()
            return sent

        monkeypatch.setattr("stallward.actuator.levers.process.stop.send_signal", send)
        nobody = Hierarchy().group("nobody")
        lever = ProcessStopLever(Paths(), nobody, Originals(lambda *_: None))
        ref = ProcessRef(pid=process.pid, start_time_ticks=ticks)
        (result,) = lever.apply(DesiredState(terminate=ref), 1.0)
    assert result.ok, result.error
