"""The sandbox: it refuses unsuitable machines, holds its limit, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stallward.actuator.journal.own_entries import SWAP_SUFFIX
from stallward.actuator.kernel.cgroups import Hierarchy
from stallward.actuator.kernel.hierarchies import require
from stallward.actuator.kernel.paths import Paths
from stallward.env.errors import SandboxError
from stallward.env.sandbox.compressed_swap import (
    DEVICE_PRIORITY,
    foreign_swap_bytes,
    header,
    make_swap,
)
from stallward.env.sandbox.sandbox import Sandbox, check_memory, check_psi, open_sandbox

MIB = 1024 * 1024
PATIENCE_S = 60.0
"""Long enough for an emulated machine, which is twenty times slower."""


def fake_paths(tmp_path: Path) -> Paths:
    proc = tmp_path / "proc"
    (proc / "pressure").mkdir(parents=True)
    (proc / "pressure" / "memory").write_text("")
    (proc / "meminfo").write_text("MemTotal: 900000 kB\nMemAvailable: 500000 kB\n")
    (proc / "swaps").write_text("Filename\tType\tSize\tUsed\tPriority\n")
    (proc / "mounts").write_text("")
    return Paths(proc=proc, cgroup=tmp_path / "cgroup")


def fake_sandbox(tmp_path: Path, kind: str) -> Sandbox:
    memory, unified = tmp_path / "memory", tmp_path / "unified"
    hierarchy = (
        Hierarchy(kind="v2", memory_root=unified, unified_root=unified)
        if kind == "v2"
        else Hierarchy(kind="hybrid", memory_root=memory, unified_root=unified)
    )
    zone = hierarchy.group("stallward/1")
    sandbox = Sandbox(
        zone=zone,
        protected=zone.child("app"),
        others=(zone.child("app-web"),),
        slots=(zone.child("slot0"),),
        load=hierarchy.group("stallward/1-load"),
        peer=hierarchy.group("stallward/1-peer"),
        folder=tmp_path / "stallward-1",
        paths=Paths(),
    )
    for group in (zone, *sandbox.applications, *sandbox.slots):
        for folder in group.dirs:
            folder.mkdir(parents=True)
    return sandbox


def test_a_missing_memory_controller_is_reported(tmp_path: Path) -> None:
    with (
        pytest.raises(SandboxError, match="memory controller") as caught,
        open_sandbox(
            slots=1,
            limit_bytes=64 * MIB,
            swap_bytes=64 * MIB,
            cache_dir=tmp_path,
            paths=fake_paths(tmp_path),
        ),
    ):
        pass
    assert caught.value.next_step
    assert not list(tmp_path.glob(f"*{SWAP_SUFFIX}"))


def test_missing_psi_is_reported(tmp_path: Path) -> None:
    paths = fake_paths(tmp_path)
    (paths.proc / "pressure" / "memory").unlink()
    with (
        pytest.raises(SandboxError, match="PSI"),
        open_sandbox(slots=1, limit_bytes=MIB, swap_bytes=MIB, cache_dir=tmp_path, paths=paths),
    ):
        pass


def test_too_little_memory_is_reported_with_both_numbers(tmp_path: Path) -> None:
    paths = fake_paths(tmp_path)
    with pytest.raises(SandboxError, match="600 MiB, but only 488 MiB"):
        check_memory(600 * MIB, paths)
    check_memory(100 * MIB, paths)


@pytest.mark.parametrize(
    "available", ["MemAvailable: 500000 pages\n", "MemAvailable: 99000000 kB\n", ""]
)
def test_memory_that_cannot_be_told_is_not_taken(tmp_path: Path, available: str) -> None:
    paths = fake_paths(tmp_path)
    (paths.proc / "meminfo").write_text(f"MemTotal: 900000 kB\n{available}")
    with pytest.raises(SandboxError, match=r"cannot be told.*meminfo"):
        check_memory(100 * MIB, paths)


def test_a_sandbox_whose_pressure_is_switched_off_is_refused(tmp_path: Path) -> None:
    sandbox = fake_sandbox(tmp_path, "v2")
    folder = sandbox.protected.unified_dir
    assert folder is not None
    (folder / "memory.pressure").write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
    check_psi(sandbox)
    (folder / "memory.pressure").unlink()
    (folder / "cgroup.pressure").write_text("0\n")
    with pytest.raises(SandboxError, match="PSI of this group is off") as caught:
        check_psi(sandbox)
    assert "Write 1 to" in caught.value.next_step


@pytest.mark.parametrize(("kind", "name"), [("v2", "memory.max"), ("v1", "memory.limit_in_bytes")])
def test_the_limit_goes_to_the_file_of_the_hierarchy(tmp_path: Path, kind: str, name: str) -> None:
    sandbox = fake_sandbox(tmp_path, kind)
    assert sandbox.zone.memory_dir is not None
    (sandbox.zone.memory_dir / name).write_text("")
    sandbox.set_limit(7 * MIB)
    assert (sandbox.zone.memory_dir / name).read_text() == str(7 * MIB)


def test_a_limit_that_cannot_be_set_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="Cannot limit"):
        fake_sandbox(tmp_path, "v1").set_limit(MIB)


def test_oom_kills_are_summed_where_groups_count_only_their_own(tmp_path: Path) -> None:
    v1 = fake_sandbox(tmp_path / "1", "v1")
    for group, kills in ((v1.protected, 2), (v1.slots[0], 1), (v1.others[0], 4)):
        assert group.memory_dir is not None
        text = f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n"
        (group.memory_dir / "memory.oom_control").write_text(text)
    assert v1.oom_kills() == 7
    v2 = fake_sandbox(tmp_path / "2", "v2")
    for group in (v2.zone, v2.protected):
        assert group.memory_dir is not None
        (group.memory_dir / "memory.events").write_text("oom 9\noom_kill 4\n")
    assert v2.oom_kills() == 4


def test_swap_of_another_sandbox_does_not_count(tmp_path: Path) -> None:
    proc = tmp_path
    (proc / "swaps").write_text(
        "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
        f"/x/1-2{SWAP_SUFFIX}  file\t\t1000\t\t0\t\t-2\n"
        f"/dev/zram3  partition\t\t4000\t\t0\t\t{DEVICE_PRIORITY}\n"
        "/dev/vdb  partition\t\t2000\t\t0\t\t-3\n"
        "/dev/zram0  partition\t\t500\t\t0\t\t100\n"
    )
    assert foreign_swap_bytes(proc) == 2500 * 1024


def test_the_swap_header_is_the_one_of_mkswap(tmp_path: Path) -> None:
    page = header(16 * MIB)
    assert len(page) == os.sysconf("SC_PAGE_SIZE")
    assert page.endswith(b"SWAPSPACE2")
    assert struct.unpack_from("<II", page, 1024) == (1, 16 * MIB // len(page) - 1)


def test_a_swap_file_larger_than_the_disk_is_refused_and_not_left(tmp_path: Path) -> None:
    path = tmp_path / f"x{SWAP_SUFFIX}"
    with pytest.raises(SandboxError, match="too little for a swap file"):
        make_swap(path, 1 << 60)
    assert not path.exists()


SCRIPT = """
import os, signal, subprocess, sys, time
from pathlib import Path
from stallward.env.sandbox.sandbox import open_sandbox
from stallward.env.scenario.scenario import DiskLimit
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored below a shell's background
size = 64 << 20
cache = Path(sys.argv[1])
with open_sandbox(
    slots=2, others=("web",), limit_bytes=size, swap_bytes=size, cache_dir=cache, state_dir=cache / "state",
    disk=DiskLimit(bytes_per_s=1 << 20),
) as box:
    child = subprocess.Popen(["sleep", "600"])
    box.others[0].add_pid(child.pid)
    print(box.zone.name, box.load.name, box.swap_path, box.folder, child.pid, flush=True)
    while True:  # a signal just before a long sleep would be handled after it
        time.sleep(0.05)
