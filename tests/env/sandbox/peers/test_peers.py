"""Real peers on a small sandbox: they end what grows in it, nothing else."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest

from stallward.actuator.kernel.cgroups import Hierarchy, Kind
from stallward.actuator.kernel.paths import Paths
from stallward.env.errors import WorkloadError
from stallward.env.sandbox.block import BlockSite, Workplace, run_block
from stallward.env.sandbox.peers.programs import (
    PEERS,
    Peer,
    RunningPeer,
    find_peer,
    versions_of,
    why_not,
)
from stallward.env.sandbox.sandbox import Sandbox, open_sandbox
from stallward.env.scenario.file import parse_scenario
from stallward.env.scenario.scenario import Places

MIB = 1 << 20
LXCFS_RAN_BEFORE = Path("/run/lxcfs").exists()
PATIENCE_S = 30.0

# The hog grows by 24 MiB a second until it is ended. Without swap peers look at memory alone, and
# with it the hog soon waits for its pages all the time, which is what oomd looks at.
TOML = """
summary = "a server beside a small program and one that grows"
[sandbox]
limit_mib = 240
ample_mib = 512
swap_mib = SWAP
[protected]
ready = "{run}/s"
prepare = [["cp", "/etc/hostname", "{data}/name"]]
[protected.server]
command = ["{python}", "{data}/../server.py", "{run}/s"]
[protected.load]
command = [
  "{workloads}/load", "--socket", "{run}/s", "--request", "%K\\n", "--rate", "20",
  "--seed", "{seed}", "--out", "{run}/requests",
]
[protected.latency]
path = "{run}/requests"
start = 0
sent = 1
end = 2
ok = 3
[[background]]
name = "small"
command = ["{workloads}/anon", "--program", "16", "--rate", "10", "--report", "{run}/small"]
units = { path = "{run}/small" }
[[background]]
name = "grows"
command = ["{workloads}/anon", "--program", "400", "--rate", "24", "--report", "{run}/grows"]
units = { path = "{run}/grows" }
"""

SERVER = """
import socket, sys, threading
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
s.listen()
def serve(c):
    while c.recv(64):
        c.sendall(b"ok" + bytes([10]))
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
"""


@pytest.fixture(autouse=True)
def temporary_files_that_lxcfs_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    """A virtual machine of the tests has its temporary files in /run, which lxcfs hides."""
    if Path(tempfile.gettempdir()).is_relative_to("/run"):
        monkeypatch.setenv("TMPDIR", "/tmp")
        monkeypatch.setattr(tempfile, "tempdir", "/tmp")


def installed(peer: Peer) -> None:
    missing = why_not(peer)
    if missing:
        pytest.skip(missing)


def places_in(folder: Path) -> Places:
    return Places(
        data=folder, run=folder, scratch=folder, python=sys.executable, workloads=folder, seed=1
    )


@contextlib.contextmanager
def decoy() -> Iterator[subprocess.Popen[bytes]]:
    """A process outside of the sandbox that any killer on this machine would choose first."""
    script = "echo 1000 >/proc/self/oom_score_adj; exec sleep 600"
    with subprocess.Popen(["sh", "-c", script]) as process:
        score = Path(f"/proc/{process.pid}/oom_score")
        assert wait_until(lambda: int(score.read_text()) >= 1000)
        try:
            yield process
        finally:
            process.kill()


def ends_with(log: Path, end: str) -> bool:
    return log.read_text().endswith(end)


def wait_until(condition: Callable[[], bool]) -> bool:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < deadline_s:
        time.sleep(0.05)
    return condition()


@pytest.mark.live
@pytest.mark.reaches
@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_it_ends_what_grows_in_the_sandbox_and_nothing_else(
    tmp_path: Path, programs: Path, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(peer)
    monkeypatch.setattr("stallward.env.sandbox.peers.programs._PRESSURE_PERCENT", 10)
    monkeypatch.setattr("stallward.env.sandbox.peers.programs._PRESSURE_S", 2)
    # Where swap is as fast as memory, what grows waits for a tenth of the time.
    monkeypatch.setattr("stallward.env.sandbox.peers.managed_groups._PRESSURE_PERCENT", 2)
    swap_mib = 400 if peer.name in {"oomd", "systemd-oomd"} else 0
    (tmp_path / "cache" / "data").mkdir(parents=True)
    (tmp_path / "cache" / "server.py").write_text(SERVER)
    toml = TOML.replace("SWAP", str(swap_mib))
    if swap_mib:
        toml = toml.replace('"24"', '"2000"')
    (tmp_path / "x.toml").write_text(toml)
    seen: list[tuple[tuple[int, ...], ...]] = []
    said: list[str] = []
    with (
        open_sandbox(
            slots=2,
            limit_bytes=240 * MIB,
            swap_bytes=swap_mib * MIB,
            cache_dir=tmp_path,
            state_dir=tmp_path,
        ) as sandbox,
        decoy() as outside,
    ):
        settings = sandbox.folder / "systemd/systemd/oomd.conf.d/test.conf"
        settings.parent.mkdir(parents=True)
        settings.write_text("[OOM]\nDefaultMemoryPressureDurationSec=1s\n")

        @contextlib.contextmanager
        def watch(site: BlockSite) -> Iterator[None]:
            yield
            groups = (sandbox.protected, sandbox.load, *sandbox.slots)
            seen.append(tuple(group.pids() for group in groups))
            log = Path(site.units[0].path).with_name(f"{peer.name}.log")
            pressure = f"{sandbox.zone.unified_dir}/memory.pressure"
            said.append(Path(pressure).read_text() + log.read_text(errors="replace")[-2000:])

        result = run_block(
            sandbox,
            parse_scenario(tmp_path / "x.toml"),
            "together",
            watch,
            workplace=Workplace(
                data=tmp_path / "cache" / "data", native=programs, cache_dir=tmp_path
            ),
            duration_s=30.0 if peer.asks_systemd else 14.0,
            burn_in_s=0.5,
            out_dir=tmp_path,
            seed=1,
            peer=peer,
        )
        assert outside.poll() is None, "it ended a process outside of the sandbox"
        assert not sandbox.zone.populated()
        assert not sandbox.peer.populated()
    server, _load, small, grows = seen[0]
    assert server
    assert not grows, said[0]
    # systemd-oomd kills by the pressure of the last ten seconds, also where what made it has ended.
    assert small or peer.asks_systemd, said[0]
    assert result.peer_kills == 1 or (peer.asks_systemd and not small)
    assert result.oom_kills == 0, "the kernel was first"
    assert (result.units_per_s(0) or 0) > 0
    assert Path("/run/lxcfs").exists() is LXCFS_RAN_BEFORE
    assert "lxcfs" not in Path("/proc/mounts").read_text()


def test_a_kernel_that_forbids_ptrace_shows_lxcfs_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    scope = tmp_path / "sys/kernel/yama/ptrace_scope"
    scope.parent.mkdir(parents=True)
    scope.write_text("1\n")
    monkeypatch.setattr(shutil, "which", lambda _name: "/bin/true")
    monkeypatch.setattr("stallward.env.sandbox.peers.programs._FUSE", tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")
    earlyoom, paths = replace(find_peer("earlyoom"), files=()), Paths(proc=tmp_path)
    assert why_not(earlyoom, paths) == ""
    scope.write_text("3\n")
    assert "ptrace_scope is 3" in why_not(earlyoom, paths)


def test_what_it_has_ended_is_counted_from_its_log() -> None:
    earlyoom, nohang, oomd = map(find_peer, ("earlyoom", "nohang", "oomd"))
    log = (
        "low memory! at or below SIGTERM limits: mem 9.1%, swap 0.0%\n"
        'sending SIGTERM to process 7 uid 0 "anon": badness 671, VmRSS 211 MiB\n'
        "process exited after 0.1 seconds\n"
    )
    assert earlyoom.count_ended(log) == 1
    assert earlyoom.count_ended(log.replace("process exited", "kill failed:")) == 0
    log = (
        "Sending SIGTERM to the victim\nOK; total response time: 9ms\n"
        "The victim doesn't respond on corrective action in 0.1s\n"
        "Sending SIGKILL to the victim\nOK; total response time: 9ms\n"
        "The victim died in 0.01s\n"
    )
    assert nohang.count_ended(log) == 1
    log = (
        "[BaseKillPlugin.cpp:429] Trying to kill /sys/fs/cgroup/unified/stallward/1/bg0\n"
        "[BaseKillPlugin.cpp:478] Killed 3: 7(make) 8(cc1 plus) 8(cc1 plus)\n"
        "[BaseKillPlugin.cpp:478] Killed 1: 9(anon)\n"
    )
    assert oomd.count_ended(log) == 3


def test_a_missing_file_of_a_peer_counts_as_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: "/bin/true")
    monkeypatch.setattr(Path, "exists", lambda _path: False)
    assert "`apt-get install nohang`" in why_not(find_peer("nohang"))
    assert "no /dev/fuse" in why_not(find_peer("earlyoom"))


def test_temporary_files_in_run_are_hidden_from_lxcfs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: "/bin/true")
    monkeypatch.setattr(Path, "exists", lambda _path: True)
    monkeypatch.setattr(tempfile, "tempdir", "/run/user/0")
    assert "Set TMPDIR to a folder elsewhere" in why_not(find_peer("earlyoom"))
    monkeypatch.setattr(tempfile, "tempdir", "/runner")
    assert why_not(find_peer("earlyoom")) == ""


def test_what_systemd_oomd_has_killed_is_counted_by_processes() -> None:
    log = (
        "oomd attempting to kill 7 with KILL\n"
        "oomd attempting to kill 8 with KILL\n"
        "Nothing killed when attempting to kill /stallward/1/slot0\n"
        "Killed /stallward/1/slot1 due to memory pressure for /stallward/1 being 61.00% > 50.00%"
        " for > 20s with reclaim activity\n"
    )
    assert find_peer("systemd-oomd").count_ended(log) == 2


@pytest.mark.parametrize(("kind", "can"), [("v2", True), ("hybrid", False), ("none", False)])
def test_systemd_oomd_needs_cgroup_v2(
    monkeypatch: pytest.MonkeyPatch, kind: Kind, can: bool
) -> None:
    monkeypatch.setattr(
        "stallward.env.sandbox.peers.programs.detect", lambda _paths: Hierarchy(kind=kind)
    )
    monkeypatch.setattr(shutil, "which", lambda _name: "/bin/true")
    monkeypatch.setattr(Path, "exists", lambda _path: True)
    why = why_not(find_peer("systemd-oomd"))
    assert ("works with cgroup v2 alone" in why) is not can
    assert why_not(find_peer("oomd")) == ""


def test_a_missing_systemd_oomd_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "stallward.env.sandbox.peers.programs.detect", lambda _paths: Hierarchy(kind="v2")
    )
    monkeypatch.setattr(shutil, "which", lambda name: None if "systemd" in name else "/bin/true")
    assert "`apt-get install systemd-oomd`" in why_not(find_peer("systemd-oomd"))


def test_without_dpkg_versions_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert versions_of(find_peer("earlyoom")) == {}


ASKS = """#!{python} -SE
import os, socket, time
print(sorted(os.listdir("/run")), sorted(os.listdir("/run/systemd")))
caller = socket.socket(socket.AF_UNIX)
caller.connect("/run/systemd/io.system.ManagedOOM")
caller.sendall(b'{{"method":"io.systemd.ManagedOOM.SubscribeManagedOOMCGroups","more":true}}\\0')
print(caller.recv(4096).decode(), flush=True)
print("end", flush=True)
time.sleep(600)
"""
SHOW = """#!/bin/sh
cat /proc/meminfo
cat /proc/[0-9]*/comm
kill -0 {pid} 2>/dev/null || echo no such process
echo shown
exec sleep 600
"""


@pytest.mark.live
@pytest.mark.reaches
def test_it_sees_the_zone_as_its_machine_and_no_other_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(PEERS[0])
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    (bin_dir / "earlyoom").write_text(SHOW.format(pid=os.getpid()))
    (bin_dir / "earlyoom").chmod(0o755)
    monkeypatch.setenv("PATH", str(bin_dir), prepend=":")
    with (
        open_sandbox(
            slots=1, limit_bytes=64 * MIB, swap_bytes=0, cache_dir=tmp_path, state_dir=tmp_path
        ) as sandbox,
        RunningPeer(find_peer("earlyoom"), sandbox, places_in(tmp_path)) as peer,
    ):
        log = peer.program.log
        assert wait_until(lambda: ends_with(log, "shown\n")), log.read_text()
        lines = log.read_text().splitlines()
    memory = {
        key: value.split()[0] for key, _, value in (li.partition(":") for li in lines) if value
    }
    assert int(memory["MemTotal"]) == 64 * 1024
    assert int(memory["SwapTotal"]) == 0
    names = [line for line in lines if ":" not in line]
    assert names == ["sleep", "earlyoom", "no such process", "shown"]


@pytest.mark.live
@pytest.mark.reaches
def test_a_peer_that_asks_systemd_hears_of_the_zone_and_finds_nothing_else_in_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(PEERS[0])
    asks = tmp_path / "asks"
    asks.write_text(ASKS.format(python=sys.executable))
    asks.chmod(0o755)
    monkeypatch.setattr("stallward.env.sandbox.peers.programs.why_not", lambda _peer: "")
    peer = replace(find_peer("systemd-oomd"), command=(str(asks),))
    with open_sandbox(
        slots=1, limit_bytes=64 * MIB, swap_bytes=0, cache_dir=tmp_path, state_dir=tmp_path
    ) as sandbox:
        for name in "first", "second":  # which must not take what the first one left for its own
            run = tmp_path / name
            run.mkdir()
            with RunningPeer(peer, sandbox, places_in(run)) as running:
                log = running.program.log
                assert wait_until(partial(ends_with, log, "end\n")), log.read_text()
                marked = [
                    os.getxattr(f"{group.unified_dir}", "user.oomd_omit")
                    for group in (sandbox.protected, sandbox.zone.child("init.scope"))
                ]
            found, heard, *_ = log.read_text().splitlines()
            assert not (sandbox.folder / "systemd").exists()
        zone = f"/{sandbox.zone.name}"
    assert found == "['systemd'] ['io.system.ManagedOOM', 'oom']"
    assert f'"path": "{zone}"' in heard
    assert marked == [b"1", b"1"]


STARTED = """
import subprocess, sys, time
from pathlib import Path
from stallward.env.sandbox.launch import start
from stallward.env.sandbox.peers.programs import find_peer
from stallward.env.sandbox.peers.programs import RunningPeer
from stallward.env.sandbox.sandbox import open_sandbox
from stallward.env.scenario.scenario import Command, Places
folder = Path(sys.argv[1])
with open_sandbox(
    slots=1, limit_bytes=64 << 20, swap_bytes=0, cache_dir=folder, state_dir=folder / "state"
) as box:
    places = Places(
        data=folder, run=folder, scratch=folder, python=sys.executable, workloads=folder, seed=1
    )
    with RunningPeer(find_peer(sys.argv[2]), box, places) as peer:
        argv = ("sh", "-c", "sleep 600 & sleep 600")
        start("program", Command(argv=argv), box.slots[0], places, inside=peer.enter)
        while len(box.slots[0].pids()) < 3 or not peer.program.log.stat().st_size:
            peer.program.check(may_end=False)
            time.sleep(0.05)
        print(box.zone.name, box.peer.name, flush=True)
        time.sleep(600)
