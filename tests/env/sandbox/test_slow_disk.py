"""Disks are slow for all programs of a sandbox together, reads and swap-ins alike."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stallward.actuator.kernel.cgroups import Cgroup, Hierarchy
from stallward.actuator.kernel.paths import Paths
from stallward.env.errors import SandboxError
from stallward.env.sandbox.sandbox import Sandbox, limit_disks, open_sandbox, shared_dirs
from stallward.env.scenario.scenario import DiskLimit

MIB = 1024 * 1024
SLOW = DiskLimit(bytes_per_s=16 * MIB, ops_per_s=500)


def node(
    tmp_path: Path, kind: str, *, disks: tuple[str, ...] = ("254:0",)
) -> tuple[Cgroup, Paths]:
    """A zone with the files of the kernel, and disks."""
    (tmp_path / "blkio" / "zone").mkdir(parents=True)
    (tmp_path / "unified" / "zone").mkdir(parents=True)
    for index, number in enumerate(disks):
        disk = tmp_path / "sys" / "block" / f"disk{index}"
        (disk / "device").mkdir(parents=True)
        (disk / "dev").write_text(f"{number}\n")
    hierarchy = Hierarchy(
        kind="v2" if kind == "v2" else "hybrid",
        memory_root=tmp_path / ("unified" if kind == "v2" else "memory"),
        unified_root=tmp_path / "unified",
        controllers_v1=() if kind == "v2" else (("blkio", tmp_path / "blkio"),),
    )
    for name in ("read_bps", "write_bps", "read_iops", "write_iops"):
        (tmp_path / "blkio" / "zone" / f"blkio.throttle.{name}_device").write_text("")
    (tmp_path / "unified" / "zone" / "io.max").write_text("")
    return hierarchy.group("zone"), Paths(sys=tmp_path / "sys")


def test_v1_programs_enter_one_group_with_the_limits(tmp_path: Path) -> None:
    zone, paths = node(tmp_path, "v1")
    folder = tmp_path / "blkio" / "zone"
    assert shared_dirs(zone, SLOW) == (folder,)
    assert shared_dirs(zone, None) == ()
    limit_disks(zone, SLOW, paths)
    texts = {path.name: path.read_text() for path in folder.iterdir()}
    assert texts == {
        "blkio.throttle.read_bps_device": f"254:0 {16 * MIB}",
        "blkio.throttle.write_bps_device": f"254:0 {16 * MIB}",
        "blkio.throttle.read_iops_device": "254:0 500",
        "blkio.throttle.write_iops_device": "254:0 500",
    }


def test_a_rate_that_is_not_given_is_not_limited(tmp_path: Path) -> None:
    zone, paths = node(tmp_path, "v1")
    limit_disks(zone, DiskLimit(ops_per_s=500), paths)
    folder = tmp_path / "blkio" / "zone"
    assert (folder / "blkio.throttle.read_bps_device").read_text() == ""
    assert (folder / "blkio.throttle.read_iops_device").read_text() == "254:0 500"


def test_v2_limits_the_zone_with_all_below_it(tmp_path: Path) -> None:
    zone, paths = node(tmp_path, "v2")
    assert shared_dirs(zone, SLOW) == ()
    limit_disks(zone, SLOW, paths)
    text = (tmp_path / "unified" / "zone" / "io.max").read_text()
    assert text == f"254:0 rbps={16 * MIB} wbps={16 * MIB} riops=500 wiops=500"


def test_a_node_without_disks_is_refused(tmp_path: Path) -> None:
    zone, paths = node(tmp_path, "v1", disks=())
    with pytest.raises(SandboxError, match="no disk in") as caught:
        limit_disks(zone, SLOW, paths)
    assert "disk_mib_per_s" in caught.value.next_step


def test_a_kernel_that_cannot_limit_disks_is_named(tmp_path: Path) -> None:
    zone, paths = node(tmp_path, "v2")
    (tmp_path / "unified" / "zone" / "io.max").unlink()
    (tmp_path / "unified" / "zone").rmdir()
    with pytest.raises(SandboxError, match=r"cannot be made slow.*io\.max"):
        limit_disks(zone, SLOW, paths)


READ = """
import json, os, sys, time
fd = os.open(sys.argv[1], os.O_RDONLY)
began = time.monotonic()
while os.read(fd, 1 << 20): pass
print(json.dumps(time.monotonic() - began))
"""
SWAP = """
import json, os, resource, sys, time
size, page = int(sys.argv[1]) << 20, 4096
held = bytearray(os.urandom(1 << 20) * (size >> 20))
for at in range(0, size, page): held[at] = 1
faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
began = time.monotonic()
for at in range(0, size, page): held[at] += 1
took = time.monotonic() - began
print(json.dumps([took, resource.getrusage(resource.RUSAGE_SELF).ru_majflt - faults]))
"""


def run_in(sandbox: Sandbox, group: Cgroup, code: str, *words: str) -> object:
    folders = (*group.member_dirs, *sandbox.shared_dirs)
    enter = "".join(f"echo $$ > {path}/cgroup.procs; " for path in folders)
    command = ["sh", "-c", enter + 'exec "$@"', "sh", sys.executable, "-c", code, *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=120)
    return json.loads(done.stdout)


def evicted(path: Path) -> Path:
    fd = os.open(path, os.O_RDONLY)
    with contextlib.closing(os.fdopen(fd)):
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    return path


@pytest.mark.live
def test_a_slow_disk_slows_reads_and_swap_ins_of_the_sandbox_only(tmp_path: Path) -> None:
    data = tmp_path / "data.bin"
    data.write_bytes(os.urandom(48 * MIB))
    os.sync()
    with open_sandbox(
        slots=2,
        limit_bytes=64 * MIB,
        swap_bytes=256 * MIB,
        disk=DiskLimit(bytes_per_s=16 * MIB),
        cache_dir=tmp_path,
        state_dir=tmp_path / "state",
    ) as sandbox:
        took_s = run_in(sandbox, sandbox.slots[0], READ, str(evicted(data)))
        assert isinstance(took_s, float)
        assert took_s > 2.0  # 3 s at 16 MiB/s, more on a busy host
        began_s = time.monotonic()
        evicted(data).read_bytes()
        outside_s = time.monotonic() - began_s
        sys.stdout.write(f"48 MiB took {took_s:.2f} s inside, {outside_s:.2f} s outside\n")
        assert outside_s < took_s / 2, "the disk is slow outside, too"
        swapped = run_in(sandbox, sandbox.slots[1], SWAP, "96")
        assert isinstance(swapped, list)
        took_s, faults = swapped
        assert faults > 0
        assert took_s > 1.0  # 32 MiB or more come back from swap
        sandbox.kill()
        assert not sandbox.zone.populated()
    assert not any(path.exists() for path in sandbox.shared_dirs)
