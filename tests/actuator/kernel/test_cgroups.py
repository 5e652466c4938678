"""Group names, hierarchies found from mount tables, and real groups."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from own_names import own_name

from stallward.actuator.errors import GroupError, GroupGoneError, NodeError
from stallward.actuator.kernel.cgroups import Cgroup, Hierarchy, parse_name
from stallward.actuator.kernel.hierarchies import detect, missing, require
from stallward.actuator.kernel.paths import Paths


def fake_node(tmp_path: Path, mounts: str, controllers: str | None = "") -> Paths:
    paths = Paths(proc=tmp_path / "proc", cgroup=tmp_path / "cg")
    (paths.proc / "self").mkdir(parents=True)
    (paths.proc / "self" / "mounts").write_text(mounts)
    (paths.proc / "pressure").mkdir()
    (paths.proc / "pressure" / "memory").write_text("")
    for name in ("memory", "unified"):
        (paths.cgroup / name).mkdir(parents=True)
    if controllers is not None:
        for root in (paths.cgroup, paths.cgroup / "unified"):
            (root / "cgroup.controllers").write_text(controllers)
    return paths


V1 = "cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n"
V2_BESIDE = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n"
V2_ALONE = "cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n"


@pytest.mark.parametrize(
    ("mounts", "controllers", "kind"),
    [
        (V1 + V2_BESIDE, "", "hybrid"),
        (V1 + V2_BESIDE, "hugetlb", "hybrid"),
        (V1 + V2_BESIDE, None, "hybrid"),
        (V2_ALONE, "cpu io memory pids", "v2"),
        (V2_ALONE, "cpu memory_extra", "none"),
        (V2_ALONE, "", "none"),
        (V1, "", "none"),
        ("", "", "none"),
        ("garbage\n\ncgroup2\ntmpfs /sys/fs/cgroup tmpfs\n", "", "none"),
        ("cgroup2 /somewhere/else cgroup2 rw 0 0\n" + V1, "memory", "none"),
        ("cgroup2 /sys/fs/cgroup/not\\040there cgroup2 rw 0 0\n", "memory", "none"),
    ],
)
def test_the_kind_of_node_is_read_from_mounts_and_controllers(
    tmp_path: Path, mounts: str, controllers: str | None, kind: str
) -> None:
    hierarchy = detect(fake_node(tmp_path, mounts, controllers))
    assert hierarchy.kind == kind
    assert hierarchy.why
    assert (hierarchy.memory_root is None) == (kind == "none")
    assert len(hierarchy.roots) == {"v2": 1, "hybrid": 2, "none": 0}[kind]


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("cgroups", "#subsys_name\thierarchy\tnum_cgroups\tenabled\nmemory\t0\t39\t0\n", True),
        ("cgroups", "#subsys_name\thierarchy\tnum_cgroups\tenabled\nmemory\t0\t39\t1\n", False),
        ("cgroups", "\n\nmemory\n", False),
        ("cmdline", "reboot=w cgroup_disable=memory cgroup_enable=memory root=PARTUUID=1\n", True),
        ("cmdline", "root=/dev/cgroup_disable=memory_not\n", False),
    ],
)
def test_a_memory_controller_that_is_switched_off_at_boot_is_told_apart(
    tmp_path: Path, file: str, content: str, *, said: bool
) -> None:
    """As the firmware of a Raspberry Pi does; new kernels do not list the controller then."""
    paths = fake_node(tmp_path, V2_ALONE, "cpuset cpu io pids")
    (paths.proc / file).write_text(content)
    assert ("boot with cgroup_enable=memory" in detect(paths).why) == said


def test_white_space_in_a_mount_point_is_unescaped(tmp_path: Path) -> None:
    paths = fake_node(tmp_path, "cgroup2 /sys/fs/cgroup/a\\040b cgroup2 rw 0 0\n")
    (paths.cgroup / "a b").mkdir()
    (paths.cgroup / "a b" / "cgroup.controllers").write_text("memory")
    assert detect(paths).unified_root == paths.cgroup / "a b"


def test_a_node_that_cannot_be_used_says_everything_that_is_missing(tmp_path: Path) -> None:
    paths = fake_node(tmp_path, "")
    (paths.proc / "pressure" / "memory").unlink()
    assert len(missing(paths, detect(paths))) == 2
    with pytest.raises(NodeError, match=r"PSI.*no cgroup hierarchy"):
        require(paths)


def test_a_node_without_a_mount_table_is_of_no_kind(tmp_path: Path) -> None:
    assert detect(Paths(proc=tmp_path, cgroup=tmp_path)).kind == "none"


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("a/b", "a/b"),
        ("/a/b/", "a/b"),
        ("/", ""),
        ("", ""),
        ("system.slice/x@1:2.service", "system.slice/x@1:2.service"),
        ("a\\x2db/ü c", "a\\x2db/ü c"),
    ],
)
def test_good_names(name: str, canonical: str) -> None:
    assert parse_name(name) == canonical


@pytest.mark.parametrize(
    "name", ["..", "a/../b", "a//b", "./a", "a\nb", "a\0b", "a/cgroup.procs", "x" * 256, "a/.."]
)
def test_names_that_could_leave_the_hierarchy_are_refused(name: str) -> None:
    with pytest.raises(GroupError, match="not a cgroup name"):
        Cgroup(name=name, hierarchy=Hierarchy())


def test_which_group_contains_which() -> None:
    node = Hierarchy()
    zone = node.group("stallward/1")
    assert zone.contains(zone.child("app"))
    assert zone.contains(zone)
    assert not zone.contains(node.group("stallward/10"))
    assert node.group("/").contains(zone)


def test_create_remove_and_prune_in_both_hierarchies(tmp_path: Path) -> None:
    node = detect(fake_node(tmp_path, V1 + V2_BESIDE))
    group = node.group("stallward-x/1/app")
    group.create()
    group.create()
    assert group.exists()
    assert [p.relative_to(tmp_path / "cg").parts[0] for p in group.dirs] == ["memory", "unified"]
    node.group("stallward-x/1").remove()
    assert not any((root / "stallward-x").exists() for root in node.roots)
    group.remove()  # vanished: nothing to do


def test_further_v1_controllers_are_found_made_on_request_and_always_removed(
    tmp_path: Path,
) -> None:
    mounts = V1 + V2_BESIDE + "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu,cpuacct 0 0\n"
    paths = fake_node(tmp_path, mounts)
    (paths.cgroup / "cpu").mkdir()
    hierarchy = detect(paths)
    assert hierarchy.controllers_v1 == (("cpu", paths.cgroup / "cpu"),)
    group = hierarchy.group("stallward/1/bg")
    group.create()
    assert group.member_dirs == group.dirs
    assert group.v1_dir("cpu") == paths.cgroup / "cpu/stallward/1/bg"
    assert group.v1_dir("blkio") is None
    group.create(controllers=("cpu", "blkio"))
    assert group.member_dirs == (*group.dirs, paths.cgroup / "cpu/stallward/1/bg")
    group.remove()
    for name in ("memory", "unified", "cpu"):
        assert not (paths.cgroup / name / "stallward").exists()


def test_parents_that_are_not_ours_stay(tmp_path: Path) -> None:
    node = detect(fake_node(tmp_path, V1 + V2_BESIDE))
    node.group("other/stallward/1").create()
    node.group("other/stallward/1").remove()
    assert node.group("other").exists()
    assert not node.group("other/stallward").exists()


def test_memory_is_enabled_all_the_way_down_on_v2(tmp_path: Path) -> None:
    paths = fake_node(tmp_path, V2_ALONE, "cpu memory")
    group = detect(paths).group("stallward/1")
    (paths.cgroup / "cgroup.subtree_control").write_text("")
    parent = paths.cgroup / "stallward"
    parent.mkdir()
    (parent / "cgroup.controllers").write_text("memory")
    (parent / "cgroup.subtree_control").write_text("")
    group.create()
    # Real files keep only the last write; the kernel's add up.
    assert (paths.cgroup / "cgroup.subtree_control").read_text() == "+cpu"
    assert (parent / "cgroup.subtree_control").read_text() == "+memory"


def test_a_node_without_hierarchies_makes_no_groups() -> None:
    with pytest.raises(GroupError, match="Cannot make"):
        Hierarchy(why="nothing mounted").group("stallward/1").create()


def test_a_failed_create_leaves_nothing(tmp_path: Path) -> None:
    paths = fake_node(tmp_path, V1 + V2_BESIDE)
    (paths.cgroup / "unified" / "stallward").write_text("in the way")
    with pytest.raises(GroupError, match="Cannot make"):
        detect(paths).group("stallward/1/app").create()
    assert list((paths.cgroup / "memory").iterdir()) == []


def test_a_folder_that_still_holds_files_is_reported_as_not_removable(tmp_path: Path) -> None:
    node = detect(fake_node(tmp_path, V1 + V2_BESIDE))
    group = node.group("stallward/1")
    group.create()
    assert group.memory_dir is not None
    (group.memory_dir / "cgroup.procs").write_text("4000000\n")
    with pytest.raises(GroupError, match="4000000"):
        group.remove(timeout_s=0.05)


def test_lists_of_processes(tmp_path: Path) -> None:
    node = detect(fake_node(tmp_path, V1 + V2_BESIDE))
    group = node.group("stallward/1")
    assert group.pids() == ()
    group.create()
    group.child("a").create()
    for top, path, text in (("memory", "", "7\n0\n"), ("unified", "/a", "3\n9\n7\n")):
        (tmp_path / "cg" / top / f"stallward/1{path}" / "cgroup.procs").write_text(text)
    assert group.pids() == (7,)
    assert group.pids(recursive=True) == (3, 7, 9)
    assert group.populated()


def test_adding_to_a_group_that_is_gone_is_its_own_error(tmp_path: Path) -> None:
    node = detect(fake_node(tmp_path, V1 + V2_BESIDE))
    with pytest.raises(GroupGoneError, match="not there"):
        node.group("stallward/1").add_pid(1)


def test_the_caller_and_the_machine_are_never_killed(tmp_path: Path) -> None:
    node = detect(fake_node(tmp_path, V1 + V2_BESIDE))
    group = node.group("stallward/1")
    group.create()
    assert group.unified_dir is not None
    (group.unified_dir / "cgroup.procs").write_text(f"{os.getpid()}\n")
    for target in (group, node.group("/")):
        with pytest.raises(GroupError, match="Refusing"):
            target.kill()
    with pytest.raises(GroupError, match="root"):
        node.group("/").remove()


@pytest.fixture
def live_group() -> Iterator[Cgroup]:
    group = require(Paths()).group(f"{own_name()}-groups")
    group.create()
    try:
        yield group
    finally:
        group.kill()
        group.remove()
        assert not group.exists()


@pytest.mark.live
@pytest.mark.parametrize("with_cgroup_kill", [True, False])
def test_real_processes_are_moved_listed_and_killed(
    live_group: Cgroup, with_cgroup_kill: bool
) -> None:
    child = live_group.child("deep/er")
    child.create()
    code = "import time; print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        child.add_pid(process.pid)
        assert live_group.pids() == ()
        assert live_group.pids(recursive=True) == (process.pid,)
        assert live_group.populated()
        if with_cgroup_kill:
            assert live_group.kill() == ()
        else:
            # An old kernel: only the memory hierarchy, so pid by pid.
            memory_only = Hierarchy(kind="hybrid", memory_root=live_group.hierarchy.memory_root)
            assert memory_only.group(live_group.name).kill() == ()
        assert process.wait() == -9
    assert not live_group.populated()


@pytest.mark.live
def test_a_process_that_is_gone_cannot_be_added(live_group: Cgroup) -> None:
    with subprocess.Popen(["true"]) as process:
        pass
    with pytest.raises(GroupError, match="the process is gone"):
        live_group.add_pid(process.pid)
