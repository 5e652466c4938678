"""The programs that compete for memory in the sandbox of a kill campaign."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.kernel.scheduling import thread_ids
from stallward.actuator.runtime.process_start import interpreter
from stallward.benchmarks.errors import BenchError
from stallward.env.sandbox.sandbox import Sandbox

_MIB: Final = 1 << 20

_START_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.01

# A program that touches its memory for ever: a file mapped read-only, or anonymous pages. It may
# have threads besides that want a CPU all the time, and log how long each pass takes, in seconds.
_PROGRAM: Final = """
import mmap, sys, threading, time
size, pause_s, path, busy = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3], int(sys.argv[4])
log = open(sys.argv[5] or "/dev/null", "w", buffering=1)
def spin():
    while True:
        pass
for _ in range(busy):
    threading.Thread(target=spin, daemon=True).start()
if path:
    with open(path, "rb") as file:
        pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    while True:
        began_s = time.monotonic()
        for offset in range(0, size, 4096):
            pages[offset]
        print(time.monotonic() - began_s, file=log)
        time.sleep(pause_s)
pages = mmap.mmap(-1, size)
while True:
    for offset in range(0, size, 4096):
        pages[offset] = 1
    time.sleep(pause_s)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Program:
    """One program, and its group."""

    group: Cgroup
    size_mib: int
    pause_s: float
    path: str
    """The file that it maps; empty for anonymous pages."""
    busy_threads: int = 0
    """How many more threads it has, which want a CPU all the time."""
    log: str = ""
    """The file with a line for each pass over the memory, or empty."""


def latency_log(sandbox: Sandbox) -> Path:
    """The file in which the application logs its latencies, one a line, in seconds."""
    return sandbox.folder / "app.latencies"


class Programs:
    """The application and a program in each group of the background; a context manager.

    Args:
        sandbox: Where they run.
        busy_threads: How many threads of the application want a CPU all the time.
    """

    def __init__(self, sandbox: Sandbox, *, busy_threads: int = 0) -> None:
        self._sandbox = sandbox
        folder = sandbox.folder
        self._programs = (
            _Program(
                group=sandbox.protected,
                size_mib=24,
                pause_s=0.05,
                path=str(folder / "app.data"),
                busy_threads=busy_threads,
                log=str(latency_log(sandbox)),
            ),
            _Program(group=sandbox.slots[0], size_mib=80, pause_s=0.0, path=""),
            _Program(
                group=sandbox.slots[1], size_mib=60, pause_s=0.0, path=str(folder / "hog.data")
            ),
        )
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Programs:
        """Start them, and wait until they have their threads.

        Raises:
            BenchError: If a program does not start them.
        """
        try:
            for program in self._programs:
                if program.path:
                    _write_uncached(Path(program.path), program.size_mib)
                process = _start(program)
                self._running.append(process)
                program.group.add_pid(process.pid)
            for program, process in zip(self._programs, self._running, strict=True):
                self._await_threads(process.pid, 1 + program.busy_threads)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Kill them."""
        self._sandbox.kill()
        for process in self._running:
            process.kill()
            process.wait()

    def _await_threads(self, pid: int, threads: int) -> None:
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while len(thread_ids(self._sandbox.paths.proc, pid)) < threads:
            if time.monotonic() > deadline_s:
                raise BenchError(
                    f"Process {pid} has not started its {threads} threads in time.",
                    next_step="See whether the machine is busy with something else.",
                )
            time.sleep(_POLL_S)

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes, the application's first."""
        return tuple(process.pid for process in self._running)

    @property
    def application_runs(self) -> bool:
        """Whether the application has not been ended."""
        return self._running[0].poll() is None

    def started_again(self) -> dict[int, Cgroup]:
        """Start a program again for each of the background that has ended.

        Returns:
            The new processes, and the group into which the caller puts each. They are in none of
            the sandbox yet, so that their settings can be read before a daemon sees them.
        """
        started = {}
        for index, program in enumerate(self._programs):
            if index and self._running[index].poll() is not None:
                process = _start(program)
                self._running[index] = process
                started[process.pid] = program.group
        return started


def _start(program: _Program) -> subprocess.Popen[bytes]:
    size_bytes, threads = program.size_mib * _MIB, program.busy_threads
    arguments = (size_bytes, program.pause_s, program.path, threads, program.log)
    return subprocess.Popen([*interpreter(), "-c", _PROGRAM, *map(str, arguments)])


def _write_uncached(path: Path, size_mib: int) -> None:
    """Write a file and drop it from the cache, so that its first reader's group is charged."""
    with path.open("wb") as file:
        for _ in range(size_mib):
            file.write(bytes(_MIB))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
