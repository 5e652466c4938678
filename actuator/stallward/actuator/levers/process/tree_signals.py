"""Sending signals to many processes at once, each by pidfd with its start time checked."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.process_table import Seen, look_at
from stallward.agent.desired import ProcessRef

BATCH: Final = 100
"""How many processes share one message to the journal and have their pidfds open at once."""


@dataclass(slots=True, kw_only=True)
class Batch:
    """The outcome for the processes that were to be signalled."""

    done: list[ProcessRef] = field(default_factory=list)
    already: list[ProcessRef] = field(default_factory=list)
    """Processes that another program had stopped already."""
    gone: list[ProcessRef] = field(default_factory=list)
    refused: dict[ProcessRef, str] = field(default_factory=dict)
    """Why a process could not be signalled."""


def batches(refs: Iterable[ProcessRef]) -> Iterator[tuple[ProcessRef, ...]]:
    """Yield the processes, at most :data:`BATCH` at a time."""
    todo = tuple(refs)
    for start in range(0, len(todo), BATCH):
        yield todo[start : start + BATCH]


def stop(
    proc: Path, refs: Iterable[ProcessRef], hold: Callable[[list[ProcessRef]], None]
) -> Batch:
    """Send SIGSTOP to those processes that run.

    Args:
        proc: The /proc directory.
        refs: The processes, parents first, at most :data:`BATCH`.
        hold: Called with the processes to stop, before the first is stopped; an error that it
            raises prevents all of it.
    """
    batch = Batch()
    with contextlib.ExitStack() as stack:
        running: list[tuple[ProcessRef, int]] = []
        for ref in refs:
            fd = _open(ref, batch)
            if fd < 0:
                continue
            stack.callback(os.close, fd)
            # The descriptor pins one process; the start time says whether it is the right one.
            seen = _look_at(proc, ref, batch)
            if seen is not None and seen.ended:
                batch.gone.append(ref)
            elif seen is not None and seen.stopped:
                batch.already.append(ref)
            elif seen is not None:
                running.append((ref, fd))
        if running:
            hold([ref for ref, _ in running])
        for ref, fd in running:
            _send(ref, fd, signal.SIGSTOP, batch)
    return batch


def send(proc: Path, refs: Iterable[ProcessRef], number: signal.Signals) -> Batch:
    """Send a signal to processes, one after the other."""
    batch = Batch()
    for ref in refs:
        fd = _open(ref, batch)
        if fd < 0:
            continue
        try:
            if _look_at(proc, ref, batch) is not None:
                _send(ref, fd, number, batch)
        finally:
            os.close(fd)
    return batch


def _open(ref: ProcessRef, batch: Batch) -> int:
    try:
        return os.pidfd_open(ref.pid)
    except ProcessLookupError:
        batch.gone.append(ref)
    except OSError as error:
        batch.refused[ref] = os.strerror(error.errno or 0)
    return -1


def _look_at(proc: Path, ref: ProcessRef, batch: Batch) -> Seen | None:
    """Read a process; ``None``, and noted in ``batch``, if it is gone or cannot be read now.

    One that cannot be read may still be stopped, and must not be taken for gone.
    """
    try:
        seen = look_at(proc, ref.pid)
    except KernelFileError as error:
        batch.refused[ref] = error.cause
        return None
    if seen is None or seen.ref != ref:
        batch.gone.append(ref)
        return None
    return seen


def _send(ref: ProcessRef, fd: int, number: signal.Signals, batch: Batch) -> None:
    try:
        signal.pidfd_send_signal(fd, number)
    except ProcessLookupError:
        batch.gone.append(ref)
    except OSError as error:
        batch.refused[ref] = os.strerror(error.errno or 0)
    else:
        batch.done.append(ref)


def why_no_pidfd() -> str:
    """Say why this kernel cannot signal by pidfd (5.3 or newer can); empty if it can."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (OSError, AttributeError) as error:
        return f"no pidfd_open ({error}); kernel 5.3 or newer has it"
    return ""
