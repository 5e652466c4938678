"""The kill campaign: what it reads of a node, what it counts, and a few kills for real."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from stallward.actuator.paths import Paths
from stallward.evaluation.bench_kills import bench_kills
from stallward.evaluation.kill_tally import MEANINGS, WHO, Kill, Tally
from stallward.evaluation.node_settings import changed, read_settings


def test_every_writable_setting_is_read_and_counters_are_not(tmp_path: Path) -> None:
    paths = Paths(proc=tmp_path / "proc", cgroup=tmp_path / "cg")
    group = paths.cgroup / "memory/stallward-1/slot0"
    vm = paths.proc / "sys/vm"
    for folder in (group, vm, paths.cgroup / "unified/stallward-1/slot0"):
        folder.mkdir(parents=True)
    for name, mode in (("memory.new_limit", 0o644), ("memory.current", 0o644), ("ro", 0o444)):
        (group / name).write_text("7\n")
        (group / name).chmod(mode)
    (paths.cgroup / "unified/stallward-1/slot0/cgroup.freeze").write_text("0")
    (vm / "swappiness").write_text("60")
    (vm / "drop_caches").write_text("0")
    before = read_settings(["stallward-1/slot0", "gone"], [], paths)
    assert {Path(name).name for name in before} == {
        "memory.new_limit",
        "cgroup.freeze",
        "swappiness",
    }
    (vm / "swappiness").write_text("61")
    (group / "memory.new_limit").unlink()
    now = read_settings(["stallward-1/slot0"], [], paths)
    assert changed(before, now) == (f"{vm}/swappiness is '61', was '60'",)


def test_a_process_is_looked_at() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        before = read_settings([], [process.pid], Paths())
        os.setpriority(os.PRIO_PROCESS, process.pid, 5)
        Path(f"/proc/{process.pid}/oom_score_adj").write_text("300")
        found = changed(before, read_settings([], [process.pid], Paths()))
        process.kill()
        process.wait()
        assert len(found) == 2
        assert changed(before, read_settings([], [process.pid], Paths())) == (), "it is gone"


def test_what_is_left_is_counted_by_what_was_killed() -> None:
    tally = Tally(
        kills=[
            Kill(who="loop", held=True, restore_s=0.1),
            Kill(who="guardian", held=True, left=("x", "y")),
            Kill(who="service", held=True, left=("the loop is gone",)),
            Kill(who="all", held=False, restore_s=2.0),
        ]
    )
    found = tally.figures()
    assert found.keys() == MEANINGS.keys()
    assert (found["kills"], found["found_held"]) == (4.0, 3.0)
    assert (found["left_after_1_s"], found["loop_lost"]) == (1.0, 1.0)
    assert found["restore_max_ms"] == pytest.approx(100.0)
    assert found["restart_max_ms"] == pytest.approx(2000.0)
    assert sum(share for share, _ in WHO.values()) == pytest.approx(1.0)


@pytest.mark.live
@pytest.mark.timeout(120)
def test_a_few_kills_under_pressure_leave_nothing() -> None:
    tally = bench_kills(kills=4, seed=2)
    assert [kill.left for kill in tally.kills] == [()] * 4
    assert any(kill.held for kill in tally.kills)
