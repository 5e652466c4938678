"""A systemd that is pid 1 of a namespace of its own in the emulated machine.

It has its own processes, mounts, and part of the cgroup hierarchy, but no services of the host:
only the units that a test gives it. What it makes of a unit is real: mount namespaces, capability
sets, filters of system calls and of packets, and cgroups.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from pressed_zone import wait_for

from stallward.actuator.kernel.paths import Paths

SYSTEMD: Final = Path("/usr/lib/systemd/systemd")
_UNITS: Final = "/run/units"
_ROOT: Final = Path("/sys/fs/cgroup/stallward-systemd")
# Missing units make a job fail, so the targets that every unit refers to are there, and empty.
_TARGETS: Final = ("sysinit", "basic", "shutdown", "multi-user", "local-fs", "umount")
# Its own /run: a runtime directory of a unit must not be that of the machine's tests.
_INSIDE: Final = f"""
set -e
mount -t proc proc /proc
umount -l /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
for folder in /run /var/lib /tmp /var/tmp; do mount -t tmpfs -o mode=755 tmpfs $folder; done
chmod 1777 /tmp /var/tmp
mkdir -p {_UNITS}
for name in {" ".join(_TARGETS)}; do echo '[Unit]' >{_UNITS}/$name.target; done
touch /run/systemd.log
mount --bind /run/systemd.log /dev/console
export container=stallward SYSTEMD_GENERATOR_PATH=/run/none SYSTEMD_LOG_TARGET=console
export SYSTEMD_UNIT_PATH={_UNITS}:/run/systemd/system.control:/run/systemd/transient
exec {SYSTEMD} --system --unit=basic.target --show-status=no
"""


def why_missing() -> str:
    """Why no systemd can be started here; empty if one can."""
    lacking = [str(SYSTEMD)] if not SYSTEMD.exists() else []
    if Path(sys.prefix).is_relative_to("/tmp"):
        return "this environment is in /tmp, which a unit with a /tmp of its own does not see"
    lacking += [
        name
        for name in ("unshare", "nsenter", "systemctl", "setpriv", "ip")
        if not shutil.which(name)
    ]
    return f"not installed: {', '.join(lacking)}" if lacking else ""


class Manager:
    """A running systemd.

    Args:
        folder: Where its messages are written, and those of its units.
    """

    def __init__(self, folder: Path) -> None:
        self._log = folder / "systemd.log"
        _ROOT.mkdir()
        controllers = (_ROOT.parent / "cgroup.controllers").read_text().split()
        (_ROOT.parent / "cgroup.subtree_control").write_text(
            " ".join(f"+{name}" for name in controllers)
        )
        enter = f'echo $$ >{_ROOT}/cgroup.procs; exec "$@"'
        namespaces = ["unshare", "--fork", "--kill-child", "--pid", "--mount", "--cgroup", "--uts"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", enter, "sh", *namespaces, "sh", "-c", _INSIDE],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        assert wait_for(lambda: self.pid), self.log()
        # A group with processes of its own cannot share its controllers out to groups below.
        (_ROOT.parent / "cgroup.procs").write_text(str(self._process.pid))
        assert wait_for(lambda: self.is_active("basic.target")), self.log()

    @property
    def pid(self) -> int:
        """The pid of systemd in this machine; 0 until it runs."""
        task = self._process.pid
        children = Path(f"/proc/{task}/task/{task}/children").read_text().split()
        return int(children[0]) if children else 0

    def log(self) -> str:
        """What systemd and its units have written."""
        text = self._log.read_text("utf-8", "replace")
        for path in sorted(self.path("/run").glob("*.log")):
            text += f"\n{path.name}:\n{path.read_text('utf-8', 'replace')}"
        return text

    def path(self, inside: str) -> Path:
        """The path in this machine of a path inside."""
        return Path(f"/proc/{self.pid}/root{inside}")

    def paths(self) -> Paths:
        """The kernel's files as they are inside."""
        return Paths(proc=self.path("/proc"), cgroup=_ROOT)

    def group(self, name: str) -> Path:
        """The directory of a group inside."""
        return _ROOT / name

    def command(self, *words: str) -> list[str]:
        """The command that runs another one inside."""
        return ["nsenter", "-t", str(self.pid), "-m", "-p", "-C", "--", *words]

    def run(self, *words: str, check: bool = True) -> str:
        """Run a command inside; return what it printed."""
        done = subprocess.run(
            self.command(*words), check=False, capture_output=True, text=True, timeout=600
        )
        assert not check or done.returncode == 0, f"{words}: {done.stderr}\n{self.log()}"
        return done.stdout.strip()

    def write_unit(self, name: str, text: str, **drop_ins: str) -> None:
        """Write a unit, with drop-ins by their names, and have it read."""
        folder = self.path(_UNITS)
        (folder / name).write_text(text)
        for drop_in, content in drop_ins.items():
            extra = folder / f"{name}.d"
            extra.mkdir(exist_ok=True)
            (extra / f"{drop_in}.conf").write_text(content)
        self.run("systemctl", "daemon-reload")

    def is_active(self, unit: str) -> bool:
        """Whether a unit is active."""
        return self.run("systemctl", "is-active", unit, check=False) == "active"

    def show(self, unit: str, name: str) -> str:
        """A property of a unit."""
        return self.run("systemctl", "show", "--value", "-p", name, unit)

    def start(self, unit: str) -> None:
        """Start a unit and wait until it has."""
        self.run("systemctl", "start", unit)

    def pids(self, group: str) -> tuple[int, ...]:
        """The processes of a group, by their numbers in this machine."""
        return tuple(int(pid) for pid in (_ROOT / group / "cgroup.procs").read_text().split())

    def close(self) -> None:
        """Kill systemd and everything that it started, and remove the groups."""
        self._process.kill()
        self._process.wait()
        (_ROOT / "cgroup.kill").write_text("1")
        deadline_s = time.monotonic() + 60
        for folder, _, _ in os.walk(_ROOT, topdown=False):
            while time.monotonic() < deadline_s:
                try:
                    Path(folder).rmdir()
                except OSError:
                    time.sleep(0.1)
                else:
                    break
