"""The peers: which program each is, how its package starts it, and what it writes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.kernel.hierarchies import detect
from stallward.actuator.kernel.paths import DEFAULT_PATHS, Paths
from stallward.env.errors import WorkloadError
from stallward.env.sandbox.sandbox import Sandbox

# ---------- The configuration of oomd for a sandbox: the one that Debian ships, with the sandbox's groups
# The packaged file is upstream's src/oomd/etc/desktop.json. It watches and kills what is below
# ``user.slice`` and ``system.slice``, which a sandbox has not. Here the zone is the slice, and the
# background groups are what may be killed. With cgroup v2 nothing else differs: "user session
# protection" and "protection against low swap", with their thresholds and plugins.
#
# On a hybrid node the groups have no ``memory.*`` files, and oomd takes what it cannot read for 0.
# What needs them is left out there: reclaim (``memory.stat``) does not have to be seen, the group
# that stalls most is killed instead of the one that holds or grows most (``memory.current``), and
# there is no ruleset on swap (``memory.swap.current``).

OOMD_CONFIG: Final = Path("/etc/oomd/oomd.json")
"""The packaged configuration, whose rulesets are repeated here."""
_PRESSURE_PERCENT: Final = 60
_PRESSURE_S: Final = 30
_RECLAIM_S: Final = 10
_SWAP_FREE_PERCENT: Final = 10


def oomd_rules(sandbox: Sandbox) -> str:
    """Make the configuration of oomd for a sandbox, as JSON."""
    zone = sandbox.zone.name
    background = ",".join(slot.name for slot in sandbox.slots)
    pressure = _plugin(
        "pressure_above",
        cgroup=zone,
        resource="memory",
        threshold=_PRESSURE_PERCENT,
        duration=_PRESSURE_S,
    )
    if sandbox.zone.hierarchy.kind != "v2":
        by_pressure = _plugin("kill_by_pressure", cgroup=background, resource="memory")
        rulesets = [_ruleset("user session protection", [pressure], by_pressure)]
        return json.dumps({"rulesets": rulesets})
    reclaim = _plugin("memory_reclaim", cgroup=zone, duration=_RECLAIM_S)
    swap = _plugin("swap_free", threshold_pct=_SWAP_FREE_PERCENT)
    by_size = _plugin("kill_by_memory_size_or_growth", cgroup=background)
    by_swap = _plugin("kill_by_swap_usage", cgroup=background)
    rulesets = [
        _ruleset("user session protection", [pressure, reclaim], by_size),
        _ruleset("protection against low swap", [swap], by_swap),
    ]
    return json.dumps({"rulesets": rulesets})


def _plugin(name: str, **arguments: str | int) -> dict[str, object]:
    """A detector or an action; oomd takes arguments as text."""
    return {"name": name, "args": {key: str(value) for key, value in arguments.items()}}


def _ruleset(
    name: str, detectors: list[dict[str, object]], action: dict[str, object]
) -> dict[str, object]:
    return {"name": name, "detectors": [[name, *detectors]], "actions": [action]}


_RUN: Final = Path("/run")
"""Hidden from lxcfs, which makes folders in it."""
_FUSE: Final = Path("/dev/fuse")
_NOHANG_CONFIG: Final = Path("/etc/nohang/nohang-desktop.conf")
_PID: Final = re.compile(r"(\d+)\(")
"""A process in the log of oomd: its pid, and its name in brackets."""
_SYSTEMD_OOMD: Final = Path("/lib/systemd/systemd-oomd")
_NO_PTRACE: Final = "3"
"""The value that forbids even root to read /proc/PID/personality, which lxcfs 5 asks for first."""
_TOOLS: Final = {"lxcfs": "lxcfs", "nsenter": "util-linux", "unshare": "util-linux"}
"""Program -> Debian package of what shows a peer the sandbox, and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A daemon that ends programs when memory runs low."""

    name: str
    """Its name in arms."""
    command: tuple[str, ...]
    """How its Debian package starts it. ``{config}`` is the file with what ``configure`` says,
    ``{groups}`` the cgroup v2 hierarchy and ``{state}`` a folder of the sandbox."""
    package: str
    """The Debian package."""
    files: tuple[Path, ...] = ()
    """Files that it needs, of the same package."""
    ended: re.Pattern[str]
    """Matches once in its log for each process that it has ended; or its group does so with the
    processes that it has killed, where one may come again until it is gone."""
    configure: Callable[[Sandbox], str] | None = None
    """Makes its configuration, where the packaged one names groups that a sandbox has not."""
    path: Path | None = None
    """Its program, where that is not looked up by its name."""
    asks_systemd: bool = False
    """Whether it asks systemd which groups it manages. It works with cgroup v2 alone, then."""

    @property
    def summary(self) -> str:
        """What it is, in one line."""
        return f"{self.name} itself, as Debian starts it; it sees the sandbox only, live only"

    @property
    def program(self) -> str:
        """The program that is started."""
        return self.name if self.path is None else str(self.path)

    def count_ended(self, log: str) -> int:
        """How many processes it has ended, by its own log."""
        found = self.ended.findall(log)
        if not self.ended.groups:
            return len(found)
        return len({pid for killed in found for pid in _PID.findall(killed)})


PEERS: Final = (
    Peer(
        name="earlyoom",
        command=("earlyoom", "-r", "3600"),
        package="earlyoom",
        ended=re.compile(r"^process exited after ", re.MULTILINE),
    ),
    Peer(
        name="nohang",
        # Python keeps lines back that go to a file, unless it is told not to.
        command=(
            "env", "PYTHONUNBUFFERED=1",
            "nohang", "--monitor", "--config", str(_NOHANG_CONFIG),
        ),
        package="nohang",
        files=(_NOHANG_CONFIG,),
        ended=re.compile(r"^The victim (?:died|became a zombie) in ", re.MULTILINE),
    ),
    Peer(
        name="oomd",
        command=(
            "oomd", "--interval", "1", "--config", "{config}", "--cgroup-fs", "{groups}",
            "--runtime-dir", "{state}", "--kmsg-override", os.devnull,
        ),
        package="oomd",
        files=(OOMD_CONFIG,),
        ended=re.compile(r"^\[BaseKillPlugin\.cpp:\d+\] Killed \d+: (.*)$", re.MULTILINE),
        configure=oomd_rules,
    ),
    Peer(
        name="systemd-oomd",
        # It names the processes that it ends only to those who ask for every detail.
        command=(
            "env", "SYSTEMD_LOG_TARGET=console", "SYSTEMD_LOG_LEVEL=debug", str(_SYSTEMD_OOMD),
        ),
        package="systemd-oomd",
        ended=re.compile(r"^oomd attempting to kill \d+ with (?:SIG)?KILL$", re.MULTILINE),
        path=_SYSTEMD_OOMD,
        asks_systemd=True,
    ),
)  # fmt: skip
"""All peers, in the order in which they are listed."""


def find_peer(name: str) -> Peer:
    """Find a peer by its name.

    Raises:
        WorkloadError: If there is none of that name.
    """
    for peer in PEERS:
        if peer.name == name:
            return peer
    names = ", ".join(peer.name for peer in PEERS)
    raise WorkloadError(
        f"There is no peer {name!r}.", next_step=f"Name one that there is: {names}."
    )


def why_not(peer: Peer, paths: Paths = DEFAULT_PATHS) -> str:
    """Say what is missing here to run a peer, in one sentence; empty if nothing is."""
    if peer.asks_systemd and detect(paths).kind != "v2":
        return (
            f"The peer {peer.name!r} works with cgroup v2 alone, and memory is not limited by it "
            "on this node."
        )
    missing = _not_installed({peer.program: peer.package, **_TOOLS})
    if any(not file.exists() for file in peer.files):
        missing.append(peer.package)
    packages = " ".join(dict.fromkeys(missing))
    if packages:
        return (
            f"The peer {peer.name!r} needs Debian packages that are not installed: "
            f"`apt-get install {packages}`."
        )
    if not _FUSE.exists():
        return (
            f"The peer {peer.name!r} sees the sandbox by lxcfs, which needs FUSE, and there is no "
            f"{_FUSE}."
        )
    folder = Path(tempfile.gettempdir()).resolve()
    if folder.is_relative_to(_RUN):
        return (
            f"The peer {peer.name!r} sees the sandbox by lxcfs, for which {_RUN} is hidden, and "
            f"temporary files are in {folder}. Set TMPDIR to a folder elsewhere."
        )
    with contextlib.suppress(FileNotFoundError):  # a kernel without Yama
        scope = paths.proc / "sys/kernel/yama/ptrace_scope"
        if scope.read_text().strip() == _NO_PTRACE:
            return (
                f"The peer {peer.name!r} sees the sandbox by lxcfs, which shows an empty file "
                "where kernel.yama.ptrace_scope is 3. It stays so until the next boot: set "
                "another value for that one."
            )
    return ""


def _not_installed(packages: dict[str, str]) -> list[str]:
    """The packages of the programs that are not found."""
    return [package for program, package in packages.items() if shutil.which(program) is None]


def versions_of(peer: Peer) -> dict[str, str]:
    """Debian package -> version, of a peer and of what shows it the sandbox."""
    wanted = "${Package} ${Version}\n"
    try:
        shown = subprocess.run(
            ["dpkg-query", "--show", f"--showformat={wanted}", peer.package, "lxcfs"],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:  # another distribution's
        return {}
    pairs = (line.partition(" ") for line in shown.stdout.splitlines())
    return {package: version for package, _, version in pairs if version}
