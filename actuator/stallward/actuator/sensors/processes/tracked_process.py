"""One process that is read at many ticks, and never mistaken for another one."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError, SensorError
from stallward.actuator.kernel.files import ABSENT, read_bytes
from stallward.actuator.kernel.process_table import stat_fields
from stallward.actuator.sensors.files.cpu import IoBytes
from stallward.actuator.sensors.files.flat import parse_count, parse_partly, parse_single
from stallward.actuator.sensors.files.process_files import (
    ProcessStatus,
    parse_process_io,
    parse_schedstat,
    parse_status,
)
from stallward.agent.sample import ProcessSample

# ---------- Whether the kernel counts how long threads wait for a CPU
# /proc/PID/schedstat is there in any case. A kernel that does not count (without CONFIG_SCHEDSTATS,
# and with delay accounting off, which is the default) writes zeros into it.

NOTHING: Final = b"0 0 0\n"
"""The content of a thread that has never run, and of every thread where nothing is counted."""
NOT_COUNTED: Final = "this kernel counts no waiting for a CPU (boot with delayacct)"


@functools.cache
def is_counted(proc: Path) -> bool:
    """Whether run delays are counted: this process has run, so its own counters are not zeros."""
    try:
        return read_bytes(proc / "self" / "schedstat") != NOTHING
    except KernelFileError:
        return True


MAX_THREADS: Final = 256
"""The run delay of a process with more threads is absent."""
_NAMES: Final = ("status", "oom_score", "schedstat", "io", "task")
_OPTIONAL: Final = frozenset({"schedstat", "io", "task"})
"""Files that some kernels lack or only some users may read."""
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC
_BYTES: Final = 8192
_STOPPED: Final = frozenset({b"T", b"t"})
_DEAD: Final = frozenset({b"Z", b"X", b"x"})
_UNREAD: Final = ProcessStatus(state=b"X", threads=1)
_NO_IO: Final = IoBytes()


class EndedError(Exception):
    """The process has ended, or another process has its pid now."""


def _read(fd: int) -> bytes:
    """Read a whole file; the status of a process in a thousand groups is longer than a piece."""
    data = os.pread(fd, _BYTES, 0)
    while data and len(data) % _BYTES == 0:
        more = os.pread(fd, _BYTES, len(data))
        if not more:
            break
        data += more
    return data


class TrackedProcess:
    """One process.

    An open file of /proc/PID belongs to that process for good: once it has ended, reading fails,
    even if the pid is used again. Files that are not kept open are opened below one /proc/PID,
    whose start time is compared first.

    Args:
        proc: The /proc directory.
        pid: The process.
        slot: Its slot; -1 for the protected application.
        keep: Whether to keep its files open: a read then costs 20 us instead of 55.
    """

    __slots__ = (
        "_ended_us",
        "_fds",
        "_io_content",
        "_path",
        "_paths",
        "_status",
        "_status_content",
        "_thread_us",
        "fault",
        "io",
        "kept",
        "pid",
        "sample",
        "slot",
        "start_time_ticks",
        "threads",
    )

    def __init__(self, proc: Path, pid: int, slot: int, *, keep: bool) -> None:
        self.pid = pid
        self.slot = slot
        self.start_time_ticks = -1
        self.sample: ProcessSample | None = None
        """The last reading; ``None`` before the first."""
        self.io = _NO_IO
        """Bytes read and written so far."""
        self.fault: SensorError | None = None
        """What the last read could not understand; ``None`` if it understood everything."""
        self.threads = 1
        """How many threads the process had at the last read."""
        self._path = proc / str(pid)
        self.kept = keep
        """Whether the files are kept open."""
        self._fds: list[int] = []
        self._paths = tuple(self._path / name for name in _NAMES)
        self._status = _UNREAD
        self._status_content: bytes | None = None
        self._io_content: bytes | None = None
        self._thread_us: dict[str, int] = {}
        self._ended_us = 0

    def read(self, now_s: float, pss_bytes: int | None = None) -> None:
        """Read the process.

        Args:
            now_s: The time now (CLOCK_MONOTONIC).
            pss_bytes: Its proportional set size, where that was read.

        Raises:
            EndedError: If the process has ended.
        """
        self.fault = None
        try:
            if not self._fds:
                self._open()
            self._take(now_s, pss_bytes)
        except SensorError as error:
            self.fault = self.fault or error
        except OSError as error:
            if error.errno not in ABSENT:
                self.close()  # whatever is wrong with them, they are opened again
                self.fault = SensorError(
                    error.filename or self._path,
                    f"cannot read ({os.strerror(error.errno or 0)})",
                    number=error.errno or 0,
                )
            else:
                raise EndedError from error
        finally:
            if not self.kept:
                self.close()

    def _open(self) -> None:
        folder = os.open(self._path, _FLAGS | os.O_DIRECTORY)
        try:
            stat = os.open("stat", _FLAGS, dir_fd=folder)
            try:
                fields = stat_fields(_read(stat), self._path / "stat", SensorError)
            finally:
                os.close(stat)
            ticks = parse_count(fields[19], self._path / "stat")
            if self.start_time_ticks not in {-1, ticks}:
                raise EndedError
            self.start_time_ticks = ticks
            for name in _NAMES:
                self._fds.append(self._open_below(folder, name))
        except OSError:
            self.close()
            raise
        finally:
            os.close(folder)

    def _open_below(self, folder: int, name: str) -> int:
        """Open a file; returns its descriptor, or -1 for an optional file that is missing."""
        try:
            return os.open(name, _FLAGS, dir_fd=folder)
        except OSError:
            if name in _OPTIONAL:
                return -1
            raise

    def _take(self, now_s: float, pss_bytes: int | None) -> None:
        status_fd, score_fd, sched_fd, io_fd, task_fd = self._fds
        content = _read(status_fd)
        if content != self._status_content:  # it does not change while a process sleeps
            self._status_content = None
            status, fault = parse_partly(parse_status, content, self._paths[0])
            if status is None:
                raise fault or SensorError(self._paths[0], "not a process's status")
            self._status = status
            self._status_content = content if self.kept and fault is None else None
            self.fault = fault
        status = self._status
        if status.state in _DEAD:
            raise EndedError
        score = parse_single(_read(score_fd), self._paths[1])
        if score is None:
            raise SensorError(self._paths[1], "not a score: 'max'")
        self.threads = status.threads or 1
        if io_fd >= 0:
            self._take_io(_read(io_fd))
        self.sample = ProcessSample(
            pid=self.pid,
            start_time_ticks=self.start_time_ticks,
            slot=self.slot,
            oom_score=score,
            stopped=status.state in _STOPPED,
            rss_bytes=status.rss_bytes,
            pss_bytes=pss_bytes,
            anon_bytes=status.anon_bytes,
            file_bytes=status.file_bytes,
            swap_bytes=status.swap_bytes,
            run_delay_us=None if status.threads is None else self._delay_us(sched_fd, task_fd),
            read_s=now_s,
        )

    def _take_io(self, content: bytes) -> None:
        if content == self._io_content:
            return
        io, fault = parse_partly(parse_process_io, content, self._paths[3])
        self.io = io or _NO_IO
        self._io_content = content if fault is None else None
        self.fault = self.fault or fault

    def _delay_us(self, sched_fd: int, task_fd: int) -> int | None:
        """The run delay of all threads; ``None``, and a fault, if a file is malformed."""
        try:
            return self._run_delay_us(sched_fd, task_fd)
        except SensorError as error:
            self.fault = self.fault or error
            return None

    def _run_delay_us(self, sched_fd: int, task_fd: int) -> int | None:
        """The run delay of all threads, including ended ones; ``None`` if unknown."""
        if sched_fd < 0 or self.threads > MAX_THREADS or (self.threads > 1 and task_fd < 0):
            return None
        content = _read(sched_fd)
        if content == NOTHING and not is_counted(self._path.parent):
            return None
        first_us = parse_schedstat(content, self._paths[2])
        if self.threads == 1 and not self._thread_us:
            return first_us
        first = str(self.pid)
        delays_us = {first: first_us, **self._further_threads_us(first, task_fd)}
        for name, delay_us in self._thread_us.items():
            if name not in delays_us:
                self._ended_us += delay_us
        self._thread_us = delays_us
        return self._ended_us + sum(delays_us.values())

    def _further_threads_us(self, first: str, task_fd: int) -> dict[str, int]:
        """Read the run delay of each thread but the first, whose schedstat is the process's."""
        delays_us: dict[str, int] = {}
        for name in os.listdir(task_fd):
            if name == first:
                continue
            try:
                fd = os.open(f"{name}/schedstat", _FLAGS, dir_fd=task_fd)
            except OSError:
                continue  # it has just ended
            try:
                delays_us[name] = parse_schedstat(_read(fd), self._paths[4])
            except ProcessLookupError:
                continue
            finally:
                os.close(fd)
        return delays_us

    def close(self) -> None:
        """Close the files; the next turn opens them again."""
        for fd in self._fds:
            if fd >= 0:
                os.close(fd)
        self._fds = []
