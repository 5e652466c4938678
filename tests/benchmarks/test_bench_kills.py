"""The kill campaign reads settings, counts problems, and leaves nothing after live kills."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from stallward.actuator.client.daemon_process import DaemonPids
from stallward.actuator.errors import DaemonError
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.kernel.scheduling import (
    CPUS,
    NICE,
    SLICE,
    thread_ids,
    why_no_slice,
    write_value,
)
from stallward.benchmarks.kernel_settings import changed_settings, read_settings
from stallward.benchmarks.kills import bench as module
from stallward.benchmarks.kills.arms import (
    ENDING_STORM,
    KilledArm,
    choose_arms,
    one_controller,
)
from stallward.benchmarks.kills.bench import bench_kills, campaign_node
from stallward.benchmarks.kills.campaign import Campaign, Instants
from stallward.benchmarks.kills.tally import KILL_TARGETS, MEANINGS, Kill, Tally
from stallward.evaluation.cli import main


def test_every_writable_setting_is_read_and_counters_are_not(tmp_path: Path) -> None:
    paths = Paths(proc=tmp_path / "proc", cgroup=tmp_path / "cg")
    group = paths.cgroup / "memory/stallward-1/slot0"
    vm = paths.proc / "sys/vm"
    for folder in (group, vm, paths.cgroup / "unified/stallward-1/slot0"):
        folder.mkdir(parents=True)
    for name, mode in (("memory.new_limit", 0o644), ("memory.current", 0o644), ("ro", 0o444)):
        (group / name).write_text("7\n")
        (group / name).chmod(mode)
    for name in ("memory.stat", "memory.numa_stat", "memory.max_usage_in_bytes", "tasks"):
        (group / name).write_text("7\n")
    unified = paths.cgroup / "unified/stallward-1/slot0"
    for name in ("cgroup.freeze", "cgroup.procs", "memory.pressure", "memory.reclaim"):
        (unified / name).write_text("0")
    (vm / "swappiness").write_text("60")
    for command in ("drop_caches", "compact_memory", "stat_refresh"):
        (vm / command).write_text("0")
    before = read_settings(["stallward-1/slot0", "gone"], [], paths)
    assert {Path(name).name for name in before} == {
        "memory.new_limit",
        "cgroup.freeze",
        "swappiness",
    }
    (vm / "swappiness").write_text("61")
    (group / "memory.new_limit").unlink()
    now = read_settings(["stallward-1/slot0"], [], paths)
    assert changed_settings(before, now) == (f"{vm}/swappiness is '61', was '60'",)


def test_a_setting_whose_name_only_looks_like_a_counter_is_read(tmp_path: Path) -> None:
    """A group that is left frozen by the freezer of v1 is what a campaign is there to find."""
    paths = Paths(proc=tmp_path / "proc", cgroup=tmp_path / "cg")
    state = paths.cgroup / "freezer/slot0/freezer.state"
    vm = paths.proc / "sys/vm"
    for folder in (state.parent, vm):
        folder.mkdir(parents=True)
    files = [state, *(vm / name for name in LOOK_LIKE_COUNTERS)]
    for file in files:
        file.write_text("1")
    before = read_settings(["slot0"], [], paths)
    for file in files:
        file.write_text("2")
    changes = changed_settings(before, read_settings(["slot0"], [], paths))
    assert changes == tuple(f"{file} is '2', was '1'" for file in files)


LOOK_LIKE_COUNTERS = (
    "numa_stat",
    "oom_dump_tasks",
    "stat_interval",
    "vfs_cache_pressure",
    "zone_reclaim_mode",
)


def test_changed_settings_of_a_process_are_reported_until_it_ends() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        before = read_settings([], [process.pid], Paths())
        nice = os.getpriority(os.PRIO_PROCESS, process.pid)
        os.setpriority(os.PRIO_PROCESS, process.pid, nice + 1 if nice < 19 else 18)
        Path(f"/proc/{process.pid}/oom_score_adj").write_text("300")
        changes = changed_settings(before, read_settings([], [process.pid], Paths()))
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        unseen = read_settings([], [process.pid], Paths())
        assert changed_settings(before, unseen) == (), "ended, and its parent has not looked"
        process.wait()
        assert len(changes) == 2
        after_end = read_settings([], [process.pid], Paths())
        assert changed_settings(before, after_end) == ()


THREADS = """
import threading
for _ in range(2):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print(flush=True)
threading.Event().wait()
"""


def test_settings_of_every_thread_are_read() -> None:
    command = [sys.executable, "-c", THREADS]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            tid = thread_ids(Path("/proc"), process.pid)[1]
            before = read_settings([], [process.pid], Paths())
            cpu = str(min(os.sched_getaffinity(0)))
            set_to = {NICE: "19" if os.nice(0) < 19 else "18", CPUS: cpu} | (
                {} if why_no_slice() else {SLICE: "300"}
            )
            for what, value in set_to.items():
                write_value(what, tid, value)
            changes = changed_settings(before, read_settings([], [process.pid], Paths()))
        finally:
            process.kill()
    name = f"thread {tid} of process {process.pid}"
    known = {what for what in set_to if before[f"{name}: {what}"] != set_to[what]}
    # Other tests may change what is the whole machine's meanwhile.
    seen = {what for line in changes if (what := line.partition(" is ")[0]).startswith("thread ")}
    assert seen == {f"{name}: {w}" for w in known}
    assert NICE in known


def test_problems_are_counted_by_the_target_of_the_kill() -> None:
    tally = Tally(
        kills=[
            Kill(target="loop", held=True, restore_s=0.1),
            Kill(target="guardian", held=True, problems=("x", "y")),
            Kill(target="service", held=True, problems=("the loop is gone",)),
            Kill(target="all", held=False, restore_s=2.0),
        ]
    )
    figures = tally.figures()
    assert figures.keys() == MEANINGS.keys()
    assert (figures["kills"], figures["found_held"]) == (4.0, 3.0)
    assert (figures["left_after_1_s"], figures["loop_lost"]) == (1.0, 1.0)
    assert figures["restore_max_ms"] == pytest.approx(100.0)
    assert figures["restart_max_ms"] == pytest.approx(2000.0)
    assert sum(share for share, _ in KILL_TARGETS.values()) == pytest.approx(1.0)


def test_each_arm_has_its_own_counts() -> None:
    tally = Tally(
        kills=[
            Kill(target="loop", arm="rule", held=True, restore_s=0.1),
            Kill(target="loop", arm="none", held=False, restore_s=0.0),
            Kill(target="guardian", arm="rule", held=True, problems=("x", "y")),
            Kill(target="all", arm="rule", held=False, restore_s=2.0),
            Kill(target="service", arm="none", held=False, problems=("the loop is gone",)),
        ],
        ended=Counter({"rule": 3}),
    )
    rule, none = tally.by_arm()
    assert (rule.arm, rule.kills, rule.found_held, rule.left_after_1_s) == ("rule", 3, 2, 1)
    assert rule.restore_max_ms == pytest.approx(100.0)
    assert rule.restart_max_ms == pytest.approx(2000.0)
    assert (rule.loop_lost, rule.programs_ended) == (0, 3)
    assert (none.arm, none.kills, none.found_held, none.loop_lost) == ("none", 2, 0, 1)
    assert (none.restart_max_ms, none.programs_ended) == (None, 0)
    assert tally.figures()["programs_ended"] == 3.0


class Interrupted:
    """A campaign that is interrupted at its third kill."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.kills = 0
        self.ended: Counter[str] = Counter()

    def kill(self, target: str, arm: KilledArm) -> Kill:
        self.kills += 1
        if self.kills == 3:
            raise self.error
        return Kill(target=target, arm=arm.label, held=True, problems=("memory.high is '1'",))


