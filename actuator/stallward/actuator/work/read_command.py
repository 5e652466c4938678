"""Reading a counter from the output of a command."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Final

from stallward.actuator.errors import WorkError
from stallward.actuator.runtime.private_files import SAFE_PATH, changeable_by_others
from stallward.actuator.work.config import CommandWork
from stallward.actuator.work.read_file import MAX_BYTES, first_number
from stallward.agent.sample import WorkFault

_CHUNK_BYTES: Final = 1 << 14


class CommandReader:
    """Runs one command for each reading; what it writes last is the counter.

    Its environment has ``PATH`` and nothing else, and no shell reads its arguments.

    Args:
        work: The source.
    """

    def __init__(self, work: CommandWork) -> None:
        self._command, self._timeout_s = work.command, work.timeout_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def read(self) -> dict[str, float]:
        """Run the command, and return the counter.

        Raises:
            WorkError: If it cannot be run, fails, takes too long or writes no number.
        """
        deadline_s = time.monotonic() + self._timeout_s
        process = self._start()
        try:
            output = self._output(process, deadline_s)
            _await_end(process.pid, deadline_s)
        except TimeoutError as error:
            raise WorkError(
                f"took more than {self._timeout_s:g} s and was killed", fault=WorkFault.LATE
            ) from error
        finally:
            self._end(process)
        if process.returncode:
            raise WorkError(f"ended with status {process.returncode}", fault=WorkFault.FAILED)
        lines = output.decode("utf-8", "replace").split("\n")
        return {"": first_number(next((s for s in reversed(lines) if s.strip()), ""))}

    def _start(self) -> subprocess.Popen[bytes]:
        try:
            changeable = changeable_by_others(Path(self._command[0]))
            if changeable:
                raise WorkError(
                    f"is not run, because other users can change {changeable}",
                    fault=WorkFault.UNREADABLE,
                )
            with self._lock:
                if self._closed:
                    raise WorkError("is not run any more", fault=WorkFault.UNREADABLE)
                self._process = subprocess.Popen(
                    self._command,
                    env={"PATH": SAFE_PATH},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
                return self._process
        except OSError as error:
            absent = isinstance(error, FileNotFoundError)
            fault = WorkFault.ABSENT if absent else WorkFault.UNREADABLE
            raise WorkError(f"cannot be run ({error.strerror})", fault=fault) from error

    def _output(self, process: subprocess.Popen[bytes], deadline_s: float) -> bytes:
        """The end of what a command writes until it closes its output."""
        if process.stdout is None:
            return b""
        fd, output = process.stdout.fileno(), b""
        while True:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0.0 or not select.select([fd], [], [], left_s)[0]:
                raise TimeoutError
            chunk = os.read(fd, _CHUNK_BYTES)
            if not chunk:
                return output
            output = (output + chunk)[-MAX_BYTES:]

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Kill the command, if it still runs, and what it has started and left running."""
        self._kill(process)
        process.wait()
        with self._lock:
            self._process = None
        if process.stdout is not None:
            process.stdout.close()

    def close(self) -> None:
        """Kill the command that runs, and run no further one."""
        with self._lock:
            self._closed = True
            process = self._process
        if process is not None:
            self._kill(process)

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        # If only the command itself has ended, it keeps its number until it is waited for. Asking
        # for its status would do that, and what it has started would be left.
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # it has a session of its own


def _await_end(pid: int, deadline_s: float) -> None:
    """Wait until a command has ended, and leave its status, so that it keeps its number."""
    fd = os.pidfd_open(pid)
    try:
        if not select.select([fd], [], [], max(deadline_s - time.monotonic(), 0.0))[0]:
            raise TimeoutError
    finally:
        os.close(fd)
