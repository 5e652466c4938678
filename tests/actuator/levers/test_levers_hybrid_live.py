"""Every lever that works on this machine, on real groups: moved, read back and undone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.tables import (
    ControlConfig,
    JournalConfig,
    NodeConfig,
    ProtectedConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.journal.entries import JournalEntry
from stallward.actuator.journal.restore import restore
from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.kernel.hierarchies import require
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.levers.base.originals import Originals
from stallward.actuator.levers.cgroup.pause import PauseLever, find_freezer
from stallward.actuator.levers.lever_set import LeverSet
from stallward.actuator.node.node import Node
from stallward.actuator.record.lever_result import LeverResult
from stallward.agent.desired import MIB, RELEASED, DesiredState, SlotDesire

pytestmark = pytest.mark.live


class Site:
    """An application and a slot with a group in every hierarchy of this machine."""

    def __init__(self) -> None:
        self.hierarchy = require(Paths())
        self.zone = self.hierarchy.group(f"stallward-test-{os.getpid()}/every")
        self.app, self.slot = self.zone.child("app"), self.zone.child("bg")
        for group in (self.zone, self.app, self.slot):
            group.create(controllers=("cpu", "blkio", "freezer"))
        self.sent: list[JournalEntry] = []
        self.levers = LeverSet(
            Paths(),
            self.hierarchy,
            self.zone,
            (self.app,),
            (self.slot,),
            400 * MIB,
            self.sent.append,
        )
        self.originals = self.levers.originals()
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, code: str, group: Cgroup | None = None) -> subprocess.Popen[bytes]:
        """Run Python code in a group; returns when it has printed a line."""
        entries = [str(folder / "cgroup.procs") for folder in (group or self.slot).member_dirs]
        enter = f"import sys,time\nfor e in {entries!r}: open(e,'w').write('0')"
        process = subprocess.Popen(
            [sys.executable, "-c", f"{enter}\n{code}\nprint(flush=True)\ntime.sleep(60)"],
            stdout=subprocess.PIPE,
        )
        self.processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        return process

    def apply(self, state: DesiredState, until: Callable[[], bool]) -> list[LeverResult]:
        """Apply again and again until ``until``, as a loop does."""
        results = list(self.levers.apply(state))
        deadline = time.monotonic() + 20
        while not until():
            assert time.monotonic() < deadline, results
            time.sleep(0.01)
            results += self.levers.apply(state)
        return results

    def v1(self, controller: str, name: str) -> str:
        folder = self.slot.v1_dir(controller)
        if folder is None:
            pytest.skip(f"no v1 {controller} hierarchy")
        return (folder / name).read_text()

    def usage(self) -> int:
        assert self.slot.memory_dir is not None
        v2 = self.hierarchy.kind == "v2"
        name = "memory.current" if v2 else "memory.usage_in_bytes"
        return int((self.slot.memory_dir / name).read_text())

    def close(self) -> None:
        self.levers.restore()
        self.zone.kill()
        for process in self.processes:
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self.zone.remove()


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    try:
        yield made
    finally:
        made.close()


def one(**wish: object) -> DesiredState:
    return DesiredState(slots=(replace(SlotDesire(), **wish),))  # type: ignore[arg-type]


def test_cpu_weight_and_quota(site: Site) -> None:
    if site.hierarchy.kind == "v2":
        pytest.skip("v1 files")
    before = site.v1("cpu", "cpu.shares"), site.v1("cpu", "cpu.cfs_quota_us")
    site.start("")
    state = one(cpu_weight=1, cpu_max_cores=0.25)
    results = site.levers.apply(state)
    assert [(r.lever, r.ok, r.value) for r in results] == [
        ("cpu_weight:bg", True, "10"),
        ("cpu_max:bg", True, "25000"),
    ]
    assert site.v1("cpu", "cpu.shares") == "10\n"
    assert site.v1("cpu", "cpu.cfs_quota_us") == "25000\n"
    reported = {state.lever: state.value for state in site.levers.states()}
    assert reported == {"cpu_weight:bg": "10", "cpu_max:bg": "25000"}
    assert site.sent == []
    site.levers.apply(RELEASED)
    assert (site.v1("cpu", "cpu.shares"), site.v1("cpu", "cpu.cfs_quota_us")) == before


def test_a_quota_that_is_refused_changes_nothing(site: Site) -> None:
    if site.hierarchy.kind == "v2":
        pytest.skip("v1 files")
    quota = site.v1("cpu", "cpu.cfs_quota_us")
    # A child may not have more than its parent.
    parent = site.zone.v1_dir("cpu")
    assert parent is not None
    (parent / "cpu.cfs_quota_us").write_text("20000")
    (result,) = site.levers.apply(one(cpu_max_cores=1.0))
    assert not result.ok
    assert "Invalid argument" in result.error
    assert site.v1("cpu", "cpu.cfs_quota_us") == quota
    assert site.levers.held() == ()
    (parent / "cpu.cfs_quota_us").write_text("-1")


def test_disk_rates_on_every_disk(site: Site) -> None:
    if site.hierarchy.kind == "v2":
        pytest.skip("v1 files")
    if any(text.startswith("io_max") for text in site.levers.missing()):
        pytest.skip("no disk")
    names = ("blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device")
    before = [site.v1("blkio", name) for name in names]
    state = one(io_max_bytes_per_s=MIB)
    results = site.apply(state, lambda: all(site.v1("blkio", n).strip() for n in names))
    results += site.apply(state, lambda: "io_max:bg" in {s.lever for s in site.levers.states()})
    assert all(r.ok for r in results)
    for name in names:
        assert all(line.endswith(f" {MIB}") for line in site.v1("blkio", name).splitlines())
    # As after a crash: from the entries alone.
    assert restore(site.originals, Paths()) == ()
    assert [site.v1("blkio", name) for name in names] == before
    site.levers.restore()
    assert [site.v1("blkio", name) for name in names] == before


def test_reclaim_evicts_down_to_the_target_and_leaves_no_limit(site: Site, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.write_bytes(os.urandom(MIB) * 120)
    with data.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    site.start(f"open({str(data)!r},'rb').read()")
    assert site.usage() > 110 * MIB
    state = one(reclaim_to_bytes=40 * MIB)
    assert site.levers.apply(state) == ()
    results: list[LeverResult] = []
    results += site.apply(state, lambda: site.usage() <= 41 * MIB)
    while not results:
        results += site.levers.apply(state)
    (result,) = results
    assert (result.lever, result.ok) == ("reclaim:bg", True), result
    assert int(result.value) <= 41 * MIB
    if site.hierarchy.kind == "hybrid":
        assert site.slot.memory_dir is not None
        assert int((site.slot.memory_dir / "memory.limit_in_bytes").read_text()) > 1 << 60
    assert site.levers.held() == ()


def test_page_out_needs_swap_and_says_what_it_advised(site: Site) -> None:
    site.start("held = bytearray(24 << 20)\nheld[::4096] = b'x' * (len(held) // 4096)")
    state = one(page_advice="pageout")
    results: list[LeverResult] = []
    deadline = time.monotonic() + 20
    while not results and time.monotonic() < deadline:
        results += site.levers.apply(state)
        time.sleep(0.01)
    (result,) = results
    assert result.ok, result
    assert int(result.value.split()[1]) >= 24 * MIB
    site.levers.restore()
    assert site.levers.held() == ()


def test_nice_and_cpus_reach_a_slot_and_its_children(site: Site) -> None:
    code = (
        "import os,threading\n"
        "threading.Thread(target=time.sleep,args=(60,),daemon=True).start()\n"
        "if not os.fork(): time.sleep(60)"
    )
    site.start(code)
    cpu = min(os.sched_getaffinity(0))
    pids = site.slot.pids(recursive=True)
    assert len(pids) == 2

    def seen() -> set[tuple[int, frozenset[int]]]:
        tids = [int(t.name) for pid in pids for t in Path(f"/proc/{pid}/task").iterdir()]
        return {
            (os.getpriority(os.PRIO_PROCESS, t), frozenset(os.sched_getaffinity(t))) for t in tids
        }

    before = seen()
    state = one(nice=7, cpus=(cpu,))
    site.apply(state, lambda: seen() == {(7, frozenset({cpu}))})
    site.levers.restore()
    assert seen() == before
    assert site.levers.held() == ()


def test_a_slot_is_terminated_frozen_or_not(site: Site) -> None:
    process = site.start("")
    paused = one(paused=True)
    site.apply(paused, lambda: site.levers.slot_frozen(0))
    ended = one(paused=True, terminated=True)
    results = site.apply(ended, lambda: process.poll() is not None)
    assert process.wait() == -15
    assert ("pause:bg", "0") in [(r.lever, r.value) for r in results]


def test_the_v1_freezer_takes_over_where_there_is_no_v2_one(site: Site) -> None:
    v1 = site.slot.v1_dir("freezer")
    if v1 is None:
        pytest.skip("no v1 freezer hierarchy")
    site.start("")
    hierarchy = replace(site.hierarchy, unified_root=None)
    group = replace(site.slot, hierarchy=hierarchy)
    freezer, missing = find_freezer(group)
    assert (freezer is not None, missing) == (True, "")
    sent: list[JournalEntry] = []
    lever = PauseLever(group, Originals(sent.append), lambda s: s.slot(0).paused)
    assert all(r.ok for r in lever.apply(one(paused=True), 0.0))
    deadline = time.monotonic() + 5
    while not lever.frozen():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert (v1 / "freezer.state").read_text() == "FROZEN\n"
    assert restore(lever._originals.entries, Paths()) == ()
    assert (v1 / "freezer.state").read_text() == "THAWED\n"
    lever.restore(1.0)


def test_a_read_only_file_is_a_reason_and_not_a_change(site: Site, tmp_path: Path) -> None:
    if site.hierarchy.kind == "v2":
        pytest.skip("v1 files")
    folder = site.slot.v1_dir("cpu")
    assert folder is not None
    target = folder / "cpu.shares"
    mounted = subprocess.run(["mount", "--bind", target, target], check=False)
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", target], check=True)
        (result,) = site.levers.apply(one(cpu_weight=50))
        assert not result.ok
        assert "Read-only file system" in result.error
        assert site.levers.held() == ()
    finally:
        subprocess.run(["umount", target], check=True)
    assert target.read_text() == "1024\n"


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_sample_lists_the_levers_that_are_moved(
    site: Site, tmp_path: Path, dry_run: bool
) -> None:
    config = DaemonConfig(
        node=NodeConfig(zone=site.zone.name),
        protected=ProtectedConfig(group=site.app.name),
        background=(SlotConfig(name="bg", group=site.slot.name),),
        service=ServiceConfig(socket=tmp_path / "s.sock"),
        journal=JournalConfig(path=tmp_path / "journal"),
        control=ControlConfig(dry_run=dry_run),
    )
    if site.hierarchy.kind == "v2":
        pytest.skip("v1 files")
    node = Node(config, site.sent.append)
    try:
        state = one(paused=True, cpu_weight=10)
        applied = node.apply(state, node.read(0, 1.0), 1.0)
        assert {r.dry_run for r in applied} == {dry_run}
        sample = node.read(1, 2.0)
        assert [m.lever for m in sample.levers] == ([] if dry_run else ["cpu_weight:bg"])
        assert sample.slot_states[0].paused == (not dry_run)
        assert site.v1("cpu", "cpu.shares") == ("1024\n" if dry_run else "102\n")
        assert site.levers.slot_frozen(0) == (not dry_run)
    finally:
        assert node.close()
    assert site.v1("cpu", "cpu.shares") == "1024\n"
