"""Starts programs in groups, and ends them."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from stallward.actuator.kernel.cgroups import Cgroup
from stallward.env.errors import WorkloadError
from stallward.env.scenario.scenario import Command, Places, expand_command

# The shell enters the groups and then becomes the program. So no page of the program is charged to
# another group, and no Python code runs between fork and exec. Each program has its own session.
# Linux may share the CPU between sessions and regard niceness only within each of them (sched(7),
# "The autogroup feature"), so the shell gives its session the niceness of the program.
_ENTER = (
    "n=/proc/$$/autogroup; "
    'if [ "$1" -gt 0 ] && [ -e $n ]; then echo "$1" >$n || exit 98; fi; shift; '
    'while [ "$1" != -- ]; do echo $$ >"$1" || exit 97; shift; done; shift; exec "$@"'
)
_LOG_TAIL_BYTES = 800


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Program:
    """A started program."""

    name: str
    """Its name, for messages."""
    process: subprocess.Popen[bytes]
    """Its process."""
    log: Path
    """The file with its output."""

    def check(self, *, may_end: bool) -> None:
        """Check that the program has not failed.

        Args:
            may_end: Whether success or death by a signal is no failure.

        Raises:
            WorkloadError: If it has failed; the error quotes the end of its output.
        """
        status = self.process.poll()
        if status is None or (may_end and status <= 0):
            return
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        wrote = self.log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace").strip()
        raise WorkloadError(
            f"{self.name} {how} too early. It wrote: {(wrote or 'nothing').rstrip('.')}.",
            next_step="Check its command in the scenario.",
        )

    def end(self, *, timeout_s: float) -> None:
        """Terminate the program, and kill it if it is still there after ``timeout_s``."""
        self.process.terminate()
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start(
    name: str,
    command: Command,
    group: Cgroup,
    places: Places,
    further_dirs: tuple[Path, ...] = (),
    inside: tuple[str, ...] = (),
) -> Program:
    """Start ``command`` inside ``group`` and the groups of ``further_dirs``.

    ``inside`` is a command that runs another one, to which it comes before the groups are entered,
    e.g. ``nsenter``.

    Its output goes to ``{run}/NAME.log``, which is in memory, so that the program does not stall
    on its log while the disk is busy.

    Raises:
        WorkloadError: If the program cannot be started.
    """
    argv = expand_command(command.argv, places)
    if command.nice:
        argv = ["nice", "-n", str(command.nice), *argv]
    if command.cpus is not None:
        argv = ["taskset", "-c", command.cpus, *argv]
    entries = [str(folder / "cgroup.procs") for folder in (*group.member_dirs, *further_dirs)]
    log = places.run / f"{name}.log"
    try:
        with log.open("ab") as output:
            process = subprocess.Popen(
                [*inside, "sh", "-c", _ENTER, "sh", str(command.nice), *entries, "--", *argv],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
                start_new_session=True,  # Ctrl-C must reach this process only; it kills the groups
            )
    except OSError as error:
        raise WorkloadError(f"Cannot start {argv[0]}: {error.strerror or error}.") from error
    return Program(name=name, process=process, log=log)


def is_ready(path: Path) -> bool:
    """Whether ``path`` is there, and accepts connections if it is a socket.

    A server makes its socket before it listens at it.
    """
    if not path.is_socket():
        return path.exists()
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:  # one that takes no connections, as for datagrams
            return True
    return True


def wait_for(path: Path, program: Program, *, timeout_s: float) -> None:
    """Wait until ``program`` has made ``path``, and listens if that is a socket.

    Raises:
        WorkloadError: If the program ends first, or takes longer than ``timeout_s``.
    """
    deadline_s = time.monotonic() + timeout_s
    while not is_ready(path):
        program.check(may_end=False)
        if time.monotonic() > deadline_s:
            raise WorkloadError(
                f"{program.name} did not make {path} within {timeout_s:g} s.",
                next_step="Check protected.ready of the scenario, or give it more memory.",
            )
        time.sleep(0.02)
