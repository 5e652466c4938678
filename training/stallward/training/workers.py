"""Long computations side by side, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from multiprocessing.queues import SimpleQueue
from typing import Final, TypeVar

Report = Callable[[str, float], None]
"""Told what is being done and how much of it is, from 0 to 1."""
Result = TypeVar("Result")
Job = Callable[[Report], Result]

_POLL_S: Final = 0.3
_Said = tuple[int, str, float]


def worker_count(jobs: int) -> int:
    """How many of ``jobs`` run at once: one a processor at most."""
    return max(min(len(os.sched_getaffinity(0)), jobs), 1)


def side_by_side(
    jobs: Sequence[Job[Result]], report: Report, *, workers: int | None = None
) -> list[Result]:
    """Run ``jobs`` and return their results in order.

    Args:
        jobs: Each is given a report of its own; they and what they return must be picklable.
        report: Told what the last one said, and the mean of how far they are.
        workers: Processes; by default :func:`worker_count`. With one, this process does it all.
    """
    workers = worker_count(len(jobs)) if workers is None else workers
    shares = [0.0] * len(jobs)

    def gather(number: int, message: str, share: float) -> None:
        shares[number] = share
        report(message, sum(shares) / len(jobs))

    if workers == 1:
        return [
            job(lambda message, share, n=number: gather(n, message, share))  # type: ignore[misc]
            for number, job in enumerate(jobs)
        ]
    # Forking a process that has threads may hang it.
    context = multiprocessing.get_context("spawn")
    said: SimpleQueue[_Said] = context.SimpleQueue()
    pool = ProcessPoolExecutor(workers, context, _listen_to, (said,))
    try:
        futures = [pool.submit(_run, number, job) for number, job in enumerate(jobs)]
        running = set(futures)
        while running:
            ended, running = wait(running, _POLL_S, FIRST_COMPLETED)
            while not said.empty():
                gather(*said.get())
            for future in ended:
                future.result()
        return [future.result() for future in futures]
    finally:
        pool.shutdown(cancel_futures=True)


_said: SimpleQueue[_Said] | None = None
"""In a worker: where its jobs' reports go."""


def _listen_to(said: SimpleQueue[_Said]) -> None:
    global _said  # noqa: PLW0603 - a queue can be handed over only when a worker starts
    _said = said


def _run(number: int, job: Job[Result]) -> Result:
    def tell(message: str, share: float) -> None:
        if _said is not None:
            _said.put((number, message, share))

    return job(tell)
