"""What runs in a worker of Ray: one job, with its progress as a stream."""

from __future__ import annotations

import os
import platform
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Thread
from typing import Any, Final, Generic

from stallward.training.errors import WorkerError
from stallward.training.parallel.executor import Job, Kind, Result
from stallward.training.parallel.versions import code_beside_the_core, difference, versions_here

_PROGRESS_EVERY_S: Final = 0.5

Message = tuple[Kind, Any]
"""``PROGRESS`` with a message and a share, then once ``DONE`` with the result, or ``FAILED`` with
the error and its traceback."""


def run_job(
    job: Job[Result], wanted: Mapping[str, str], *, folder: Path, files_are_shared: bool
) -> Iterator[Message]:
    """Run a job; yields messages.

    Args:
        job: The job.
        wanted: The versions of the process that asks for it.
        folder: The current folder of that process, to which relative paths refer.
        files_are_shared: Whether this machine is known to have the files that the job reads.
    """
    if folder.is_dir():
        os.chdir(folder)
    try:
        _check_versions(wanted, job)
        if not files_are_shared:
            _check_files(job)
    except WorkerError as error:
        yield Kind.FAILED, (error, "")
        return
    running = _Running(job)
    running.start()
    shown: tuple[str, float] | None = None
    while running.is_alive():
        running.join(_PROGRESS_EVERY_S)
        if running.progress is not None and running.progress != shown:
            shown = running.progress
            yield Kind.PROGRESS, shown
    yield running.outcome


class _Running(Thread, Generic[Result]):
    """A job in a thread of its own, so that the worker can tell its progress meanwhile."""

    def __init__(self, job: Job[Result]) -> None:
        super().__init__(name="job", daemon=True)
        self._job = job
        self.progress: tuple[str, float] | None = None
        self.outcome: Message = (Kind.FAILED, (WorkerError("The job ended without a result."), ""))

    def run(self) -> None:
        """Run the job, and hold its outcome."""
        try:
            self.outcome = (Kind.DONE, self._job.work(self._report))
        except Exception as error:  # the process that asked for the job raises it
            self.outcome = (Kind.FAILED, (error, traceback.format_exc()))

    def _report(self, message: str, share: float) -> None:
        self.progress = (message, share)


def _check_versions(wanted: Mapping[str, str], job: Job[Any]) -> None:
    """Refuse versions with which the same seed may give another result.

    Raises:
        WorkerError: If one differs.
    """
    differs = difference(wanted, {**versions_here(), **code_beside_the_core(job.work)})
    if differs:
        raise WorkerError(
            f"The node {platform.node()} of the Ray cluster has {differs}, as here: its results "
            "would differ.",
            next_step="Give all nodes of the cluster the same image or environment.",
        )


def _check_files(job: Job[Any]) -> None:
    """Refuse a job whose files this machine does not have.

    Raises:
        WorkerError: If one is missing.
    """
    missing = [path for path in job.reads if not path.exists()]
    if missing:
        raise WorkerError(
            f"The node {platform.node()} of the Ray cluster has no {missing[0]}, which "
            f"{job.name} reads.",
            next_step="Put it on storage that every node mounts at this path.",
        )
