"""The threads of the protected applications, each read at every tick that a controller asks."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from stallward.actuator.errors import SensorError
from stallward.actuator.kernel.files import ABSENT
from stallward.actuator.kernel.process_identity import stat_fields
from stallward.actuator.kernel.scheduling import thread_ids
from stallward.actuator.kernel.threads.timeslice import read_slice_us
from stallward.actuator.sensors.files.flat import parse_count
from stallward.actuator.sensors.files.process_files import parse_run_and_wait
from stallward.actuator.sensors.processes.members import Members
from stallward.agent.threads import ThreadSample

MOST_THREADS: Final = 128
"""The most threads that are read; a tick reads each of them, which takes about 35 us."""
_FILES: Final = ("stat", "schedstat", "status")
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC
_BYTES: Final = 4096
_SWITCHES: Final = re.compile(
    rb"\nvoluntary_ctxt_switches:\t(\d{1,18})\nnonvoluntary_ctxt_switches:\t(\d{1,18})\n"
)
_NICE: Final = 16
_START: Final = 19
_CPU: Final = 36
"""The places of these fields of stat, counted from the state."""


class ThreadFiles(NamedTuple):
    """What the files of one thread say; the names are those of :class:`ThreadSample`."""

    start_time_ticks: int
    state: str
    cpu: int
    nice: int
    run_us: int
    wait_us: int
    voluntary_switches: int
    involuntary_switches: int


def parse_thread(stat: bytes, schedstat: bytes, status: bytes, path: Path) -> ThreadFiles:
    """Parse the files of one thread.

    Args:
        stat: /proc/PID/task/TID/stat.
        schedstat: The same of schedstat.
        status: The same of status.
        path: The thread's directory, for errors.

    Raises:
        SensorError: If one of them is malformed or cut short.
    """
    fields = stat_fields(stat, path / "stat", SensorError)
    if len(fields) <= _CPU or not re.fullmatch(rb"-?\d{1,2}", fields[_NICE]):
        raise SensorError(path / "stat", f"not a thread's stat: {stat[:60]!r}")
    switches = _SWITCHES.search(status)
    if switches is None:
        raise SensorError(path / "status", f"counts no switches: {status[-60:]!r}")
    run_us, wait_us = parse_run_and_wait(schedstat, path / "schedstat")
    return ThreadFiles(
        start_time_ticks=parse_count(fields[_START], path / "stat"),
        state=fields[0].decode("ascii", "replace"),
        cpu=parse_count(fields[_CPU], path / "stat"),
        nice=int(fields[_NICE]),
        run_us=run_us,
        wait_us=wait_us,
        voluntary_switches=int(switches[1]),
        involuntary_switches=int(switches[2]),
    )


class _Thread:
    """One thread, whose files are kept open."""

    def __init__(self, proc: Path, application: int, pid: int, tid: int) -> None:
        self.application = application
        self.pid = pid
        self.tid = tid
        self._path = proc / str(pid) / "task" / str(tid)
        self._fds: list[int] = []
        try:
            for name in _FILES:
                self._fds.append(os.open(self._path / name, _FLAGS))
        except OSError:
            self.close()
            raise

    def read(self) -> ThreadSample:
        """Read the thread.

        Raises:
            SensorError: If a file cannot be understood.
            OSError: If the thread has ended, or cannot be read.
        """
        stat, schedstat, status = (os.pread(fd, _BYTES, 0) for fd in self._fds)
        found = parse_thread(stat, schedstat, status, self._path)
        return ThreadSample(
            pid=self.pid,
            tid=self.tid,
            application=self.application,
            slice_us=read_slice_us(self.tid),
            cpus=tuple(sorted(os.sched_getaffinity(self.tid))),
            **found._asdict(),
        )

    def close(self) -> None:
        """Close the files."""
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()


class ThreadReader:
    """Reads all threads of the protected applications.

    Args:
        members: Lists the processes of each.
        proc: The /proc directory.
    """

    def __init__(self, members: Sequence[Members], proc: Path) -> None:
        self.fault: SensorError | None = None
        """Why the last read has no threads, or lacks one; ``None`` if it lacks none."""
        self._members = members
        self._proc = proc
        self._threads: dict[tuple[int, int, int], _Thread] = {}

    def read(self) -> tuple[ThreadSample, ...] | None:
        """Read every thread, in the order of applications, processes and threads.

        Returns:
            The threads; ``None`` if they cannot be listed, or are more than
            :data:`MOST_THREADS`.
        """
        self.fault = None
        try:
            listed = [sorted(one.pids()) for one in self._members]
        except SensorError as error:
            self.fault = error
            return None
        known = [
            (number, pid, tid)
            for number, pids in enumerate(listed)
            for pid in pids
            for tid in thread_ids(self._proc, pid)
        ]
        if len(known) > MOST_THREADS:
            self.close_threads()
            self.fault = SensorError(
                self._proc,
                f"the protected applications have {len(known)} threads, of {MOST_THREADS} at most",
            )
            return None
        for gone in self._threads.keys() - set(known):
            self._threads.pop(gone).close()
        found = (self._read_one(*one) for one in known)
        return tuple(thread for thread in found if thread is not None)

    def _read_one(self, application: int, pid: int, tid: int) -> ThreadSample | None:
        key = (application, pid, tid)
        try:
            thread = self._threads.get(key)
            if thread is None:
                thread = self._threads[key] = _Thread(self._proc, *key)
            return thread.read()
        except SensorError as error:
            self.fault = error
        except OSError as error:
            if error.errno not in ABSENT:
                self.fault = SensorError(
                    self._proc / str(pid) / "task" / str(tid),
                    f"cannot read ({os.strerror(error.errno or 0)})",
                    number=error.errno or 0,
                )
        ended = self._threads.pop(key, None)
        if ended is not None:
            ended.close()
        return None

    def close_threads(self) -> None:
        """Close the files of all threads: nobody asks for them now."""
        for thread in self._threads.values():
            thread.close()
        self._threads.clear()

    def close(self) -> None:
        """Close every file."""
        self.close_threads()
        for one in self._members:
            one.close()
