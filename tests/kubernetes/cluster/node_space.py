"""A node of its own on this machine: namespaces and a cgroup that everything of it ends with.

The processes of the node see their own processes, mounts, network and host name, and below
``/sys/fs/cgroup`` only the group that this makes. The kubelet sets some of ``vm.*`` and
``kernel.*`` for the whole machine; inside, files with the values that it wants lie over those.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

NAME: Final = "stallward-node"
"""What the node is called in its cluster."""
API_ADDRESS: Final = "10.96.0.1"
"""The address of the service ``kubernetes``. The node itself has it, so no proxy is needed."""
MEMORY_LIMIT_BYTES: Final = 4 << 30
_CGROUPS: Final = Path("/sys/fs/cgroup")
_WANTED: Final = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
_INSIDE: Final = """
set -e
mount --make-rprivate / && mount --make-rshared /
mount -t tmpfs tmpfs /run
for folder in /var/log /var/lib/cni /var/lib/kubelet /etc/cni /opt; do
  mkdir -p "$folder" && mount -t tmpfs tmpfs "$folder"
done
hierarchies=$(awk '$3 ~ /^cgroup2?$/ {print $2 " " $3 " " $4}' /proc/mounts)
umount -l -R /sys/fs/cgroup
mount -t tmpfs tmpfs /sys/fs/cgroup
echo "$hierarchies" | while read -r place kind options; do
  mkdir -p "$place"
  case $kind in
    cgroup2) mount -t cgroup2 cgroup2 "$place" ;;
    *) mount -t cgroup -o "${options#rw,relatime,}" cgroup "$place" ;;
  esac
done
for file in $(cd "$1" && find . -type f); do mount --bind "$1/$file" "/proc/sys/$file"; done
ip link set lo up
ip address add ADDRESS/32 dev lo
hostname NAME
touch "$2"
trap '' CHLD
exec sleep infinity
""".replace("ADDRESS", API_ADDRESS).replace("NAME", NAME)


def why_missing() -> str:
    """Why no node can be made here; empty if one can."""
    if os.geteuid() != 0:
        return "not root"
    lacking = [name for name in ("unshare", "nsenter", "setpriv", "ip") if not shutil.which(name)]
    if lacking:
        return f"not installed: {', '.join(lacking)}"
    if not (_CGROUPS / "memory/memory.limit_in_bytes").exists():
        return "the node's groups are made for cgroup v1 beside v2, and this machine has v2 alone"
    return ""


def wait_for(condition: Callable[[], object], timeout_s: float = 60.0) -> bool:
    """Whether something comes true in time."""
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        if condition():
            return True
        time.sleep(0.05)
    return bool(condition())


def _remove(groups: list[Path]) -> bool:
    """Remove groups with those below them; whether all are gone."""
    for group in groups:
        for folder, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()
    return not any(group.exists() for group in groups)


def _owner(group: Path) -> Path:
    return Path("/proc") / group.name.rpartition("-")[2]


class NodeSpace:
    """The namespaces of a node, and its group.

    Args:
        folder: For the logs of its programs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._group = f"stallward-node-{os.getpid()}"
        self._programs: dict[str, subprocess.Popen[bytes]] = {}
        for top in self._tops():
            # What is left where the tests were killed: groups without processes.
            left = [one for one in top.glob("stallward-node-*") if not _owner(one).exists()]
            _remove(left)
            (top / self._group).mkdir()
            for name in ("cpuset.cpus", "cpuset.mems"):
                if (top / name).exists():
                    (top / self._group / name).write_text((top / name).read_text())
        limit = _CGROUPS / "memory" / self._group / "memory.limit_in_bytes"
        limit.write_text(str(MEMORY_LIMIT_BYTES))
        wanted = folder / "sysctl"
        for name, value in _WANTED.items():
            (wanted / name).parent.mkdir(parents=True, exist_ok=True)
            (wanted / name).write_text(f"{value}\n")
        ready = folder / "ready"
        # It ends with this process, even if that is killed.
        ends = ("setpriv", "--pdeathsig=KILL", "unshare", "--fork", "--kill-child")
        new = ("--pid", "--mount-proc", "--net", "--uts", "--cgroup")
        with (folder / "node.log").open("wb") as log:
            self._holder = subprocess.Popen(
                self._enter(*ends, *new, "sh", "-c", _INSIDE, "sh", wanted, ready),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        assert wait_for(lambda: ready.exists() or self._holder.poll() is not None, 10.0)
        assert ready.exists(), (folder / "node.log").read_text()

    @staticmethod
    def _tops() -> list[Path]:
        lines = Path("/proc/mounts").read_text().splitlines()
        mounts = (line.split(" ") for line in lines)
        return [Path(m[1]) for m in mounts if m[2] in {"cgroup", "cgroup2"}]

    def _enter(self, *words: str | Path) -> list[str | Path]:
        """A command that runs another one in the group of the node."""
        places = " ".join(str(top / self._group / "cgroup.procs") for top in self._tops())
        enter = f'for place in {places}; do echo $$ >"$place"; done; exec "$@"'
        return ["sh", "-c", enter, "sh", *words]

    @property
    def pid(self) -> int:
        """The pid in this machine of the node's first process."""
        task = self._holder.pid
        return int(Path(f"/proc/{task}/task/{task}/children").read_text().split()[0])

    def group(self, controller: str, name: str) -> Path:
        """The directory in this machine of a group of the node."""
        return _CGROUPS / controller / self._group / name

    def command(self, *words: str | Path) -> list[str | Path]:
        """The command that runs another one on the node."""
        return self._enter("nsenter", "-t", str(self.pid), "-m", "-u", "-n", "-p", "-C", *words)

    def run(self, *words: str | Path, check: bool = True, timeout_s: float = 60.0) -> str:
        """Run a command on the node; return what it printed."""
        done = subprocess.run(
            self.command(*words), check=False, capture_output=True, text=True, timeout=timeout_s
        )
        assert not check or done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def start(self, name: str, *words: str | Path, **environment: str) -> None:
        """Start a program of the node."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self._programs[name] = subprocess.Popen(
                self.command(
                    "env", *(f"{key}={value}" for key, value in environment.items()), *words
                ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def runs(self, name: str) -> bool:
        """Whether a program of the node runs."""
        program = self._programs.get(name)
        return program is not None and program.poll() is None

    def program(self, name: str) -> int:
        """The pid in this machine of a program of the node; 0 while it starts."""
        task = self._programs[name].pid
        with contextlib.suppress(OSError, IndexError):
            return int(Path(f"/proc/{task}/task/{task}/children").read_text().split()[0])
        return 0

    def end(self, name: str, number: signal.Signals = signal.SIGTERM) -> None:
        """Send a program of the node a signal, and wait until it has ended."""
        pid = self.program(name)
        assert pid, f"{name} does not run: {self.log(name)}"
        os.kill(pid, number)
        self._programs.pop(name).wait(30.0)

    def log(self, name: str, most: int = 4000) -> str:
        """The end of what a program has written."""
        path = self.folder / f"{name}.log"
        return path.read_text("utf-8", "replace")[-most:] if path.exists() else ""

    def close(self) -> None:
        """End everything of the node, and remove its group."""
        with contextlib.suppress(OSError, IndexError):
            os.kill(self.pid, signal.SIGKILL)
        self._holder.wait(30.0)
        for program in self._programs.values():
            program.wait(30.0)
        groups = [top / self._group for top in self._tops()]
        assert wait_for(lambda: _remove(groups), 10.0), f"{self._group} cannot be removed"
