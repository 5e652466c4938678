"""Opens what runs jobs: processes of this machine or Ray, with a copy of the files or without."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from stallward.env.errors import StorageError
from stallward.training.parallel.executor import Executor, Job, Keep, Result, Session, keep_nothing
from stallward.training.parallel.local_processes import LOCAL
from stallward.training.parallel.ray_cluster import open_ray
from stallward.training.parallel.storage import Storage
from stallward.training.progress import Report


@contextmanager
def open_executor(ray: str | None, storage: str | None, out: Path) -> Iterator[Executor]:
    """Open an executor for the time of a ``with``.

    Args:
        ray: ``None`` for processes of this machine; otherwise the address of a Ray cluster as
            :func:`stallward.training.parallel.ray_cluster.open_ray` takes it.
        storage: The URL of a directory that gets a copy of ``out`` whenever a job is done, and
            from which ``out`` is completed first.
        out: The output of the command: a directory, or a file that ends in .json or .toml.

    Raises:
        ModuleNotFoundError: If Ray is asked for and not installed.
        ClusterError: If Ray cannot be started or reached.
        StorageError: If the storage cannot be read or written.
    """
    with kept_at(storage, out) as store, _open(ray) as executor:
        yield executor if storage is None else _Storing(executor, store)


@contextmanager
def kept_at(storage: str | None, out: Path) -> Iterator[Callable[[], None]]:
    """Keep a copy of the files of a command for the time of a ``with``.

    Args:
        storage: The URL of a directory, from which ``out`` is completed first; without one nothing
            is copied.
        out: The output of the command: a directory, or a file that ends in .json or .toml.

    Yields:
        What stores the files as they are now; it is called once more in the end.

    Raises:
        StorageError: If the storage cannot be read or written. Where the command fails by itself,
            its own error is raised, with a note that this is so, too.
    """
    if storage is None:
        yield lambda: None
        return
    copy = Storage(storage, out)
    copy.check()
    copy.fetch()
    try:
        yield copy.store
    except BaseException as error:
        try:
            copy.store()
        except StorageError as refused:  # why the command ended matters more
            if refused.cause not in str(error):
                error.add_note(str(refused))
        raise
    copy.store()


@contextmanager
def _open(ray: str | None) -> Iterator[Executor]:
    if ray is None:
        yield LOCAL
        return
    with open_ray(ray) as executor:
        yield executor


@dataclass(frozen=True, slots=True)
class _Storing:
    """An executor that copies the files to the storage after each job."""

    executor: Executor
    store: Callable[[], None]

    @property
    def shares_files(self) -> bool:
        return self.executor.shares_files

    def workers(self, jobs: int) -> int:
        return self.executor.workers(jobs)

    def run(
        self, jobs: Sequence[Job[Result]], report: Report, *, keep: Keep[Result] | None = None
    ) -> list[Result]:
        def keep_and_store(number: int, result: Result) -> None:
            (keep or keep_nothing)(number, result)
            self.store()

        return self.executor.run(jobs, report, keep=keep_and_store)

    def open(self) -> AbstractContextManager[Session]:
        return self.executor.open()  # whoever starts single jobs stores what came of them
