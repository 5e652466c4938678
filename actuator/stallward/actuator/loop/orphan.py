"""Ends a loop whose guardian is dead: a child of the loop restores everything.

A thread of the loop may be writing a limit, for which the kernel makes it reclaim, perhaps for
seconds. Only a fatal signal ends that. So the loop forks a child and kills itself. The child
waits until all threads of the loop are dead, so that they change nothing any more, and then undoes
what the guardian would.
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
from stallward.actuator.journal.restore import restore, restore_patiently
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.runtime.stderr_line import say

_DEATH_S: Final = 5.0
"""How long to wait for the death of a thread that is busy in the kernel."""
_PATIENCE_S: Final = 30.0
"""How long what cannot be undone is tried again. Then it is left to the next daemon, which cannot
start before."""

SelectInForce = Callable[[Iterable[JournalEntry]], Iterable[JournalEntry]]
"""Selects, of the entries of a journal, those that must be undone."""


def end_and_restore(
    entries: Callable[[], Iterable[JournalEntry]],
    paths: Paths,
    journal: Path,
    sockets: Iterable[int],
    unfinished: SelectInForce | None = None,
) -> None:
    """Kill this process by SIGKILL, and undo everything in a child; return only on failure.

    Args:
        entries: Returns the entries that the dead guardian would undo. It is called again when
            the loop is dead, since its threads may change settings until then.
        paths: The kernel's files.
        journal: The journal's file, which is removed when everything is restored.
        sockets: Descriptors that other processes take for a sign of life; the child closes them.
            It keeps the locks, so that no other daemon starts before everything is restored.
        unfinished: Given if the guardian could not undo all changes of an earlier loop; selects
            the entries in the journal's file that must be undone.

    Raises:
        OSError: If the child cannot be started.
    """
    read, write = os.pipe()
    if os.fork() == 0:
        status = 1
        try:
            os.close(write)
            for fd in sockets:
                os.close(fd)
            with contextlib.suppress(Exception):  # it is tried again below
                restore(entries(), paths)  # paused groups must not wait for a thread to die
            poller = select.poll()  # the last thread of the loop closes the other end
            poller.register(read)
            poller.poll(_DEATH_S * 1e3)
            status = _undo(entries, paths, journal, unfinished)
        finally:
            os._exit(status)
    os.close(read)
    os.kill(os.getpid(), signal.SIGKILL)


def _undo(
    entries: Callable[[], Iterable[JournalEntry]],
    paths: Paths,
    journal: Path,
    unfinished: SelectInForce | None,
) -> int:
    problems: tuple[str, ...] = ()
    earlier: tuple[JournalEntry, ...] = ()
    if unfinished is not None:
        try:
            earlier = tuple(unfinished(Journal(journal, paths).load()))
        except ActuatorError as error:
            problems = (str(error),)
    # The earliest is the original.
    left = restore_patiently(lambda: (*earlier, *entries()), paths, patience_s=_PATIENCE_S)
    problems += tuple(map(str, left))
    for problem in problems:
        say(f"could not undo: {problem}", "loop")
    if not problems:
        with contextlib.suppress(ActuatorError, OSError):
            close_journal(Journal(journal, paths))
    return 1 if problems else 0