@pytest.mark.parametrize(
    ("error", "code"),
    [(KeyboardInterrupt(), 130), (SystemExit(143), 143), (DaemonError("It is gone."), 2)],
)
def test_the_counts_are_printed_however_a_campaign_ends(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
) -> None:
    def nothing(*_: object, **__: object) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    monkeypatch.setattr(module, "open_sandbox", nothing)
    monkeypatch.setattr(module, "Programs", nothing)
    monkeypatch.setattr(
        module, "Campaign", lambda *_, **__: contextlib.nullcontext(Interrupted(error))
    )
    assert main(["bench", "kills", "--kills", "5", "--json"]) == code
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert (result["interrupted"], result["kills"], result["found_held"]) == (True, 2.0, 2.0)
    assert printed.err.count("memory.high is '1'") == 2
    assert [row["kills"] for row in result["arms"]] == [2]
    assert main(["bench", "kills", "--kills", "5"]) == code
    assert "Interrupted after 2 kills." in capsys.readouterr().out.splitlines()
    assert main(["bench", "kills", "--kills", "2", "--json"]) == 1, "a problem was counted"
    assert json.loads(capsys.readouterr().out)["interrupted"] is False


def test_a_campaign_without_a_kill_prints_no_counts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("stallward.benchmarks.bench.bench_kills", interrupted)
    assert main(["bench", "kills", "--json"]) == 130
    assert capsys.readouterr().out == ""


