"""Long computations side by side, each in a process of its own."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

from stallward.agent.errors import StallwardError
from stallward.training.errors import WorkerError
from stallward.training.progress import Report

Result = TypeVar("Result")
Job = Callable[[Report], Result]


def worker_count(jobs: int) -> int:
    """How many of ``jobs`` run at once: one a processor at most."""
    return max(min(len(os.sched_getaffinity(0)), jobs), 1)


def parts_of(length: int) -> list[slice]:
    """As many parts of a sequence as run at once, about equally long."""
    count = worker_count(length)
    edges = [round(k * length / count) for k in range(count + 1)]
    return [slice(*edge) for edge in pairwise(edges)]


def time_for_each(seconds: float, jobs: int) -> float:
    """How long each of ``jobs`` may take so that all of them take ``seconds``."""
    return seconds / max(math.ceil(jobs / worker_count(jobs)), 1)


def side_by_side(
    jobs: Sequence[Job[Result]], report: Report, *, workers: int | None = None
) -> list[Result]:
    """Run ``jobs`` and return their results in order; where one fails, the others are ended.

    Args:
        jobs: Each is given a report of its own; they and what they return must be picklable.
        report: Told what the last one said, and the mean of how far they are.
        workers: Processes; by default :func:`worker_count`. With one, this process does it all.

    Raises:
        WorkerError: If a process ended without a result.
        Exception: What a job raised.
    """
    shares = [0.0] * len(jobs)

    def gather(number: int, message: str, share: float) -> None:
        shares[number] = share
        report(message, sum(shares) / len(jobs))

    if (workers or worker_count(len(jobs))) == 1:
        return [job(partial(gather, number)) for number, job in enumerate(jobs)]
    return _Pool(jobs, workers or worker_count(len(jobs)), gather).run()


class _Pool(Generic[Result]):
    """Processes that each run one job and send what it says and what comes of it."""

    def __init__(
        self, jobs: Sequence[Job[Result]], workers: int, gather: Callable[[int, str, float], None]
    ) -> None:
        self._waiting = deque(enumerate(jobs))
        self._workers = workers
        self._gather = gather
        self._results: list[Any] = [None] * len(jobs)
        self._running: dict[Connection, tuple[int, BaseProcess]] = {}

    def run(self) -> list[Result]:
        """Run them all; no process is left, however this ends."""
        try:
            while self._waiting or self._running:
                while self._waiting and len(self._running) < self._workers:
                    self._start(*self._waiting.popleft())
                for connection in wait(list(self._running)):
                    assert isinstance(connection, Connection)  # nothing else was waited for
                    self._hear(connection)
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
        # Ctrl-C reaches every process of a terminal; this one is to be ended in order, by us.
        # It inherits the mask, so that it is deaf to it from its first moment.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        self._running[ours] = (number, process)

    def _hear(self, connection: Connection) -> None:
        number, process = self._running[connection]
        try:
            kind, value = connection.recv()
        except EOFError:
            process.join()
            raise WorkerError(
                f"A process that worked on this ended with status {process.exitcode}.",
                next_step="Where memory was short, close other programs and try again.",
            ) from None
        if kind == "said":
            self._gather(number, *value)
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
    """In a process of its own: run a job."""
    try:
        result = job(lambda message, share: connection.send(("said", (message, share))))
    except Exception as error:  # the parent raises it
        connection.send(("failed", (error, traceback.format_exc())))
    else:
        connection.send(("done", result))
