"""A command that is started in order to be traced."""

from __future__ import annotations

import ctypes
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Sequence
from typing import Final

from stallward.lens.errors import LensError

_SET_PARENT_DEATH_SIGNAL: Final = 1
"""PR_SET_PDEATHSIG (linux/prctl.h)."""
_GRACE_S: Final = 5.0


class Command:
    """A running command with this process's input and output.

    It ends with this process, even if that is killed; what the command has started in turn then
    goes on unless the command sees to it.

    Args:
        words: The program and its arguments.

    Raises:
        LensError: If it cannot be started.
    """

    def __init__(self, words: Sequence[str]) -> None:
        prctl = ctypes.CDLL(None).prctl
        parent = os.getpid()

        def die_with_parent() -> None:
            prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
            if os.getppid() != parent:  # it was killed before the signal was asked for
                os._exit(1)

        try:
            self._process = subprocess.Popen(words, preexec_fn=die_with_parent)  # noqa: PLW1509 - there is one thread
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise LensError(
                f"{words[0]} cannot be started: {why}.",
                next_step="Give a program that is on PATH, or its path.",
            ) from error
        self.text = shlex.join(words)
        """The command as a shell would take it."""

    @property
    def pid(self) -> int:
        """The process of the command."""
        return self._process.pid

    def end(self, *, grace_s: float = 0.0, terminate: Callable[[], None] = lambda: None) -> int:
        """End the command if it is running; returns its exit code.

        Args:
            grace_s: How long it may still end by itself.
            terminate: Is called when it has not: asks what it has started to end, too.

        Returns:
            Its exit code, or 128 and the number of the signal that ended it.
        """
        try:
            if not self._ended_within(grace_s):
                terminate()
                self._process.terminate()
                self._ended_within(_GRACE_S)
        finally:  # also if somebody is impatient
            self._process.kill()
            code = self._process.wait()
        return code if code >= 0 else 128 - code

    def _ended_within(self, seconds: float) -> bool:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True
