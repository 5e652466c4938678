"""Long computations run in parallel, each in its own process."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

from stallward.actuator.runtime.process_start import safe_imports
from stallward.agent.errors import StallwardError
from stallward.training.errors import WorkerError
from stallward.training.progress import Report

Result = TypeVar("Result")
Job = Callable[[Report], Result]


def worker_count(jobs: int) -> int:
    """How many of ``jobs`` run at once: at most one per processor."""
    return max(min(len(os.sched_getaffinity(0)), jobs), 1)


def time_for_each(seconds: float, jobs: int) -> float:
    """How long each of ``jobs`` may take so that all of them take ``seconds``."""
    return seconds / max(math.ceil(jobs / worker_count(jobs)), 1)


def run_in_parallel(
    jobs: Sequence[Job[Result]], report: Report, *, workers: int | None = None
) -> list[Result]:
    """Run ``jobs`` and return their results in order; if one fails, the others are terminated.

    Args:
        jobs: Each is called with its own report. Jobs and their results must be picklable.
        report: Called with the latest message of any job and the mean progress of all jobs.
        workers: The number of processes, by default :func:`worker_count`. With one worker the
            jobs run in this process.

    Raises:
        WorkerError: If a process ended without a result.
        Exception: What a job raised.
    """
    shares = [0.0] * len(jobs)

    def report_job(number: int, message: str, share: float) -> None:
        shares[number] = share
        report(message, sum(shares) / len(jobs))

    if (workers or worker_count(len(jobs))) == 1:
        return [job(partial(report_job, number)) for number, job in enumerate(jobs)]
    return _Pool(jobs, workers or worker_count(len(jobs)), report_job).run()


class _Pool(Generic[Result]):
    """Processes that each run one job and send back its messages and its result."""

    def __init__(
        self,
        jobs: Sequence[Job[Result]],
        workers: int,
        report_job: Callable[[int, str, float], None],
    ) -> None:
        self._waiting = deque(enumerate(jobs))
        self._workers = workers
        self._report_job = report_job
        self._results: list[Any] = [None] * len(jobs)
        self._running: dict[Connection, tuple[int, BaseProcess]] = {}

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
            for connection, (_, process) in self._running.items():
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
        self._running[ours] = (number, process)

    def _receive(self, connection: Connection) -> None:
        number, process = self._running[connection]
        try:
            kind, value = connection.recv()
        except EOFError:
            process.join()
            raise WorkerError(
                f"A process that worked on this ended with status {process.exitcode}.",
                next_step="Where memory was short, close other programs and try again.",
            ) from None
        if kind == "progress":
            self._report_job(number, *value)
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


def _work(job: Job[Any], connection: Connection) -> None:
    """Run a job in a worker process."""
    try:
        result = job(lambda message, share: connection.send(("progress", (message, share))))
    except Exception as error:  # the parent raises it
        connection.send(("failed", (error, traceback.format_exc())))
    else:
        connection.send(("done", result))
