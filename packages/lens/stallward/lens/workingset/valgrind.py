"""Starting a program under Valgrind's Lackey, and reading what it writes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from stallward.lens.errors import TraceError
from stallward.lens.workingset.lackey import ReadInto

_PIPE_BYTES: Final = 1 << 20
_END_S: Final = 10.0


@contextmanager
def traced_program(command: Sequence[str], *, valgrind: str = "valgrind") -> Iterator[ReadInto]:
    """Run a program under Lackey, and read its trace.

    What the program writes to stdout goes to stderr. Only the program itself is traced, not those
    that it starts. If the block ends early, the program is killed.

    Args:
        command: The program and its arguments.
        valgrind: The program that traces.

    Raises:
        TraceError: If Valgrind cannot be started; from reading, if it cannot run the program.
    """
    reading, writing = os.pipe()
    with contextlib.suppress(OSError):  # a user may have too many large pipes
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    tool = ("--tool=lackey", "--trace-mem=yes", "--basic-counts=no", f"--log-fd={writing}")
    one = "--child-silent-after-fork=yes"  # a fork would write its references among the others
    with os.fdopen(reading, "rb", buffering=0) as trace:
        try:
            process = subprocess.Popen(
                [valgrind, *tool, one, "--", *command], pass_fds=(writing,), stdout=2
            )
        except OSError as error:
            raise TraceError(
                f"{valgrind} cannot be started: {error.strerror}.",
                next_step="Install it (as root: apt-get install valgrind), or give --trace a file "
                "that it wrote elsewhere.",
            ) from error
        finally:
            os.close(writing)
        begun = False

        def read_into(buffer: memoryview) -> int:
            nonlocal begun
            count = trace.readinto(buffer) or 0
            if not count and not begun:
                raise TraceError(
                    f"Valgrind could not run {command[0]} (exit code {process.wait(_END_S)}).",
                    next_step="Check the command; it is looked up as a shell would.",
                )
            begun = True
            return count

        try:
            yield read_into
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