"""


@pytest.mark.live
@pytest.mark.reaches
@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_all_of_it_ends_with_a_comparison_that_is_killed(tmp_path: Path, peer: Peer) -> None:
    installed(peer)
    argv = [sys.executable, "-c", STARTED, str(tmp_path), peer.name]
    with (
        subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process,
        contextlib.ExitStack() as at_the_end,
    ):
        at_the_end.callback(process.kill)
        assert process.stdout is not None
        names = process.stdout.readline().split()
        assert len(names) == 2, "it did not start"
        started = psutil.Process(process.pid).children(recursive=True)
        words = [" ".join((*one.cmdline(), "")) for one in started]
        for part in (f"{peer.name} ", "lxcfs --foreground", "sleep infinity", "sleep 600"):
            assert any(part in one for one in words), words
    assert psutil.wait_procs(started, timeout=PATIENCE_S)[1] == []
    roots = (Path("/sys/fs/cgroup", kind) for kind in ("memory", "unified", "."))
    left = [root / name for root in roots for name in names]
    assert wait_until(lambda: not any(path.exists() for path in left))


@pytest.mark.live
@pytest.mark.reaches
def test_a_namespace_that_cannot_be_made_says_why_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(PEERS[0])
    broken = tmp_path / "bin" / "lxcfs"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho no fuse today\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(broken.parent), prepend=":")
    with open_sandbox(
        slots=1, limit_bytes=64 * MIB, swap_bytes=0, cache_dir=tmp_path, state_dir=tmp_path
    ) as sandbox:
        with (
            pytest.raises(WorkloadError, match=r"lxcfs ended with status 3.*no fuse today") as why,
            RunningPeer(PEERS[0], sandbox, places_in(tmp_path)),
        ):
            pass
        assert "Leave the peer out" in str(why.value.next_step)
        assert not sandbox.peer.populated()
        assert not sandbox.zone.populated()


def test_a_peer_that_is_not_installed_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hierarchy = Hierarchy(kind="v2", memory_root=tmp_path, unified_root=tmp_path)
    zone = hierarchy.group("stallward/1")
    sandbox = Sandbox(
        zone=zone,
        protected=zone.child("app"),
        slots=(),
        load=hierarchy.group("stallward/1-load"),
        peer=hierarchy.group("stallward/1-peer"),
        folder=tmp_path,
        paths=Paths(),
    )
    monkeypatch.setenv("PATH", "")
    with (
        pytest.raises(WorkloadError, match="apt-get install earlyoom lxcfs util-linux"),
        RunningPeer(find_peer("earlyoom"), sandbox, places_in(tmp_path)),
    ):
        pass
    assert list(tmp_path.iterdir()) == []
