"""What runs independent jobs: processes of this machine, or a Ray cluster.

A job travels by value, and so does its result: the process that asked for it writes all files.
What a job reads by name has to be there where it runs, so such files are listed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

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