def test_arms_take_turns_and_those_that_held_nothing_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def nothing(*_: object, **__: object) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    class Calm(Interrupted):
        def kill(self, target: str, arm: KilledArm) -> Kill:
            return Kill(target=target, arm=arm.label, held=arm.label != "none")

    monkeypatch.setattr(module, "open_sandbox", nothing)
    monkeypatch.setattr(module, "Programs", nothing)
    monkeypatch.setattr(
        module, "Campaign", lambda *_, **__: contextlib.nullcontext(Calm(KeyboardInterrupt()))
    )
    command = ["bench", "kills", "--arms", "none,senpai,static:pause=all", "--kills", "7"]
    assert main([*command, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    counts = {row["arm"]: (row["kills"], row["found_held"]) for row in result["arms"]}
    assert counts == {"none": (3, 0), "senpai": (2, 2), "static:pause=all": (2, 2)}
    assert result["left_out"] == {}
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "Held nothing when they were killed: none." in lines
    assert main([*command, "--ends"]) == 2
    assert "Leave out --controller and --ends" in capsys.readouterr().err


@pytest.mark.parametrize("left", [(), ("memory.high is '1', was 'max'",)])
def test_what_was_not_restored_at_the_next_start_has_no_time(
    left: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = object.__new__(Campaign)
    campaign._rng = random.Random(1)
    for name in ("_await_end", "_run_restore", "_run_calm_daemon"):
        monkeypatch.setattr(Campaign, name, lambda *_: None)
    monkeypatch.setattr(Campaign, "_changed", lambda _: left)
    kill = campaign._restart_after_all(DaemonPids(guardian=1), held=True)
    assert (kill.problems, kill.restore_s is None) == (left, bool(left))
    assert Tally(kills=[kill]).figures()["restart_max_ms"] is None or not left


class InTurn(random.Random):
    """Draws everything by chance but the target of a kill, so that all have their turn."""

    targets = itertools.cycle(KILL_TARGETS)

    def choices(self, *_: Any, **__: Any) -> list[Any]:
        return [next(self.targets)]


@pytest.mark.live
@pytest.mark.timeout(300)
def test_twelve_kills_of_all_processes_under_pressure_leave_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(random, "Random", InTurn)
    tally = Tally()
    bench_kills(tally, kills=12, seed=2)
    assert [kill.problems for kill in tally.kills] == [()] * 12
    assert {kill.target for kill in tally.kills} == set(KILL_TARGETS)
    assert any(kill.held for kill in tally.kills)


@pytest.mark.live
@pytest.mark.reaches
@pytest.mark.timeout(300)
def test_a_few_kills_while_system_calls_fail_leave_nothing() -> None:
    tally = Tally()
    bench_kills(tally, kills=5, faults=True, seed=5)
    assert [kill.problems for kill in tally.kills] == [()] * 5
    assert any(kill.held for kill in tally.kills)


@pytest.mark.live
@pytest.mark.reaches
@pytest.mark.timeout(180)
def test_a_few_kills_of_a_daemon_that_protects_two_applications_leave_nothing() -> None:
    tally = Tally()
    bench_kills(tally, kills=4, several=True, seed=11)
    assert [kill.problems for kill in tally.kills] == [()] * 4
    assert any(kill.held for kill in tally.kills)


@pytest.mark.live
@pytest.mark.reaches
@pytest.mark.timeout(180)
def test_a_few_kills_while_programs_are_ended_leave_nothing() -> None:
    tally = Tally()
    bench_kills(tally, kills=8, arms=(one_controller(ENDING_STORM, ends=True),), seed=3)
    assert [kill.problems for kill in tally.kills] == [()] * 8
    assert any(kill.held for kill in tally.kills)
    assert tally.ended.total() > 0


@pytest.mark.live
@pytest.mark.reaches
@pytest.mark.skipif(bool(why_no_slice()), reason=why_no_slice() or "it can")
def test_a_few_kills_while_threads_are_scheduled_leave_nothing() -> None:
    tally = Tally()
    bench_kills(tally, kills=4, arms=(one_controller("dasec"),), seed=7)
    assert [kill.problems for kill in tally.kills] == [()] * 4
    assert any(kill.held for kill in tally.kills)


@pytest.mark.live
@pytest.mark.reaches
@pytest.mark.parametrize("controller", ["swap-assign", "mat:refaults_per_s=10"])
def test_other_controllers_leave_nothing_either(controller: str) -> None:
    tally = Tally()
    instants = Instants(any_time_share=0.0)
    bench_kills(tally, kills=3, arms=(one_controller(controller),), instants=instants, seed=5)
    assert [kill.problems for kill in tally.kills] == [()] * 3
    assert any(kill.held for kill in tally.kills)


@pytest.mark.live
@pytest.mark.reaches
@pytest.mark.timeout(180)
def test_arms_in_turn_are_killed_while_they_hold_something_and_leave_nothing() -> None:
    """All but ``none`` hold something from their first tick on, or from the first with memory."""
    text = "static:pause=all,static:limit_mib=32,senpai,none"
    arms, left_out = choose_arms(text, campaign_node())
    tally = Tally()
    instants = Instants(any_time_share=0.0, patience_s=6.0, without_change=True)
    bench_kills(tally, kills=4, arms=arms, instants=instants, seed=4)
    assert left_out == {}
    assert [kill.problems for kill in tally.kills] == [()] * 4
    held = {row.arm: row.found_held for row in tally.by_arm()}
    assert held.pop("none") == 0
    assert held == dict.fromkeys(("static:pause=all", "static:limit_mib=32", "senpai"), 1)


def test_an_unknown_controller_is_refused_before_anything_is_started(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for option in ("--controller", "--arms"):
        assert main(["bench", "kills", option, "nope"]) == 2
        assert "no controller 'nope'" in capsys.readouterr().err
