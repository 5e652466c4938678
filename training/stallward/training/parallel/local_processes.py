"""Jobs in processes of this machine, one for each processor."""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Final, Generic

from stallward.actuator.runtime.process_start import safe_imports
from stallward.agent.errors import StallwardError
from stallward.training.errors import WorkerError
from stallward.training.parallel.executor import Job, Keep, Progress, Result, keep_nothing
from stallward.training.progress import Report


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
        progress, keep = Progress(len(jobs), report), keep or keep_nothing
        if self.workers(len(jobs)) > 1:
            return _Pool(jobs, self.workers(len(jobs)), progress, keep).run()
        results = []
        for number, job in enumerate(jobs):
            results.append(job.work(partial(progress.of_job, number)))
            keep(number, results[-1])
        return results


LOCAL: Final = LocalProcesses()
"""A process for each processor."""
IN_THIS_PROCESS: Final = LocalProcesses(most=1)
"""One job after the other."""


class _Pool(Generic[Result]):
    """Processes that each run one job and send back its messages and its result."""

    def __init__(
        self, jobs: Sequence[Job[Result]], workers: int, progress: Progress, keep: Keep[Result]
    ) -> None:
        self._waiting = deque(enumerate(jobs))
        self._workers = workers
        self._progress, self._keep = progress, keep
        self._results: list[Any] = [None] * len(jobs)
        self._running: dict[Connection, tuple[int, Job[Result], BaseProcess]] = {}

    def run(self) -> list[Result]:
        """Run all jobs; no process is left behind, however this ends."""
        try:
            while self._waiting or self._running:
                while self._waiting and len(self._running) < self._workers:
                    self._start(*self._waiting.popleft())
                for connection in wait(list(self._running)):
                    assert isinstance(connection, Connection)  # nothing else was waited for
                    self._receive(connection)
            return self._results
        finally:
            for connection, (_, _, process) in self._running.items():
                process.terminate()
                process.join()
                connection.close()

    def _start(self, number: int, job: Job[Result]) -> None:
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

    def _receive(self, connection: Connection) -> None:
        number, job, process = self._running[connection]
        try:
            kind, value = connection.recv()
        except EOFError:
            process.join()
            raise WorkerError(
                f"The process that worked on {job.name} ended with status {process.exitcode}.",
                next_step="Where memory was short, close other programs and try again.",
            ) from None
        if kind == "progress":
            self._progress.of_job(number, *value)
        elif kind == "failed":
            error, trace = value
            if not isinstance(error, StallwardError):
                error.add_note(trace)
            raise error
        else:
            self._results[number] = value
            process.join()
            del self._running[connection]
            connection.close()
            self._keep(number, value)


def _work(job: Job[Any], connection: Connection) -> None:
    """Run a job in a worker process."""
    try:
        result = job.work(lambda message, share: connection.send(("progress", (message, share))))
    except Exception as error:  # the parent raises it
        connection.send(("failed", (error, traceback.format_exc())))
    else:
        connection.send(("done", result))
