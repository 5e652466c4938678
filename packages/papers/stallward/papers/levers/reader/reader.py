"""Asks for pages, and marks them as used, from within the group that has to pay for them.

Pages of a file that are read in are charged to the group of the process that asks for them,
whoever maps the file. (Pages in swap are not: they go back to the group that they were swapped out
of.) Marking a page as used reads it in if it leaves the cache at that moment. So a small process of the daemon is moved into the victim's memory group for the time of a
request, and back. :mod:`stallward.papers.levers.reader.reader_process` is its side.

On a hybrid node it enters the memory hierarchy only, where nothing is frozen. With cgroup v2 it is
frozen and killed together with the group while it is in it: it holds nothing then, and one that
does not answer is killed and replaced. The memory that it needs itself stays with the daemon's
group, in which it was started.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.errors import LeverError
from stallward.actuator.kernel.cgroups import PROCS, Hierarchy
from stallward.actuator.kernel.files import read_text, write_text
from stallward.actuator.levers.base.worker import Superseded
from stallward.actuator.runtime.process_start import command_line
from stallward.agent.errors import StallwardError
from stallward.papers.levers.reader.memory_groups import memory_folder
from stallward.papers.levers.reader.reader_process import (
    ANSWER,
    HEAD,
    MARK_USED,
    MESSAGE_BYTES,
    RANGE,
    READY,
    ReaderOptions,
)

_MODULE: Final = "stallward.papers.levers.reader.reader_process"
_START_S: Final = 10.0
"""How long Python may take to start under pressure."""
_ANSWER_S: Final = 5.0
"""How long one call may take: memory.high makes who exceeds it sleep for up to 2 s."""
_SUPERSEDED_S: Final = 0.5
"""How long it is still waited for when something else is wanted; starting another costs more."""
_END_S: Final = 1.0
_STEP_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Inside:
    """The calls that a reader makes for one request.

    Args:
        ask: Sends a call and receives its answer.
        superseded: Whether something else is wanted by now.
    """

    ask: Callable[[Superseded, int, int, list[tuple[int, int]]], int]
    superseded: Superseded

    def advise(self, pidfd: int, ranges: list[tuple[int, int]], advice: int) -> int:
        """Call :func:`~stallward.actuator.kernel.memory.mappings.process_madvise`.

        Raises:
            OSError: With the kernel's error.
            LeverError: If the reader does not answer, or was killed.
        """
        return self.ask(self.superseded, pidfd, advice, ranges)

    def mark(self, fd: int, offset_bytes: int, length_bytes: int) -> int:
        """Call :meth:`~stallward.papers.levers.mark_used.Marker.mark_used`.

        Raises:
            OSError: With the kernel's error.
            LeverError: If the reader does not answer, or was killed.
        """
        return self.ask(self.superseded, fd, MARK_USED, [(offset_bytes, length_bytes)])


class Reader:
    """The daemon's side; the process is started by the first request. For one thread at a time.

    Args:
        hierarchy: The node's cgroup hierarchies.
        proc: The /proc directory.
    """

    def __init__(self, hierarchy: Hierarchy, proc: Path) -> None:
        self._hierarchy = hierarchy
        self._proc = proc
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._ended: list[subprocess.Popen[bytes]] = []
        """Processes that were killed and have not been seen to end."""

    @property
    def pid(self) -> int | None:
        """The process, where there is one."""
        return None if self._process is None else self._process.pid

    @contextlib.contextmanager
    def within(self, pid: int, superseded: Superseded, *, reads: bool = True) -> Iterator[Inside]:
        """Give calls that charge what they read in to the memory group of ``pid``.

        Args:
            pid: The process whose pages are meant.
            superseded: Whether something else is wanted by now.
            reads: Whether pages are to be read in. If not, a group that is paused is not entered.

        Raises:
            ProcessLookupError: If the process has ended.
            LeverError: If pages are to be read in for a group that is paused, or the reader does
                not start or answer.
            GroupError: If the group of the process, or of the daemon, is not found.
            KernelFileError: If the reader cannot be moved.
        """
        folder = memory_folder(self._proc, pid, self._hierarchy)
        home = memory_folder(self._proc, os.getpid(), self._hierarchy)
        if folder is not None and _is_paused(folder):
            if reads:
                raise LeverError(f"File pages are not read in while {folder.name} is paused.")
            folder = home
        reader = self._started(superseded)
        calls = Inside(self._ask, superseded)
        if folder is None or home is None or folder == home:
            yield calls
            return
        try:
            write_text(folder / PROCS, str(reader.pid))
            yield calls
        finally:
            self._leave(home)

    def close(self) -> None:
        """End the process."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._end()

    def _started(self, superseded: Superseded) -> subprocess.Popen[bytes]:
        self._reap()
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.close()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        options = ReaderOptions(fd=theirs.fileno(), parent_pid=os.getpid())
        try:
            process = subprocess.Popen(
                command_line(_MODULE, options),
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
            )
        except OSError as error:
            ours.close()
            raise LeverError(f"The reader cannot be started ({error.strerror}).") from error
        finally:
            theirs.close()
        self._hierarchy.guests.add(process.pid)
        self._process, self._connection = process, ours
        if self._receive(_START_S, superseded) != READY:
            self.close()
            raise LeverError("The reader ended before it was ready.")
        return process

    def _ask(
        self, superseded: Superseded, fd: int, call: int, ranges: list[tuple[int, int]]
    ) -> int:
        message = HEAD.pack(call) + b"".join(RANGE.pack(*one) for one in ranges)
        try:
            if self._connection is None:
                raise BrokenPipeError
            socket.send_fds(self._connection, [message], [fd])
            answer = self._receive(_ANSWER_S, superseded)
        except ConnectionError:
            answer = b""
        if len(answer) != ANSWER.size:
            self.close()
            raise LeverError("The reader was killed while it used pages.")
        done, number = ANSWER.unpack(answer)
        if number:
            raise OSError(number, os.strerror(number))
        return int(done)

    def _receive(self, timeout_s: float, superseded: Superseded) -> bytes:
        """Receive one message; kill a reader that takes too long."""
        assert self._connection is not None
        deadline_s = time.monotonic() + timeout_s
        poller = select.poll()
        poller.register(self._connection, select.POLLIN)
        while not poller.poll(_STEP_S * 1e3):
            now_s = time.monotonic()
            if superseded():
                deadline_s = min(deadline_s, now_s + _SUPERSEDED_S)
            if now_s >= deadline_s:
                self.close()
                raise LeverError("The reader did not answer in time, and was killed.")
        try:
            return self._connection.recv(MESSAGE_BYTES)
        except ConnectionError:
            return b""

    def _leave(self, home: Path) -> None:
        """Move the reader back; it ends if it cannot be moved."""
        if self._process is None:
            return
        try:
            write_text(home / PROCS, str(self._process.pid))
        except StallwardError:
            self.close()

    def _end(self) -> None:
        """Kill the process; one that the kernel holds ends later."""
        if self._process is None:
            return
        process, self._process = self._process, None
        process.kill()
        self._ended.append(process)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
        self._reap()

    def _reap(self) -> None:
        left = []
        for process in self._ended:
            if process.poll() is None:
                left.append(process)
            else:
                self._hierarchy.guests.remove(process.pid)
        self._ended = left


def _is_paused(folder: Path) -> bool:
    """Whether nothing runs in a group; one of v1 has neither file."""
    frozen = "frozen 1" in (read_text(folder / "cgroup.events") or "").splitlines()
    return frozen or read_text(folder / "cgroup.freeze") == "1"
