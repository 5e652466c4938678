"""What is odd about a node is one row, and only where it applies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.tables import (
    JournalConfig,
    NodeConfig,
    ProtectedConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.doctor.doctor import examine
from stallward.actuator.doctor.finding import Finding
from stallward.actuator.doctor.node_facts import groups_below, node_facts, nothing_kept
from stallward.actuator.kernel.paths import Paths


@pytest.fixture
def plain(tmp_path: Path) -> Paths:
    """A node on which none of it applies, although some of it is there."""
    paths = Paths(proc=tmp_path / "proc", cgroup=tmp_path / "cgroup", sys=tmp_path / "sys")
    write(
        paths.proc / "swaps",
        "Filename\tType\tSize\tUsed\tPriority\n/dev/sda2\tpartition\t9\t0\t-2\n",
    )
    write(paths.proc / "spl/kstat/zfs/arcstats", "name type data\nhits 4 9\nsize 4 1048576\n")
    write(paths.sys / "fs/selinux/enforce", "0")
    write(paths.proc / "self/attr/current", "unconfined\n")
    write(paths.proc / "self/status", "CapEff:\t0000000000000000\n")
    paths.cgroup.mkdir()
    return paths


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def only(paths: Paths) -> Finding:
    (finding,) = node_facts(paths)
    assert finding.state == "degraded"
    assert finding.next_step
    assert finding in examine(paths).findings
    return finding


def test_where_nothing_applies_there_is_no_row(plain: Paths, tmp_path: Path) -> None:
    assert list(node_facts(plain)) == []
    assert list(node_facts(replace(plain, proc=tmp_path / "none", sys=tmp_path / "none"))) == []


def test_the_cache_of_zfs_is_named_with_its_size(plain: Paths) -> None:
    write(
        plain.proc / "spl/kstat/zfs/arcstats",
        "13 1 0x01 123 33456 1 2\nname   type data\nc_max  4    99\nsize   4    8589934592\n",
    )
    found = only(plain)
    assert (found.area, found.name) == ("node", "ZFS")
    assert "8192 MiB" in found.why
    assert "zfs_arc_max" in found.next_step


@pytest.mark.parametrize("device", ["/dev/zd0", "/dev/zd16p1", "/dev/zvol/rpool/swap"])
def test_swap_on_a_volume_of_zfs_is_named(plain: Paths, device: str) -> None:
    write(plain.proc / "swaps", f"Filename\n/swapfile file 9 0 -2\n{device} partition 9 0 -3\n")
    found = only(plain)
    assert found.name == "swap on ZFS"
    assert found.why.startswith(f"{device} is a volume")


@pytest.mark.parametrize(
    ("context", "domain"),
    [("system_u:system_r:container_t:s0:c1,c2\0", "container_t"), ("", "")],
)
def test_selinux_is_named_where_it_confines(plain: Paths, context: str, domain: str) -> None:
    write(plain.sys / "fs/selinux/enforce", "1")
    write(plain.proc / "self/attr/current", context)
    found = only(plain)
    assert (found.area, found.name) == ("safety", "SELinux")
    assert domain in found.why
    assert "ausearch" in found.next_step
    write(plain.proc / "self/attr/current", "unconfined_u:unconfined_r:unconfined_t:s0\0")
    assert list(node_facts(plain)) == [], "it may do what root may"


@pytest.mark.parametrize("file", ["attr/apparmor/current", "attr/current"])
def test_a_profile_of_apparmor_is_named_where_it_confines(plain: Paths, file: str) -> None:
    write(plain.proc / "self" / file, "docker-default (enforce)\n")
    found = only(plain)
    assert found.name == "AppArmor"
    assert "docker-default" in found.why
    write(plain.proc / "self" / file, "docker-default (complain)\n")
    assert list(node_facts(plain)) == []


def configured(paths: Paths) -> DaemonConfig:
    return DaemonConfig(
        node=NodeConfig(cgroup=paths.cgroup, proc=paths.proc),
        protected=ProtectedConfig(group="app"),
        service=ServiceConfig(socket=paths.proc / "s.sock"),
        journal=JournalConfig(path=paths.proc / "journal"),
        background=(
            SlotConfig(name="batch", group="batch"),
            SlotConfig(name="free", group="free"),
        ),
    )


def test_groups_below_a_slot_with_limits_of_their_own_are_named(plain: Paths) -> None:
    write(plain.proc / "self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")
    write(plain.cgroup / "cgroup.controllers", "memory\n")
    for group, limit in {
        "batch": "9",
        "batch/a": "max",
        "batch/b/c": "max",
        "free/x": "max",
    }.items():
        write(plain.cgroup / group / "memory.max", f"{limit}\n")
    config = configured(plain)
    assert list(groups_below(config)) == [], "its own limit is the slot's"
    write(plain.cgroup / "batch/b/c/memory.high", "4096\n")
    (one,) = groups_below(config)
    assert one.name == "groups below batch"
    assert one.why.startswith("1 group has a limit of its own (b/c: memory.high is 4096)")
    write(plain.cgroup / "batch/a/memory.max", "8192\n")
    (two,) = groups_below(config)
    assert two.why.startswith("2 groups have limits of their own (a: memory.max is 8192)")
    assert two.next_step
    write(plain.cgroup / "batch/a/memory.max", "nonsense\n")
    assert len(list(groups_below(config))) == 1


def test_a_group_above_the_application_of_which_nothing_is_kept_is_named(plain: Paths) -> None:
    write(plain.proc / "self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")
    write(plain.cgroup / "cgroup.controllers", "memory\n")
    for group in ("zone", "zone/app.slice", "zone/app.slice/app.service"):
        write(plain.cgroup / group / "memory.low", "0\n")
        write(plain.cgroup / group / "memory.max", "max\n")
    app = ProtectedConfig(group="zone/app.slice/app.service")
    config = replace(configured(plain), protected=app)
    (found,) = nothing_kept(config)
    assert found.name == "memory.low of zone/app.slice/app.service"
    assert found.why.startswith("memory.low of zone, above it, is 0")
    assert "systemctl set-property zone MemoryLow=" in found.next_step
    write(plain.cgroup / "zone/memory.low", "4096\n")
    (found,) = nothing_kept(config)
    assert found.why.startswith("memory.low of zone/app.slice, above it, is 0")
    write(plain.cgroup / "zone/app.slice/memory.low", "4096\n")
    assert list(nothing_kept(config)) == []
    assert list(nothing_kept(replace(config, protected=ProtectedConfig(group="app")))) == []


def test_a_zone_with_a_limit_needs_no_memory_of_its_own_kept(plain: Paths) -> None:
    write(plain.proc / "self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")
    write(plain.cgroup / "cgroup.controllers", "memory\n")
    write(plain.cgroup / "zone/memory.low", "0\n")
    write(plain.cgroup / "zone/memory.max", "max\n")
    config = configured(plain)
    node = replace(config.node, zone="zone")
    app, slot = ProtectedConfig(group="zone/app"), SlotConfig(name="batch", group="zone/batch")
    config = replace(config, node=node, protected=app, background=(slot,))
    assert len(list(nothing_kept(config))) == 1
    write(plain.cgroup / "zone/memory.max", "8192\n")
    assert list(nothing_kept(config)) == []


def test_the_limit_of_v1_that_is_none_is_none(plain: Paths) -> None:
    write(
        plain.proc / "self/mounts",
        "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\ncgroup2 /sys/fs/cgroup/u cgroup2 rw 0 0\n",
    )
    write(plain.cgroup / "u/cgroup.controllers", "\n")
    file = plain.cgroup / "memory/batch/a/memory.limit_in_bytes"
    write(file, "9223372036854771712\n")
    assert list(groups_below(configured(plain))) == []
    write(file, "4096\n")
    (found,) = groups_below(configured(plain))
    assert "memory.limit_in_bytes is 4096" in found.why
