"""Runs a peer where it sees the background of a sandbox, and nothing else.

A peer looks at /proc, and may end whatever it finds there. So the background programs of its block
run in a PID namespace, and the peer runs in it, too. It can neither see nor signal any other
process, whatever its options are. In its mount namespace /proc/meminfo is that of the zone, which
lxcfs shows, and /proc/pressure/memory is the zone's memory.pressure. So the peer takes the zone
for the machine, and runs as its package starts it.

These are the processes, each with what ends it::

    lxcfs    in the peer's group, with a mount namespace of its own
    init     in the zone: PID 1 of the namespace, with which everything in it ends
    systemd  in the peer's group, if the peer asks systemd something: what answers it
    peer     in the peer's group; its /run is a folder of the sandbox if it asks systemd something
    nsenter  one waits for each program in the namespace, outside of all groups, and ends with it

The keeper of the sandbox kills both groups if this process is killed.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from stallward.env.errors import SandboxError, WorkloadError
from stallward.env.sandbox.launch import Program, start
from stallward.env.sandbox.peers.managed_groups import MANAGED_SOCKET, service_argv, spare
from stallward.env.sandbox.peers.programs import Peer, why_not
from stallward.env.sandbox.sandbox import Sandbox
from stallward.env.scenario.scenario import Command, Places

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
