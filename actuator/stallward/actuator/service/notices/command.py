"""Running a command of the operator's for each notice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from stallward.actuator.runtime.stderr_line import say
from stallward.actuator.runtime.trusted_program import SAFE_PATH, changeable_by_others
from stallward.actuator.service.notices.changes import Notice

TIMEOUT_S: Final = 10.0
"""A command that takes longer is killed."""
MOST_WAITING: Final = 16
"""More notices than this do not wait for a slow command: the oldest is lost."""


class NoticeCommand:
    """Runs one command for each notice, one after the other.

    The notice is in the command's environment, in the variables of :meth:`Notice.fields` and
    ``STALLWARD_MESSAGE``; nothing else is, but ``PATH``. No shell reads any of it.

    Args:
        command: The program and its arguments.
        timeout_s: How long it may take.
    """

    def __init__(self, command: Sequence[str], timeout_s: float = TIMEOUT_S) -> None:
        self._command = tuple(command)
        self._timeout_s = timeout_s
        self._waiting: deque[Notice] = deque(maxlen=MOST_WAITING)
        self._more = asyncio.Event()
        self.lost = 0
        """How many notices were lost because the command was too slow."""
        self._failed = ""

    @property
    def problem(self) -> str:
        """What is wrong with the command; empty if nothing is."""
        if self._failed:
            return self._failed
        return f"{self.lost} notices were lost behind a slow command" if self.lost else ""

    def tell(self, notice: Notice) -> None:
        """Have the command run for one more notice, without waiting."""
        self.lost += len(self._waiting) == MOST_WAITING
        self._waiting.append(notice)
        self._more.set()

    async def run_for_ever(self) -> None:
        """Run the command for every notice."""
        while True:
            while self._waiting:
                before, self._failed = self._failed, await self._run(self._waiting.popleft())
                if self._failed and self._failed != before:
                    say(f"notify: {self._failed}", "service")
            self._more.clear()
            await self._more.wait()

    async def _run(self, notice: Notice) -> str:
        """Run the command for one notice; returns what went wrong, if anything."""
        program = self._command[0]
        try:
            changeable = changeable_by_others(Path(program))
        except OSError as error:
            return f"{program} cannot be run ({error.strerror})"
        if changeable:
            return f"{program} is not run, because other users can change {changeable}"
        environment = {"PATH": SAFE_PATH, "STALLWARD_MESSAGE": notice.message, **notice.fields()}
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                env={name: text.replace("\0", "") for name, text in environment.items()},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:  # ValueError: an argument with a NUL
            why = error.strerror if isinstance(error, OSError) else error
            return f"{program} cannot be run ({why})"
        try:
            ended = await asyncio.wait_for(process.wait(), self._timeout_s)
        except TimeoutError:
            return f"{program} took more than {self._timeout_s:g} s and was killed"
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # it has a session of its own
                await process.wait()
        return f"{program} ended with status {ended}" if ended else ""
