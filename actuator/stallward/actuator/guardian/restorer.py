"""``stallward restore --watch``: stays, and undoes what a daemon leaves whenever one has died.

Kubernetes kills all processes of a container at once, guardian and loop together. So this process
runs in a container of its own, and therefore in a group of its own. It shares the journal with the
daemon and knows nothing else of it: the daemon is dead as soon as nobody holds the journal's lock.

It is started as ``python -m stallward.actuator.guardian.restorer OPTIONS``. SIGTERM and SIGINT end
it once no daemon is left and everything is undone; a second one ends it at once. Exit status: 0 if
everything is as it was, 1 if something could not be undone, 2 if the configuration names no
journal or a second signal ended it while a daemon ran.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from stallward.actuator.errors import ActuatorError, DaemonError
from stallward.actuator.guardian.restore_command import (
    EXIT_LEFT,
    EXIT_NOT_TRIED,
    NOTHING,
    journal_of,
    restore_left,
)
from stallward.actuator.kernel.paths import DEFAULT_PATHS, Paths
from stallward.actuator.runtime.process_setup import lock_memory, raise_priority
from stallward.actuator.runtime.process_start import run_process
from stallward.actuator.runtime.stderr_line import say

LOOK_S: Final = 0.25
"""The time between two looks whether the daemon is dead, and between two tries to undo."""
_NAME: Final = "restorer"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorerOptions:
    """The daemon whose changes are undone."""

    config: Path
    """The daemon's TOML file."""
    journal: Path | None = None
    """The daemon's journal; then ``config`` is not read."""
    paths: Paths = DEFAULT_PATHS
    """The kernel's files; used only with ``journal``."""


class Restorer:
    """Undoes what is in a journal that no daemon uses.

    Args:
        journal: The daemon's journal. Before a daemon changes anything, this file changes.
        paths: The kernel's files.
    """

    def __init__(self, journal: Path, paths: Paths) -> None:
        self._journal = journal
        self._paths = paths
        self._settled: tuple[int, int, int] | None = None
        """The file as it was before everything in it was undone, where it could not be emptied."""
        self._said = ""
        self._before = NOTHING

    def look(self) -> int | None:
        """Undo what a dead daemon has left.

        Returns:
            ``None`` if a daemon runs, else an exit status: 0 if nothing is left to undo,
            ``EXIT_LEFT`` if something could not be undone.
        """
        state = self._state()
        if state in {None, self._settled}:
            return 0
        try:
            restored = restore_left(self._journal, self._paths, wait_s=0.0, before=self._before)
        except ActuatorError as error:
            if isinstance(error, DaemonError) and not isinstance(error.__cause__, OSError):
                return None
            self._say_once(str(error))
            return EXIT_LEFT
        self._before = restored
        if restored.problems:
            self._say_once("\n".join((*restored.problems, *restored.notes)))
            return EXIT_LEFT
        for line in (*(f"undid: {line}" for line in restored.undone), *restored.notes):
            say(line, _NAME)
        self._settled, self._said = state, ""
        return 0

    def _state(self) -> tuple[int, int, int] | None:
        """What tells contents of the journal apart; ``None`` if there is nothing in it."""
        try:
            status = self._journal.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:  # restoring will say why
            return (0, 0, 0)
        if status.st_size == 0:
            return None
        return (status.st_ino, status.st_mtime_ns, status.st_size)

    def _say_once(self, text: str) -> None:
        """Say what is wrong, unless that was the last thing said."""
        if text != self._said:
            for line in text.splitlines():
                say(line, _NAME)
        self._said = text


def main(options: RestorerOptions) -> int:
    """Run the restorer; returns its exit status."""
    asked: list[int] = []

    def on_signal(number: int, _frame: FrameType | None) -> None:
        asked.append(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    try:
        if options.journal is None:
            journal, paths = journal_of(options.config)
        else:
            journal, paths = options.journal.absolute(), options.paths
    except ActuatorError as error:
        say(str(error), _NAME)
        return EXIT_NOT_TRIED
    lock_memory()
    raise_priority()
    say(f"watching {journal}", _NAME)
    restorer = Restorer(journal, paths)
    while True:
        status = restorer.look()
        if asked and status is not None:
            return status
        if len(asked) > 1:
            return EXIT_NOT_TRIED
        if select.select([wake_read], [], [], LOOK_S)[0]:
            os.read(wake_read, 64)


if __name__ == "__main__":
    sys.exit(run_process("restorer", RestorerOptions, main))