"""


def traces(words: list[str]) -> list[str]:
    """Return what is left of a sandbox that printed ``words``."""
    zone, load, swap, folder, child = words
    names = ("memory", "unified", "blkio", ".")
    roots = tuple(Path("/sys/fs/cgroup", name) for name in names)
    left = [str(root / name) for root in roots for name in (zone, load) if (root / name).exists()]
    left += [swap] if swap in Path("/proc/swaps").read_text() or Path(swap).exists() else []
    left += [folder] if Path(folder).exists() else []
    if not gone(int(child)):
        left.append(f"process {child}")
    return left


def traces_of_all() -> int:
    """Count a whole sandbox: its groups, a swap file, a folder and a process.

    There are two groups in each hierarchy, and one for the disks in a hierarchy of its own.
    """
    hierarchy = require(Paths())
    groups = 2 if hierarchy.kind == "v2" else 4
    return groups + (hierarchy.group("x").v1_dir("blkio") is not None) + 3


@pytest.mark.live
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_signal_leaves_anything_behind(tmp_path: Path, number: signal.Signals) -> None:
    argv = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        words = process.stdout.readline().split()
        assert len(words) == 5
        left = traces(words)
        process.send_signal(number)
        assert len(left) == traces_of_all()
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        wait_until(lambda: not traces(words))
        assert traces(words) == []


def wait_until(condition: Callable[[], bool]) -> bool:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < deadline_s:
        time.sleep(0.05)
    return condition()


def gone(pid: int) -> bool:
    """Return whether a process has ended, even if it is a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def keeper_of(pid: int) -> int:
    """Return the keeper process that ``pid`` has started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    (keeper,) = [c for c in children if b"keeper" in Path(f"/proc/{c}/cmdline").read_bytes()]
    return int(keeper)


@pytest.mark.live
def test_when_its_keeper_is_killed_too_the_next_sandbox_removes_it(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    state = tmp_path / "state"
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        words = process.stdout.readline().split()
        keeper = keeper_of(process.pid)
        for number in (signal.SIGSTOP, signal.SIGKILL):  # neither sees the other die
            for pid in (keeper, process.pid):
                os.kill(pid, number)
        process.wait(PATIENCE_S)
    # Until it is dead with all it had open, its journal is not abandoned.
    assert wait_until(lambda: gone(keeper))
    assert len(traces(words)) == traces_of_all(), "the sandbox was removed without a keeper"
    with open_sandbox(
        slots=1,
        limit_bytes=64 * MIB,
        swap_bytes=64 * MIB,
        cache_dir=tmp_path,
        state_dir=state,
    ) as sandbox:
        assert traces(words) == []
        assert sandbox.zone.exists()
    assert list(state.iterdir()) == []


@pytest.mark.live
def test_the_limit_holds_and_empty_takes_the_page_cache_back(tmp_path: Path) -> None:
    data = tmp_path / "data.bin"
    data.write_bytes(os.urandom(48 * MIB))
    os.sync()
    with open_sandbox(
        slots=1,
        limit_bytes=64 * MIB,
        swap_bytes=64 * MIB,
        cache_dir=tmp_path,
        state_dir=tmp_path / "state",
    ) as sandbox:
        fd = os.open(data, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
        enter = "".join(f"echo $$ > {path}/cgroup.procs; " for path in sandbox.slots[0].dirs)
        subprocess.run(["sh", "-c", f"{enter} cat {data} > /dev/null"], check=True)
        used = usage_bytes(sandbox)
        assert 20 * MIB < used <= 64 * MIB
        sandbox.empty()
        assert usage_bytes(sandbox) < used / 4
        assert sandbox.oom_kills() == 0


def usage_bytes(sandbox: Sandbox) -> int:
    folder = sandbox.zone.memory_dir
    assert folder is not None
    name = "memory.current" if sandbox.zone.hierarchy.kind == "v2" else "memory.usage_in_bytes"
    return int((folder / name).read_text())


@pytest.mark.live
def test_groups_are_made_in_further_hierarchies_on_request_only(tmp_path: Path) -> None:
    for controllers in ((), ("cpu", "blkio")):
        with open_sandbox(
            slots=1,
            limit_bytes=64 * MIB,
            swap_bytes=64 * MIB,
            cache_dir=tmp_path,
            state_dir=tmp_path,
            controllers=controllers,
        ) as sandbox:
            group = sandbox.slots[0]
            further = group.hierarchy.further_roots
            wanted = {root / group.name for root in further if root.name in controllers}
            assert set(group.member_dirs) == {*group.dirs, *wanted}
        assert not any((root / sandbox.zone.name).exists() for root in further)
