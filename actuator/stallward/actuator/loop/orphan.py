"""What a loop does that has lost its guardian: it ends at once, and a child of it restores.

The loop itself may be in the middle of writing a limit, and the kernel reclaims in the writer,
perhaps for seconds. Only a fatal signal ends that. So the loop forks a child, which waits until
the loop is dead with all its threads, so that nothing is changed any more, and then undoes what
the journal would.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from stallward.actuator.errors import ActuatorError
from stallward.actuator.ipc.shared_memory import close_journal
from stallward.actuator.journal.disk import Journal
from stallward.actuator.journal.entries import JournalEntry
from stallward.actuator.journal.restore import restore
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.runtime.stderr_line import say

_DEATH_S: Final = 5.0
"""A thread that sits in the kernel for longer is not waited for."""

Chosen = Callable[[Iterable[JournalEntry]], Iterable[JournalEntry]]


def end_and_restore(
    entries: Callable[[], Iterable[JournalEntry]],
    paths: Paths,
    journal: Path,
    sockets: Iterable[int],
    unfinished: Chosen | None = None,
) -> None:
    """End this process by SIGKILL and have everything undone; returns only if that failed.

    Args:
        entries: What the dead guardian would undo now; asked again when the loop is dead, since
            its threads may move something until then.
        paths: The kernel's files.
        journal: The journal's file, removed when all is back.
        sockets: Descriptors that others take for a sign of life; the child closes them. It
            keeps the locks: no other daemon starts before everything is back.
        unfinished: Given if the guardian could not undo all that an earlier loop had left; says
            what is in force of what the journal's file holds.

    Raises:
        OSError: If no child can be made.
    """
    read, write = os.pipe()
    if os.fork() == 0:
        status = 1
        try:
            os.close(write)
            for fd in sockets:
                os.close(fd)
            with contextlib.suppress(Exception):  # it is tried once more below
                restore(entries(), paths)  # what is paused must not wait for a thread to die
            ended = select.poll()  # the last thread to end closes the other end
            ended.register(read)
            ended.poll(_DEATH_S * 1e3)
            status = _undo(entries(), paths, journal, unfinished)
        finally:
            os._exit(status)
    os.close(read)
    os.kill(os.getpid(), signal.SIGKILL)


def _undo(
    entries: Iterable[JournalEntry], paths: Paths, journal: Path, unfinished: Chosen | None
) -> int:
    problems: tuple[str, ...] = ()
    earlier: Iterable[JournalEntry] = ()
    if unfinished is not None:
        try:
            earlier = unfinished(Journal(journal, paths).load())
        except ActuatorError as error:
            problems = (str(error),)
    problems += restore((*earlier, *entries), paths)  # the earliest is the original
    for problem in problems:
        say(f"could not undo: {problem}", "loop")
    if not problems:
        with contextlib.suppress(ActuatorError, OSError):
            close_journal(Journal(journal, paths))
    return 1 if problems else 0
