"""What runs independent jobs: processes of this machine, or a Ray cluster.

A job travels by value, and so does its result: the process that asked for it writes all files.
What a job reads by name has to be there where it runs, so such files are listed.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from stallward.agent.errors import StallwardError
from stallward.training.progress import Report

Result = TypeVar("Result")
Keep = Callable[[int, Result], None]
"""Called with the number of a job and its result as soon as the job is done, in any order."""


@dataclass(frozen=True, slots=True)
class Job(Generic[Result]):
    """One of many independent computations; it and its result must be picklable."""

    name: str
    """What it computes, in two or three words, for messages."""
    work: Callable[[Report], Result]
    """Called with a report of its own."""
    reads: tuple[Path, ...] = ()
    """Files and directories that it reads by name."""


ATTEMPTS: Final = 3
"""How often a job is tried that died through no fault of its own, as on a cluster."""


class Kind(Enum):
    """What a job in flight can come to."""

    PROGRESS = auto()
    """It reported; the value is the message and the share."""
    DONE = auto()
    """The value is its result."""
    FAILED = auto()
    """The value is what it raised, with the traceback as a note unless it is one for users."""
    DIED = auto()
    """Its process ended without a word; the value is the error that says so."""


class Event(NamedTuple):
    """What has become of a job in flight; after anything but progress it is in flight no more."""

    number: int
    """What the job was started with."""
    kind: Kind
    value: Any


class Session(Protocol):
    """Jobs in flight, which one starts and ends one by one."""

    def start(self, number: int, job: Job[Any]) -> None:
        """Start a job, or let it wait for a free worker.

        Args:
            number: Names it in events; no job in flight has the same one.
            job: The job.
        """

    def wait(self) -> Iterable[Event]:
        """Wait until something happens, half a second at most."""

    def end(self, number: int) -> None:
        """End a job in flight, without a result."""


class Executor(Protocol):
    """Runs jobs side by side."""

    @property
    def shares_files(self) -> bool:
        """Whether jobs see the files of this process as they are."""

    def workers(self, jobs: int) -> int:
        """How many of ``jobs`` run at once, at least 1."""

    def run(
        self, jobs: Sequence[Job[Result]], report: Report, *, keep: Keep[Result] | None = None
    ) -> list[Result]:
        """Run ``jobs`` and return their results in order; if one fails, the others are ended.

        Args:
            jobs: The jobs.
            report: Called with the latest message of any job and the mean progress of all jobs.
            keep: Called in this process with each result as soon as there is one, so that what
                is done is not lost when a later job fails or everything is interrupted.

        Raises:
            WorkerError: If the process that worked on a job died.
            Exception: What a job raised.
        """

    def open(self) -> AbstractContextManager[Session]:
        """Jobs that are not all known from the start, or of which some are to be ended.

        They never run in this process. Those in flight at the end of the ``with`` are ended.
        """


def run_all(
    session: Session,
    jobs: Sequence[Job[Result]],
    report: Report,
    keep: Keep[Result] | None,
    *,
    at_once: int,
    attempts: int = 1,
) -> list[Result]:
    """Run jobs in a session; see :meth:`Executor.run`.

    Args:
        session: Where they run.
        jobs: The jobs.
        report: Called with the latest message and the mean progress.
        keep: Called with each result.
        at_once: How many are started at once.
        attempts: How often a job is tried whose process died.
    """
    progress, results = Progress(len(jobs), report), [None] * len(jobs)
    waiting, in_flight, deaths = deque(range(len(jobs))), 0, Counter[int]()
    while waiting or in_flight:
        while waiting and in_flight < at_once:
            session.start(waiting[0], jobs[waiting[0]])
            waiting.popleft()
            in_flight += 1
        for number, kind, value in session.wait():
            if kind is Kind.PROGRESS:
                progress.of_job(number, *value)
                continue
            in_flight -= 1
            if kind is Kind.DONE:
                results[number] = value
                (keep or keep_nothing)(number, value)
                continue
            deaths[number] += 1
            if kind is Kind.FAILED or deaths[number] >= attempts:
                if deaths[number] > 1:
                    value.add_note(f"It was tried {attempts} times.")
                raise value
            again = f"{jobs[number].name}: its worker died; it is tried again"
            progress.of_job(number, again, 0.0)
            waiting.appendleft(number)
    return results  # type: ignore[return-value]  # there is one of each


def time_for_each(seconds: float, jobs: int, executor: Executor) -> float:
    """How long each of ``jobs`` may take so that all of them take ``seconds``."""
    return seconds / max(math.ceil(jobs / executor.workers(jobs)), 1)


class Progress:
    """The progress of all jobs as the mean of theirs.

    Args:
        jobs: The number of jobs.
        report: Called with the latest message of any job and the mean.
    """

    def __init__(self, jobs: int, report: Report) -> None:
        self._shares = [0.0] * jobs
        self._report = report

    def of_job(self, number: int, message: str, share: float) -> None:
        """Note the progress of one job."""
        self._shares[number] = share
        self._report(message, sum(self._shares) / len(self._shares))


def keep_nothing(_number: int, _result: Any) -> None:
    """Do nothing with a result before all jobs are done."""


def as_raised(error: Exception, trace: str) -> Exception:
    """The error of a job, with the traceback of the worker unless it is one for users."""
    if trace and not isinstance(error, StallwardError):
        error.add_note(trace)
    return error
