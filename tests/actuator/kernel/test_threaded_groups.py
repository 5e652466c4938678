"""A threaded group is refused by name, and killing never reports what it did not see."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from own_names import own_name

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.tables import (
    JournalConfig,
    NodeConfig,
    ProtectedConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.doctor.doctor import examine
from stallward.actuator.errors import GroupError, KernelFileError, NodeError, SensorError
from stallward.actuator.kernel.cgroups import Cgroup, Hierarchy, why_no_processes
from stallward.actuator.kernel.hierarchies import require
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.node.find_targets import find_targets
from stallward.actuator.sensors.processes.members import GroupMembers


def make(root: Path, name: str, kind: str, *, procs: str = "", populated: bool = False) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "cgroup.type").write_text(f"{kind}\n")
    (folder / "cgroup.events").write_text(f"populated {int(populated)}\nfrozen 0\n")
    if kind not in {"threaded", "domain invalid"}:
        (folder / "cgroup.procs").write_text(procs)
    return folder


@pytest.fixture
def node(tmp_path: Path) -> Hierarchy:
    """A v2 hierarchy; a list that cannot be read is not there, which reads the same."""
    root = tmp_path / "cg"
    make(root, "plain", "domain")
    make(root, "job", "domain threaded", procs="7\n", populated=True)
    make(root, "job/pool", "threaded", populated=True)
    make(root, "job/pool/deep", "threaded", populated=True)
    make(root, "job/invalid", "domain invalid")
    make(root, "alone", "threaded", populated=True)
    return Hierarchy(kind="v2", memory_root=root, unified_root=root, why="cgroup v2.")


@pytest.mark.parametrize(
    ("name", "kind", "next_step"),
    [
        ("job/pool", "threaded", "Name its domain, 'job'."),
        ("job/pool/deep", "threaded", "Name its domain, 'job'."),
        ("job/invalid", "domain invalid", "Name its domain, 'job'."),
        ("alone", "threaded", "Let its processes run in a group that is not threaded."),
    ],
)
def test_a_threaded_group_is_told_with_its_domain(
    node: Hierarchy, name: str, kind: str, next_step: str
) -> None:
    cause, step = why_no_processes(node.group(name), node.unified_root)
    assert f"The group {name!r} is {kind}" in cause
    assert step == next_step


@pytest.mark.parametrize("name", ["plain", "job", "/", "gone"])
def test_a_group_of_processes_is_one(node: Hierarchy, name: str) -> None:
    assert why_no_processes(node.group(name), node.unified_root) == ("", "")


def test_a_threaded_group_has_no_empty_list_of_processes(node: Hierarchy) -> None:
    pool = node.group("job/pool")
    assert pool.populated()
    with pytest.raises(KernelFileError, match="threaded") as caught:
        pool.pids(recursive=True)
    assert "domain" in caught.value.next_step
    with pytest.raises(SensorError, match="threaded"):
        GroupMembers(pool).pids()


def test_a_domain_lists_the_processes_of_its_threaded_groups(node: Hierarchy) -> None:
    job = node.group("job")
    assert job.pids(recursive=True) == (7,)
    members = GroupMembers(job)
    assert members.pids() == {7}
    members.close()
    assert node.group("gone").pids(recursive=True) == ()


def test_killing_a_threaded_group_is_refused(node: Hierarchy) -> None:
    with pytest.raises(GroupError, match=r"Cannot kill the group job/pool: .*threaded"):
        node.group("job/pool").kill(timeout_s=0.05)


@pytest.mark.parametrize("procs", ["", "0\n"])
def test_killing_reports_no_success_while_somebody_is_left_who_cannot_be_named(
    tmp_path: Path, procs: str
) -> None:
    make(tmp_path / "cg", "bg", "domain", procs=procs, populated=not procs)
    root = tmp_path / "cg"
    group = Hierarchy(kind="v2", memory_root=root, unified_root=root).group("bg")
    assert group.pids() == ()
    assert group.populated()
    with pytest.raises(GroupError, match="cannot be named"):
        group.kill(timeout_s=0.05)
    (root / "bg/cgroup.events").write_text("populated 0\nfrozen 0\n")
    (root / "bg/cgroup.procs").write_text("")
    assert group.kill(timeout_s=0.05) == ()


def config(paths: Paths, tmp_path: Path, *, app: str, background: str) -> DaemonConfig:
    return DaemonConfig(
        node=NodeConfig(zone="/", proc=paths.proc, cgroup=paths.cgroup),
        protected=ProtectedConfig(group=app),
        background=(SlotConfig(name="bg", group=background),),
        service=ServiceConfig(socket=tmp_path / "s.sock"),
        journal=JournalConfig(path=tmp_path / "journal"),
    )


@pytest.fixture
def v2(tmp_path: Path) -> Paths:
    paths = Paths(proc=tmp_path / "proc", cgroup=tmp_path / "cg")
    (paths.proc / "self").mkdir(parents=True)
    (paths.proc / "self/mounts").write_text("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")
    (paths.proc / "swaps").write_text("")
    paths.cgroup.mkdir()
    (paths.cgroup / "cgroup.controllers").write_text("memory\n")
    for name in ("app", "bg"):
        make(paths.cgroup, name, "domain")
    make(paths.cgroup, "job", "domain threaded")
    make(paths.cgroup, "job/pool", "threaded", populated=True)
    return paths


@pytest.mark.parametrize(
    ("app", "background", "key"),
    [("app", "job/pool", "background[0].group"), ("job/pool", "bg", "protected.group")],
)
def test_a_daemon_and_doctor_refuse_a_threaded_group_by_name(
    v2: Paths, tmp_path: Path, app: str, background: str, key: str
) -> None:
    asked = config(v2, tmp_path, app=app, background=background)
    with pytest.raises(NodeError) as caught:
        find_targets(asked)
    assert f"config.{key}: The group 'job/pool' is threaded" in caught.value.cause
    assert caught.value.next_step == "Name its domain, 'job'."
    diagnosis = examine(v2, asked)
    assert not diagnosis.protectable
    (finding,) = (f for f in diagnosis.findings if f.name == "what it names")
    assert (finding.state, finding.next_step) == ("missing", "Name its domain, 'job'.")


@pytest.fixture
def threaded_pool() -> Iterator[tuple[Cgroup, int]]:
    """A real threaded group with one process, which its domain lists."""
    hierarchy = require(Paths())
    root = hierarchy.unified_root
    assert root is not None
    unified_only = Hierarchy(kind=hierarchy.kind, unified_root=root)
    job = unified_only.group(f"{own_name()}-threads")
    pool = job.child("pool")
    pool.create()
    folder = pool.unified_dir
    assert folder is not None
    code = "import time; print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            (folder / "cgroup.type").write_text("threaded")
            job.add_pid(process.pid)
            (folder / "cgroup.threads").write_text(str(process.pid))
            yield pool, process.pid
        finally:
            process.kill()
            process.wait()
            job.remove()


@pytest.mark.live
def test_a_real_threaded_group_is_refused_and_its_domain_is_killed(
    threaded_pool: tuple[Cgroup, int],
) -> None:
    pool, pid = threaded_pool
    assert pool.unified_dir is not None
    assert (pool.unified_dir / "cgroup.threads").read_text() == f"{pid}\n"
    assert pool.populated()
    job = pool.hierarchy.group(pool.name.rpartition("/")[0])
    assert (
        why_no_processes(pool, pool.hierarchy.unified_root)[1] == f"Name its domain, {job.name!r}."
    )
    with pytest.raises(KernelFileError, match="threaded"):
        pool.pids()
    with pytest.raises(GroupError, match="threaded"):
        pool.kill()
    assert pool.populated(), "nobody was killed"
    assert job.pids(recursive=True) == (pid,)
    assert GroupMembers(job).pids() == {pid}
    assert job.kill() == ()
    assert not job.populated()
