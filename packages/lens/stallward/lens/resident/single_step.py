"""Runs a program instruction by instruction, and looks at its pages in between.

So did Valext (Birkbeck 2011, appendix B), after every instruction. The program runs some ten
thousand times more slowly than by itself: this is for small ones. Only its first thread is
stepped; further threads and processes that it starts run freely.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from stallward.actuator.errors import ProcessEndedError, ProcessError
from stallward.env.errors import WorkloadError
from stallward.lens.page_tables import ProcessPages
from stallward.lens.resident.series import EndedBy, Look, ResidentSeries, SeriesBuilder

_TRACEME: Final = 0
_SINGLESTEP: Final = 9
_SETOPTIONS: Final = 0x4200
_EXITKILL: Final = 0x10_0000
"""The program ends with this process, whatever ends it."""
_TRACEEXEC: Final = 0x10
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_LIBC.ptrace.restype = ctypes.c_long


def step_through(
    proc: Path,
    command: Sequence[str],
    *,
    instructions: int,
    most_s: float | None = None,
    report: Callable[[Look], None] = lambda _look: None,
) -> ResidentSeries:
    """Run a program by single steps until it ends, or Ctrl-C.

    Args:
        proc: The /proc directory, of this machine: the program is started here.
        command: The program and its arguments.
        instructions: How many instructions there are between two looks.
        most_s: The program is killed after so many seconds; ``None`` for never.
        report: Called with every look.

    Raises:
        WorkloadError: If the program cannot be started, or not be traced.
        ProcessError: If nothing could be read.
    """
    process = _start(command)
    pid = process.pid
    builder = SeriesBuilder()
    ended_by: EndedBy = "process"
    error: ProcessError | None = None
    pages: ProcessPages | None = None
    done = 0
    begin_s = time.monotonic()
    try:
        _wait(process)  # it has become the program, and has run no instruction of it
        _call(_SETOPTIONS, pid, _EXITKILL | _TRACEEXEC)
        pages = ProcessPages(proc, pid)
        report(builder.add(pages.read(), 0.0, None))
        passed_on = 0
        while True:
            for _ in range(instructions):
                _call(_SINGLESTEP, pid, passed_on)
                number = _wait(process)
                if number is None:
                    break
                passed_on = 0 if number == signal.SIGTRAP else number
                done += 1
            if process.returncode is not None:
                break
            report(builder.add(pages.read(), float(done), None))
            if most_s is not None and time.monotonic() - begin_s >= most_s:
                ended_by = "time"
                break
    except KeyboardInterrupt:
        ended_by = "interrupt"
    except ProcessEndedError:
        pass  # killed by somebody else in the middle of a look
    except ProcessError as found:
        ended_by, error = "error", found
    finally:
        if process.returncode is None:
            process.kill()
            process.wait()
    return builder.series(
        pid=pid,
        clock="instructions",
        method="scan" if pages is None else pages.method,
        every=float(instructions),
        ended_by=ended_by,
        error=error,
    )


def _start(command: Sequence[str]) -> subprocess.Popen[bytes]:
    def ask_for_it() -> None:
        if _LIBC.ptrace(_TRACEME, 0, None, None) != 0:
            raise OSError(ctypes.get_errno(), "ptrace")

    try:
        return subprocess.Popen(list(command), stdout=2, preexec_fn=ask_for_it)  # noqa: PLW1509
    except OSError as error:
        raise WorkloadError(
            f"{command[0]} cannot be started: {error.strerror}.",
            next_step="Check the command; it is looked up as a shell would.",
        ) from error
    except subprocess.SubprocessError as error:
        raise WorkloadError(
            "This system does not let a program be traced (ptrace).",
            next_step="Leave out --step, or allow ptrace in this container.",
        ) from error


def _wait(process: subprocess.Popen[bytes]) -> int | None:
    """Wait for the program to stop; returns the signal that stopped it, ``None`` if it ended."""
    _, status = os.waitpid(process.pid, 0)
    if os.WIFSTOPPED(status):
        return os.WSTOPSIG(status)
    process.returncode = os.waitstatus_to_exitcode(status)
    return None


def _call(request: int, pid: int, data: int) -> None:
    if _LIBC.ptrace(request, pid, None, data) != 0:
        number = ctypes.get_errno()
        raise ProcessEndedError(f"Process {pid} is no longer traced: {os.strerror(number)}.")
