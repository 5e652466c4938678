"""The real systemd-oomd takes the stand-in for systemd, and kills in the group that it names.

The groups are folders with files, so that the kernel need not limit memory by cgroup v2.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stallward.env.sandbox.peers.managed_groups import MANAGED_SOCKET, ManagedGroups
from stallward.env.sandbox.peers.programs import find_peer

pytestmark = [pytest.mark.live, pytest.mark.reaches]

PEER = find_peer("systemd-oomd")
PATIENCE_S = 60.0
# The group of pid 1, in which it looks for the controllers, and the zone are covered by folders.
SEE = (
    'mount -t cgroup2 none /sys/fs/cgroup && mount --bind "$1" /run && '
    'mount --bind "$3" "/sys/fs/cgroup$4/cgroup.controllers" && '
    'mkdir -p "/sys/fs/cgroup/$5" && mount --bind "$2" "/sys/fs/cgroup/$5" && '
    'shift 5 && exec "$@"'
)


def wait_until(condition: Callable[[], bool]) -> bool:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < deadline_s:
        time.sleep(0.1)
    return condition()


def fill(group: Path, *, full_percent: float, pgscan: int, pids: tuple[int, ...] = ()) -> None:
    """Write what systemd-oomd reads of a group."""
    group.mkdir(exist_ok=True)
    pressure = f"avg10={full_percent:.2f} avg60=0.00 avg300=0.00 total={pgscan}"
    files = {
        "memory.pressure": f"some {pressure}\nfull {pressure}\n",
        "memory.current": f"{64 << 20}\n",
        "memory.min": "0\n",
        "memory.low": "0\n",
        "memory.swap.current": "0\n",
        "memory.oom.group": "0\n",
        "memory.stat": f"anon 0\npgscan {pgscan}\n",
        "cgroup.procs": "".join(f"{pid}\n" for pid in pids),
    }
    for name, text in files.items():
        (group / f"{name}.new").write_text(text)
        (group / f"{name}.new").rename(group / name)


@contextlib.contextmanager
def sleeping() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            yield process
        finally:
            process.kill()


def test_systemd_oomd_kills_where_the_stand_in_says_and_when_it_says(tmp_path: Path) -> None:
    if os.geteuid() or not Path(PEER.program).exists():
        pytest.skip("systemd-oomd is not installed, or this is not root")
    name = f"stallward-talk-{os.getpid()}"
    zone, controllers, run = tmp_path / "zone", tmp_path / "controllers", tmp_path / "run"
    controllers.write_text("cpu io memory pids\n")
    socket = run / MANAGED_SOCKET.relative_to("/run")
    for folder in (socket.parent / "oom", socket.parent / "oomd.conf.d"):
        folder.mkdir(parents=True)
    (socket.parent / "oomd.conf.d/99.conf").write_text(
        "[OOM]\nDefaultMemoryPressureDurationSec=1s\n"
    )
    found = re.search(r"^0::(.*)$", Path("/proc/1/cgroup").read_text(), re.MULTILINE)
    above = "" if found is None else found[1].removesuffix("/init.scope").rstrip("/")
    words = (str(run), str(zone), str(controllers), above, name)
    try:
        with (
            sleeping() as hog,
            sleeping() as app,
            ManagedGroups(socket, name),
            (tmp_path / "log").open("wb") as log,
        ):
            scanned = 0

            def press(full_percent: float) -> str:
                nonlocal scanned
                scanned += 100
                for folder, pids in ((zone, ()), (zone / "hog", (hog.pid,))):
                    fill(folder, full_percent=full_percent, pgscan=scanned, pids=pids)
                fill(zone / "calm", full_percent=0, pgscan=0, pids=(app.pid,))
                return (tmp_path / "log").read_text()

            press(40)
            program = subprocess.Popen(
                ["unshare", "--mount", "sh", "-c", SEE, "sh", *words, *PEER.command],
                stdout=log,
                stderr=log,
            )
            try:
                subscribed = wait_until(lambda: "New incoming message" in press(40))
                if not subscribed and "mount:" in press(40):
                    pytest.skip(f"nothing can be mounted here: {press(40)}")
                assert subscribed, press(40)
                time.sleep(4)  # below the limit of 50 % it waits for ever
                assert "Killed" not in press(40)
                assert wait_until(lambda: "Killed" in press(80)), press(80)
                assert wait_until(lambda: hog.poll() is not None)
                text = press(0)
                assert f"Killed /{name}/hog due to memory pressure for /{name}" in text, text
                assert "> 50.00% for > 1s" in text
                assert PEER.count_ended(text) == 1
                assert app.poll() is None
                assert program.poll() is None
            finally:
                program.terminate()
                program.wait()
    finally:
        for root in (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")):
            with contextlib.suppress(OSError):
                (root / name).rmdir()
