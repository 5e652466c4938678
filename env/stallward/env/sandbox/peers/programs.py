"""The peers: which program each is, how its package starts it, and what it writes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from stallward.actuator.kernel.hierarchies import detect
from stallward.actuator.kernel.paths import DEFAULT_PATHS, Paths
from stallward.env.errors import SandboxError, WorkloadError
from stallward.env.sandbox.launch import Program, start
from stallward.env.sandbox.peers.managed_groups import MANAGED_SOCKET, service_argv, spare
from stallward.env.sandbox.sandbox import Sandbox
from stallward.env.scenario.scenario import Command, Places

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


# ---------- Runs a peer where it sees the background of a sandbox, and nothing else.
# A peer looks at /proc, and may end whatever it finds there. So the background programs of its block
# run in a PID namespace, and the peer runs in it, too. It can neither see nor signal any other
# process, whatever its options are. In its mount namespace /proc/meminfo is that of the zone, which
# lxcfs shows, and /proc/pressure/memory is the zone's memory.pressure. So the peer takes the zone
# for the machine, and runs as its package starts it.
#
# These are the processes, each with what ends it::
#
#     lxcfs    in the peer's group, with a mount namespace of its own
#     init     in the zone: PID 1 of the namespace, with which everything in it ends
#     systemd  in the peer's group, if the peer asks systemd something: what answers it
#     peer     in the peer's group; its /run is a folder of the sandbox if it asks systemd something
#     nsenter  one waits for each program in the namespace, outside of all groups, and ends with it
#
# The keeper of the sandbox kills both groups if this process is killed.

# lxcfs shows a process the memory of the group that PID 1 of its namespace is in. It leaves out
# this last part of the group's name, so that PID 1 need not be in a group that has children.
_INIT_GROUP: Final = "init.scope"
_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.01

# lxcfs makes folders in /run; those of this one end with its mount namespace.
_SHOW: Final = 'mount -t tmpfs stallward /run && exec "$@"'
# Its children are reaped for it, and /run is the machine's again.
_INIT: Final = "umount /run; trap '' CHLD; exec \"$@\""
# Without much else to choose from, a peer might choose itself. Lowering the score is not permitted
# everywhere.
_SEE_ZONE: Final = (
    'mount --bind "$1" /proc/meminfo && mount --bind "$2" /proc/pressure/memory && '
    '{ [ -z "$3" ] || mount --bind "$3" /run; } && shift 3 && '
    '{ { echo -1000 >/proc/self/oom_score_adj; } 2>/dev/null; exec "$@"; }'
)


class RunningPeer:
    """A peer in its namespace, for one block: a context manager.

    Args:
        peer: The peer.
        sandbox: The sandbox.
        places: Where logs go.

    Raises:
        WorkloadError: On entry, if something that it needs is missing or cannot be started.
    """

    def __init__(self, peer: Peer, sandbox: Sandbox, places: Places) -> None:
        self._peer, self._sandbox, self._places = peer, sandbox, places
        self._init_group = sandbox.zone.child(_INIT_GROUP)
        self._view = sandbox.folder / "lxcfs"
        self._run = sandbox.folder / "systemd"
        self._programs: list[Program] = []
        self._init_pid = 0

    def __enter__(self) -> Self:
        """Start lxcfs, PID 1 and the peer."""
        missing = why_not(self._peer)
        if missing:
            raise WorkloadError(missing, next_step="Leave the peer out, or give it what it needs.")
        try:
            self._sandbox.peer.create()
            self._init_group.create()
            lxcfs_pid = self._start_lxcfs()
            self._init_pid = self._start_init(lxcfs_pid)
            self.program = self._start_peer()
        except WorkloadError as error:
            self._end()
            raise WorkloadError(
                error.cause, next_step="Leave the peer out, or see whether lxcfs runs here."
            ) from error
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End everything in the namespace, and lxcfs."""
        self._end()

    @property
    def enter(self) -> tuple[str, ...]:
        """The command that runs another one in its namespace: ``inside`` of ``launch.start``."""
        return (
            "nsenter", f"--target={self._init_pid}", "--pid", "--mount", f"--wdns={Path.cwd()}",
        )  # fmt: skip

    def count_ended(self) -> int:
        """How many processes it has ended, by its own log."""
        return self._peer.count_ended(self.program.log.read_text(errors="replace"))

    def _start_peer(self) -> Program:
        pressure = self._sandbox.zone.unified_dir
        run = ""
        if self._peer.asks_systemd:
            self._stand_in_for_systemd()
            run = str(self._run)
        shown = (f"{self._view}/proc/meminfo", f"{pressure}/memory.pressure", run)
        program = start(
            self._peer.name,
            Command(argv=self._command()),
            self._sandbox.peer,
            self._places,
            inside=(*self.enter, "unshare", "--mount", "sh", "-c", _SEE_ZONE, "sh", *shown),
        )
        self._programs.append(program)
        return program

    def _stand_in_for_systemd(self) -> None:
        """Have the peer told, as systemd would, to watch the zone and what to spare."""
        socket = self._run / MANAGED_SOCKET.relative_to("/run")
        # systemd-oomd listens in the second folder.
        for folder in (socket.parent, socket.parent / "oom"):
            folder.mkdir(parents=True, exist_ok=True)
        spare(*self._sandbox.applications, self._init_group)
        program = start(
            "systemd",
            Command(argv=service_argv(self._places.python, socket, self._sandbox.zone)),
            self._sandbox.peer,
            self._places,
            inside=self.enter,
        )
        self._programs.append(program)
        self._await(program, socket.exists)

    def _command(self) -> tuple[str, ...]:
        """The peer's command, once its configuration is written."""
        state = self._sandbox.folder / self._peer.name
        state.mkdir(exist_ok=True)
        config = state / "config"
        if self._peer.configure is not None:
            config.write_text(self._peer.configure(self._sandbox), encoding="utf-8")
        groups = str(self._sandbox.zone.hierarchy.unified_root)
        values = {"{config}": str(config), "{groups}": groups, "{state}": str(state)}
        return tuple(values.get(word, word) for word in self._peer.command)

    def _start_lxcfs(self) -> int:
        self._view.mkdir(exist_ok=True)
        argv = ["unshare", "--mount", "sh", "-c", _SHOW, "sh", "lxcfs", "--foreground"]
        if not self._sandbox.swap:  # lxcfs 5 takes the limit of memory and swap for swap
            argv.append("--disable-swap")
        pid_file = self._sandbox.folder / "lxcfs.pid"
        program = start(
            "lxcfs",
            Command(argv=(*argv, f"--pidfile={pid_file}", str(self._view))),
            self._sandbox.peer,
            self._places,
        )
        self._programs.append(program)
        root = self._sandbox.paths.proc / str(program.process.pid) / "root"
        shown = root / self._view.relative_to("/") / "proc/meminfo"
        self._await(program, shown.exists)
        return program.process.pid

    def _start_init(self, lxcfs_pid: int) -> int:
        program = start(
            "init",
            Command(argv=("sleep", "infinity")),
            self._init_group,
            self._places,
            inside=(
                "nsenter", f"--target={lxcfs_pid}", "--mount",
                "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
                "sh", "-c", _INIT, "sh",
            ),
        )  # fmt: skip
        self._programs.append(program)
        self._await(program, lambda: bool(self._init_group.pids()))
        return self._init_group.pids()[0]

    def _await(self, program: Program, condition: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + _TIMEOUT_S
        while not condition():
            program.check(may_end=False)
            if time.monotonic() > deadline_s:
                raise WorkloadError(f"{program.name} of the peer did not start in time.")
            time.sleep(_POLL_S)

    def _end(self) -> None:
        left = (*self._init_group.kill(), *self._sandbox.peer.kill())
        if left:
            raise SandboxError(f"Processes {list(left)} of the peer cannot be killed.")
        for program in self._programs:
            program.process.wait()
        # A killed program leaves its socket, which the next peer here would take for a live one.
        shutil.rmtree(self._run, ignore_errors=True)
