"""One process that is read again and again, and never mistaken for another one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from stallward.actuator.errors import SensorError
from stallward.actuator.kernel.files import ABSENT
from stallward.actuator.kernel.process_identity import stat_fields
from stallward.actuator.sensors.files.flat import parse_count, parse_single
from stallward.actuator.sensors.files.io_stat import IoBytes
from stallward.actuator.sensors.files.process_files import (
    ProcessStatus,
    parse_process_io,
    parse_schedstat,
    parse_status,
)
from stallward.agent.sample import ProcessSample

MAX_THREADS: Final = 256
"""The run delay of a process with more threads is absent."""
_NAMES: Final = ("status", "oom_score", "schedstat", "io", "task")
_OPTIONAL: Final = frozenset({"schedstat", "io", "task"})
"""Not in every kernel, or not for every user."""
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC
_BYTES: Final = 8192
_STOPPED: Final = frozenset({b"T", b"t"})
_DEAD: Final = frozenset({b"Z", b"X", b"x"})
_UNREAD: Final = ProcessStatus(state=b"X", threads=1)


class EndedError(Exception):
    """The process has ended, or its pid is another one's now."""


def _read(fd: int) -> bytes:
    return os.pread(fd, _BYTES, 0)


class TrackedProcess:
    """One process.

    An open file of /proc/PID belongs to that process for good: once it has ended, reading fails,
    whoever gets its pid. Files that are not kept open are opened below one /proc/PID, whose
    start time is compared first.

    Args:
        proc: Where /proc is.
        pid: The process.
        slot: Its slot; -1 for the protected application.
        keep: Whether to keep its files open: a turn costs 20 us instead of 55.

    Attributes:
        sample: What was read last; ``None`` before the first turn.
        io: Bytes read and written so far; ``None`` where that is not known.
        fault: What could not be understood in the last turn.
        kept: Whether its files are kept open.
        threads: How many it had in the last turn.
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
        self.io: IoBytes | None = None
        self.fault: SensorError | None = None
        self.threads = 1
        self._path = proc / str(pid)
        self.kept = keep
        self._fds: list[int] = []
        self._paths = tuple(self._path / name for name in _NAMES)
        self._status = _UNREAD
        self._status_content: bytes | None = None
        self._io_content: bytes | None = None
        self._thread_us: dict[str, int] = {}
        self._ended_us = 0

    def read(self, now_s: float, pss_bytes: int | None = None) -> None:
        """Take a turn.

        Args:
            now_s: CLOCK_MONOTONIC.
            pss_bytes: Its proportional share, where somebody has read that.

        Raises:
            EndedError: If it has ended.
        """
        self.fault = None
        try:
            if not self._fds:
                self._open()
            self._take(now_s, pss_bytes)
        except SensorError as error:
            self.fault = error
        except OSError as error:
            if error.errno not in ABSENT:
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
        """A descriptor, or -1 for an optional file that is not there."""
        try:
            return os.open(name, _FLAGS, dir_fd=folder)
        except OSError:
            if name in _OPTIONAL:
                return -1
            raise

    def _take(self, now_s: float, pss_bytes: int | None) -> None:
        status_fd, score_fd, sched_fd, io_fd, task_fd = self._fds
        content = _read(status_fd)
        if content != self._status_content:  # that of a sleeping process stays as it is
            self._status_content = None
            self._status = parse_status(content, self._paths[0])
            self._status_content = content if self.kept else None
        status = self._status
        if status.state in _DEAD:
            raise EndedError
        score = parse_single(_read(score_fd), self._paths[1])
        if score is None:
            raise SensorError(self._paths[1], "not a score: 'max'")
        self.threads = status.threads
        if io_fd >= 0:
            content = _read(io_fd)
            if content != self._io_content:
                self._io_content = None
                self.io = parse_process_io(content, self._paths[3])
                self._io_content = content
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
            run_delay_us=self._run_delay_us(sched_fd, task_fd),
            read_s=now_s,
        )

    def _run_delay_us(self, sched_fd: int, task_fd: int) -> int | None:
        """Of all its threads, also of those that have ended; ``None`` where it is not known."""
        if sched_fd < 0 or self.threads > MAX_THREADS or (self.threads > 1 and task_fd < 0):
            return None
        first_us = parse_schedstat(_read(sched_fd), self._paths[2])
        if self.threads == 1 and not self._thread_us:
            return first_us
        me = str(self.pid)
        found = {me: first_us, **self._further_threads_us(me, task_fd)}
        for name, delay_us in self._thread_us.items():
            if name not in found:
                self._ended_us += delay_us
        self._thread_us = found
        return self._ended_us + sum(found.values())

    def _further_threads_us(self, me: str, task_fd: int) -> dict[str, int]:
        """The schedstat of each thread: that of the process is only its first one's."""
        found: dict[str, int] = {}
        for name in os.listdir(task_fd):
            if name == me:
                continue
            try:
                fd = os.open(f"{name}/schedstat", _FLAGS, dir_fd=task_fd)
            except OSError:
                continue  # it has just ended
            try:
                found[name] = parse_schedstat(_read(fd), self._paths[4])
            except ProcessLookupError:
                continue
            finally:
                os.close(fd)
        return found

    def close(self) -> None:
        """Close the files; the next turn opens them again."""
        for fd in self._fds:
            if fd >= 0:
                os.close(fd)
        self._fds = []
