"""Jobs in processes of this machine, one for each processor."""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Final

from stallward.actuator.runtime.process_start import safe_imports
from stallward.training.errors import WorkerError
from stallward.training.parallel.executor import (
    Event,
    Job,
    Keep,
    Kind,
    Progress,
    Result,
    Session,
    as_raised,
    keep_nothing,
    run_all,
)
from stallward.training.progress import Report

_WAIT_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class LocalProcesses:
    """An :class:`~stallward.training.parallel.executor.Executor` without a cluster."""

    most: int | None = None
    """The most processes, by default one for each processor. With one, the jobs run in this
    process, one after the other."""

    @property
    def shares_files(self) -> bool:
        """They run on this machine."""
        return True

    def workers(self, jobs: int) -> int:
        """How many of ``jobs`` run at once."""
        return max(min(self.most or len(os.sched_getaffinity(0)), jobs), 1)

    def run(
        self, jobs: Sequence[Job[Result]], report: Report, *, keep: Keep[Result] | None = None
    ) -> list[Result]:
        """Run jobs; see :class:`~stallward.training.parallel.executor.Executor`."""
        workers = self.workers(len(jobs))
        if workers > 1:
            with self.open() as session:
                return run_all(session, jobs, report, keep, at_once=workers)
        progress, results = Progress(len(jobs), report), []
        for number, job in enumerate(jobs):
            results.append(job.work(partial(progress.of_job, number)))
            (keep or keep_nothing)(number, results[-1])
        return results

    @contextmanager
    def open(self) -> Iterator[Session]:
        """Jobs that one starts and ends; each has a process of its own, started at once."""
        session = _Processes()
        try:
            yield session
        finally:
            session.close()


LOCAL: Final = LocalProcesses()
"""A process for each processor."""
IN_THIS_PROCESS: Final = LocalProcesses(most=1)
"""One job after the other."""


class _Processes:
    """Processes that each run one job and send back its messages and its result."""

    def __init__(self) -> None:
        self._running: dict[Connection, tuple[int, Job[Any], BaseProcess]] = {}

    def close(self) -> None:
        """Leave no process behind."""
        for number, _, _ in list(self._running.values()):
            self.end(number)

    def end(self, number: int) -> None:
        """End the process of a job."""
        connection = next(c for c, (n, _, _) in self._running.items() if n == number)
        _, _, process = self._running.pop(connection)
        process.terminate()
        process.join()
        connection.close()

    def wait(self) -> Iterator[Event]:
        """Take what the processes have sent."""
        for connection in wait(list(self._running), timeout=_WAIT_S):
            assert isinstance(connection, Connection)  # nothing else was waited for
            if connection in self._running:  # it may have been ended meanwhile
                yield self._receive(connection)

    def start(self, number: int, job: Job[Any]) -> None:
        """Start a process for a job."""
        # Forking a process that has threads may hang it.
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(job, theirs), daemon=True)
        # Ctrl-C reaches every process of a terminal, but this process terminates its workers
        # itself. A worker inherits the mask, so it ignores Ctrl-C from the start.
        with safe_imports():
            # Its start unblocks Ctrl-C, so it may not be left to the start of the first worker.
            resource_tracker.ensure_running()
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                process.start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        self._running[ours] = (number, job, process)

    def _receive(self, connection: Connection) -> Event:
        number, job, process = self._running[connection]
        try:
            kind, value = connection.recv()
        except EOFError:
            kind = Kind.DIED
        if kind is Kind.PROGRESS:
            return Event(number, kind, value)
        process.join()
        del self._running[connection]
        connection.close()
        if kind is Kind.DIED:
            value = WorkerError(
                f"The process that worked on {job.name} ended with status {process.exitcode}.",
                next_step="Where memory was short, close other programs and try again.",
            )
        elif kind is Kind.FAILED:
            value = as_raised(*value)
        return Event(number, kind, value)


def _work(job: Job[Any], connection: Connection) -> None:
    """Run a job in a worker process."""
    try:
        result = job.work(
            lambda message, share: connection.send((Kind.PROGRESS, (message, share)))
        )
    except Exception as error:  # the parent raises it
        connection.send((Kind.FAILED, (error, traceback.format_exc())))
    else:
        connection.send((Kind.DONE, result))
