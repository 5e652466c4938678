"""Runs a command on its own terminal for a bounded time, and ends all its processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

UNTIL_ITS_PARENT_ENDS: Final = ("setpriv", "--pdeathsig", "KILL")
"""The start of a command that is killed with whoever has started it."""


def end_on_sigterm() -> None:
    """Let SIGTERM unwind the stack, as Ctrl-C does."""

    def unwind(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, unwind)


@contextlib.contextmanager
def postponed() -> Iterator[None]:
    """Let SIGINT and SIGTERM take effect only at the end of this context.

    An interrupt between the start of a process and what will end it would leave it running.
    """
    came: list[int] = []
    with contextlib.ExitStack() as stack:
        for number in (signal.SIGINT, signal.SIGTERM):
            before = signal.signal(number, lambda arrived, _frame: came.append(arrived))
            stack.callback(signal.signal, number, before)
        yield
    for arrived in came:
        signal.raise_signal(arrived)


class Follower:
    """Copies what is appended to a file to standard output."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def copy(self) -> None:
        """Copy what was appended since the last call."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        self._offset += len(data)
        sys.stdout.write(data.decode("utf-8", "replace"))
        sys.stdout.flush()


def run_bounded(
    command: Sequence[str], *, console: Path, follow: Path, env: dict[str, str], limit_s: float
) -> bool:
    """Run ``command`` on its own terminal, and kill all its processes after ``limit_s``.

    Args:
        command: The command; virtme-ng needs a terminal.
        console: The file for the output of the terminal.
        follow: A file that is copied to standard output while it grows.
        env: The environment.
        limit_s: The longest time that it may run.

    Returns:
        Whether it ended by itself.
    """
    ours, theirs = os.openpty()
    os.set_blocking(ours, False)
    follower = Follower(follow)
    deadline_s = time.monotonic() + limit_s
    # It bounds a command that outlives this process, too.
    bounded = ["timeout", "--kill-after=5", str(limit_s + 10), *command]
    if shutil.which(UNTIL_ITS_PARENT_ENDS[0]):
        bounded = [*UNTIL_ITS_PARENT_ENDS, *bounded]
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(console.open("wb"))

        def finish() -> None:
            kill_session(process)
            log.write(_read_all(ours))
            os.close(ours)
            follower.copy()

        with postponed():
            process = subprocess.Popen(
                bounded,
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                env=env,
                start_new_session=True,
            )
            stack.callback(finish)
        os.close(theirs)
        while process.poll() is None and time.monotonic() < deadline_s:
            time.sleep(0.1)
            log.write(_read_all(ours))
            follower.copy()
        return process.poll() is not None


def _read_all(fd: int) -> bytes:
    data = b""
    while True:
        try:
            piece = os.read(fd, 65536)
        except OSError:  # there is no more output, or the other end is closed
            return data
        if not piece:
            return data
        data += piece


def kill_session(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """End a process and all others of its session, such as qemu."""
    for number, wait_s in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 3.0)):
        members = _session(process.pid)
        for pid in members:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
        deadline_s = time.monotonic() + wait_s
        while _session(process.pid) and time.monotonic() < deadline_s:
            process.poll()
            time.sleep(0.02)
    process.wait()


def _session(session: int) -> list[int]:
    """Return the processes of a session that have not ended."""
    members = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            members.append(int(entry.name))
    return members
