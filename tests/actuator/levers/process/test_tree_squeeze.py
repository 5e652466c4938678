"""Squeezing and ending process trees: the calls to the kernel, and the reported results."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stallward.actuator.kernel.process_spec import ProcessesConfig
from stallward.actuator.kernel.process_trees import Forest, ProcessTree
from stallward.actuator.levers.base.lever import ExemptProcesses, Lever
from stallward.actuator.levers.base.originals import Originals
from stallward.actuator.levers.process.page_advice import private_ranges, why_no_advice
from stallward.actuator.levers.process.tree_squeeze import TreeSqueeze
from stallward.actuator.levers.tree_slot import TreeSlot
from stallward.actuator.record.lever_result import LeverResult
from stallward.agent.desired import MIB, DesiredState, SlotDesire

PROC = Path("/proc")
# Holds 64 MiB of its own, and a child that holds as much.
HOLDER = """
import os, signal, sys
if sys.argv[1] == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
data = bytearray(b"x") * (64 << 20)
if os.fork() == 0:
    data = bytearray(b"y") * (64 << 20)
    os.write(1, b"ready\\n")
while True:
    signal.pause()
"""
needs_advice = pytest.mark.skipif(bool(why_no_advice(PROC)), reason=why_no_advice(PROC))


class Setting:
    """A program as a tree."""

    def __init__(self, kind: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", HOLDER, kind],
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self.process.stdout.readline()
        forest = Forest(PROC, [None, ProcessesConfig(pids=(self.process.pid,))], ["app", "b"])
        tree = forest.trees[1]
        assert tree is not None
        self.tree: ProcessTree = tree
        self.calls: list[tuple[int, int]] = []
        self.forest = forest

    def note(self, _pidfd: int, ranges: list[tuple[int, int]], advice: int) -> int:
        """Record the advice instead of making the system call."""
        size = sum(length for _, length in ranges)
        self.calls.append((advice, size))
        return size

    def squeeze(self, exempt: frozenset[int] = frozenset(), **rest: object) -> TreeSqueeze:
        def wish(granted: DesiredState) -> tuple[int | None, bool]:
            return granted.slot(0).limit_bytes, granted.slot(0).paused

        return TreeSqueeze(
            self.tree,
            PROC,
            wish,
            exempt=ExemptProcesses(exempt),
            advise=self.note,
            **rest,  # type: ignore[arg-type]
        )

    def ranges(self) -> list[tuple[int, int]]:
        """Address and bytes of all that may be advised on, of both processes."""
        maps = [(PROC / str(pid) / "maps").read_bytes() for pid in self.tree.pids()]
        return [one for text in maps for one in private_ranges(text)]

    def end(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def holder() -> Iterator[Setting]:
    setting = Setting("meek")
    try:
        yield setting
    finally:
        setting.end()


def limited(mib: int, *, paused: bool) -> DesiredState:
    return DesiredState(slots=(SlotDesire(limit_bytes=mib * MIB, paused=paused),))


def finished(lever: Lever) -> list[LeverResult]:
    return list(lever.finish(time.monotonic() + 10.0))


@needs_advice
def test_a_paused_tree_is_paged_out_and_a_running_one_is_made_cold(holder: Setting) -> None:
    lever = holder.squeeze()
    assert lever.idle
    lever.apply(limited(16, paused=False), 100.0)
    assert lever.limit_bytes is None, "no limit holds a tree that runs"
    (result,) = finished(lever)
    assert (result.ok, result.value) == (True, "cold")
    assert {advice for advice, _ in holder.calls} == {20}
    holder.calls.clear()
    lever.apply(limited(16, paused=True), 100.1)
    assert lever.limit_bytes == 16 * MIB
    (result,) = finished(lever)
    assert {advice for advice, _ in holder.calls} == {21}
    assert sum(size for _, size in holder.calls) >= 128 * MIB
    assert "stay resident" in result.error, "nothing was really paged out"
    assert lever.limit_bytes is None, "and so it is not said to hold"
    assert not lever.held


@needs_advice
def test_all_ranges_of_a_running_process_are_made_cold(
    holder: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stallward.actuator.levers.process.page_advice._CALL_RANGES", 1)
    lever = holder.squeeze()
    lever.apply(limited(16, paused=False), 100.0)
    finished(lever)
    assert sorted(size for _, size in holder.calls) == sorted(size for _, size in holder.ranges())


@needs_advice
@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("refused", [0, 1])
def test_what_is_behind_a_range_that_the_kernel_refuses_is_advised_on(
    holder: Setting, paused: bool, refused: int
) -> None:
    """The system call ends at such a range, and returns how many bytes are in front of it."""
    ranges = holder.ranges()
    locked = ranges[refused]
    advised: list[tuple[int, int]] = []

    def advise(_pidfd: int, ranges: list[tuple[int, int]], _advice: int) -> int:
        done = ranges[: ranges.index(locked)] if locked in ranges else ranges
        if not done:
            raise OSError(errno.EINVAL, "it is locked")
        advised.extend(done)
        return sum(size for _, size in done)

    lever = holder.squeeze()
    lever._advise = advise
    lever.apply(limited(16, paused=paused), 100.0)
    finished(lever)
    assert sorted(advised) == sorted(one for one in ranges if one != locked)


@needs_advice
def test_a_failure_is_said_once_and_tried_again(holder: Setting) -> None:
    lever = holder.squeeze()
    lever.apply(limited(16, paused=True), 100.0)
    assert len(finished(lever)) == 1
    holder.calls.clear()
    lever.apply(limited(16, paused=True), 100.5)
    assert finished(lever) == []
    assert holder.calls == []
    lever.apply(limited(16, paused=True), 101.5)
    assert finished(lever) == []
    assert holder.calls != []


@needs_advice
def test_a_tree_within_its_limit_is_left_alone(holder: Setting) -> None:
    lever = holder.squeeze()
    lever.apply(limited(500, paused=True), 100.0)
    assert finished(lever) == []
    assert holder.calls == []
    lever.apply(DesiredState(), 101.0)
    assert lever.idle


@needs_advice
def test_exempt_processes_keep_their_pages(holder: Setting) -> None:
    lever = holder.squeeze(frozenset(holder.tree.pids()))
    lever.apply(limited(16, paused=True), 100.0)
    finished(lever)
    assert holder.calls == []


@needs_advice
def test_a_plan_changes_nothing(holder: Setting) -> None:
    lever = holder.squeeze()
    (plan,) = lever.plan(limited(16, paused=True))
    assert plan.target == "process_madvise on 2 processes"
    assert plan.after == f"paged out down to {16 * MIB} bytes"
    assert holder.calls == []
    assert lever.plan(DesiredState()) == ()


@needs_advice
def test_reclaiming_once_is_not_repeated(holder: Setting) -> None:
    lever = holder.squeeze(once=True)
    lever.apply(limited(16, paused=True), 100.0)
    finished(lever)
    holder.calls.clear()
    lever.apply(limited(16, paused=True), 102.0)
    finished(lever)
    assert holder.calls == []
    assert lever.idle


@pytest.mark.parametrize("kind", ["meek", "stubborn"])
def test_a_tree_is_ended_also_when_it_is_stopped(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = Setting(kind)
    try:
        slot = TreeSlot(0, setting.tree, PROC, Originals(lambda *_: None), ExemptProcesses())
        pause, end = slot.pause(), slot.processes()[-1]
        monkeypatch.setattr(end, "_grace_s", 0.3)
        pause.apply(DesiredState(slots=(SlotDesire(paused=True),)), 1.0)
        ending = DesiredState(slots=(SlotDesire(paused=True, terminated=True),))
        pause.apply(ending, 1.1)
        assert not pause.requested(), "what is to end must run"
        end.apply(ending, 1.1)
        deadline_s = time.monotonic() + 10.0
        while setting.tree.pids() and time.monotonic() < deadline_s:
            setting.forest.refresh()
            for pid in setting.tree.pids():
                setting.forest._table.recheck(pid)
            time.sleep(0.02)
        assert setting.tree.pids() == ()
        assert setting.process.wait(5) == -(9 if kind == "stubborn" else 15)
        assert all(result.ok for result in finished(end))
    finally:
        setting.process.kill()
        setting.process.wait()
        assert setting.process.stdout is not None
        setting.process.stdout.close()


@pytest.mark.live
def test_pages_of_a_paused_tree_are_really_paged_out(holder: Setting) -> None:
    if "partition" not in (swaps := Path("/proc/swaps").read_text()) and "file" not in swaps:
        pytest.skip("no swap")
    lever = holder.squeeze()
    lever._advise = __import__(  # the real call
        "stallward.actuator.kernel.memory.mappings", fromlist=["process_madvise"]
    ).process_madvise
    pause = TreeSlot(0, holder.tree, PROC, Originals(lambda *_: None), ExemptProcesses()).pause()
    pause.apply(DesiredState(slots=(SlotDesire(paused=True),)), 1.0)
    lever.apply(limited(40, paused=True), 1.0)
    (result,) = finished(lever)
    assert result.ok, result.error
    held = sum(lever._held().values())
    assert held <= 41 * MIB
    assert lever.limit_bytes == 40 * MIB
    pause.restore(2.0)
