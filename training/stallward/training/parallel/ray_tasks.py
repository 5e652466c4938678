"""Jobs as tasks on a Ray cluster that this process is connected to."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import ray
from ray.exceptions import LocalRayletDiedError, RayError, RayTaskError

from stallward.training.errors import ClusterError, WorkerError
from stallward.training.parallel.executor import (
    ATTEMPTS,
    Event,
    Job,
    Keep,
    Kind,
    Result,
    Session,
    as_raised,
    run_all,
)
from stallward.training.parallel.ray_worker import run_job
from stallward.training.parallel.versions import code_beside_the_core, versions_here
from stallward.training.progress import Report

# ---------- Whether the parts of Ray that this process needs still answer
# Where the head of a cluster is gone, Ray waits, and after 60 s it ends this process without an
# error that could be caught. Where its part on this machine is gone, it waits for ever. So this
# process looks for itself, and gives up sooner.

LOOK_EVERY_S: Final = 2.0
"""How often to look."""
MOST_SILENT: Final = 10
"""So many looks in a row may fail, 20 s in all: a head that is started again takes a while."""
MOST_REFUSED: Final = 2
"""So many looks at the part on this machine may be refused. Nobody starts that again, and Ray ends
this process by ``_exit`` at the next call that needs it."""
_ANSWER_S: Final = 2.0
"""How long a part may take to answer."""


class Lookout:
    """Looks whether a cluster that this process is connected to still answers.

    Args:
        head: The address of its head, ``HOST:PORT``.
        connected: Whether this process is still connected.
        others: The addresses of parts on this machine that it needs, by what errors call them.
    """

    def __init__(
        self,
        head: str,
        connected: Callable[[], bool],
        others: Mapping[str, str] | None = None,
    ) -> None:
        self._head, self._connected = head, connected
        self._parts = {"its head": head, **(others or {})}
        self._silent = dict.fromkeys(self._parts, 0)
        self._next_s = time.monotonic() + LOOK_EVERY_S

    def check(self) -> None:
        """Look whether all parts answer, if it is time to.

        Raises:
            ClusterError: If this process is no longer connected, or a part has not answered for a
                while.
        """
        if not self._connected():
            raise self.lost("this process is no longer connected to it")
        if time.monotonic() < self._next_s:
            return
        for name, address in self._parts.items():
            host, _, port = address.rpartition(":")
            try:
                with socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_S):
                    self._silent[name] = 0
            except OSError as error:
                self._silent[name] += 1
                final = isinstance(error, ConnectionRefusedError) and address != self._head
                if self._silent[name] >= (MOST_REFUSED if final else MOST_SILENT):
                    raise self.lost(f"{name} does not answer ({error})") from error
        self._next_s = time.monotonic() + LOOK_EVERY_S

    def lost(self, reason: str) -> ClusterError:
        """The error for a cluster that is gone."""
        return ClusterError(
            f"The Ray cluster at {self._head} was lost: {reason}.",
            next_step="Start it again, and give it more memory where that was short. "
            "What is done is kept; the same command goes on.",
        )


_WAIT_S: Final = 0.5
"""How long SIGTERM may have to wait."""


@dataclass(frozen=True, slots=True)
class RayTasks:
    """An :class:`~stallward.training.parallel.executor.Executor` on Ray: one CPU for each job."""

    cpus: int
    """The CPUs of the cluster when it was opened."""
    shares_files: bool
    """Whether all workers are on this machine."""

    def workers(self, jobs: int) -> int:
        """How many of ``jobs`` run at once."""
        return max(min(self.cpus, jobs), 1)

    def run(
        self, jobs: Sequence[Job[Result]], report: Report, *, keep: Keep[Result] | None = None
    ) -> list[Result]:
        """Run jobs; see :class:`~stallward.training.parallel.executor.Executor`.

        A job whose worker died, for example because its node was taken away, is tried again.

        Raises:
            WorkerError: If a job's worker died :data:`ATTEMPTS` times.
            ClusterError: If a job cannot be given to the cluster, or the cluster was lost.
        """
        # All at once: the cluster may grow.
        with self.open() as session:
            return run_all(
                session, jobs, report, keep, at_once=max(len(jobs), 1), attempts=ATTEMPTS
            )

    @contextmanager
    def open(self) -> Iterator[Session]:
        """Jobs that one starts and ends; a worker that dies is told of, and not replaced.

        Raises:
            ClusterError: If a job cannot be given to the cluster, or the cluster was lost.
        """
        with sigterm_held_back() as raise_sigterm:
            tasks = _Tasks(raise_sigterm, self.shares_files)
            try:
                yield tasks
            finally:
                tasks.close()


class _Tasks:
    """Tasks in flight.

    Args:
        raise_sigterm: Lets a signal act that came meanwhile.
        shares_files: Whether all workers are on this machine.
    """

    def __init__(self, raise_sigterm: Callable[[], None], shares_files: bool) -> None:
        self._raise_sigterm, self._shares_files = raise_sigterm, shares_files
        self._running: dict[Any, tuple[int, Job[Any]]] = {}
        self._versions, self._folder = versions_here(), Path.cwd()
        self._lookout = _make_lookout()
        # Ray would try again by itself, but without bound where a worker ran out of memory.
        self._task: Any = ray.remote(num_cpus=1, max_retries=0, num_returns="streaming")(run_job)

    def start(self, number: int, job: Job[Any]) -> None:
        """Give a job to the cluster."""
        versions = {**self._versions, **code_beside_the_core(job.work)}
        with self._cluster_errors():
            stream = self._task.remote(
                job, versions, folder=self._folder, files_are_shared=self._shares_files
            )
        self._running[stream] = number, job

    def wait(self) -> Iterator[Event]:
        """Take what the workers have sent."""
        self._raise_sigterm()
        self._lookout.check()
        with self._cluster_errors():
            ready, _ = ray.wait(list(self._running), num_returns=1, timeout=_WAIT_S)
        for stream in ready:
            yield self._receive(stream)

    def end(self, number: int) -> None:
        """End the task of a job."""
        stream = next(stream for stream, (n, _) in self._running.items() if n == number)
        del self._running[stream]
        with contextlib.suppress(RayError, OSError, RuntimeError):  # the cluster may be gone
            ray.cancel(stream, force=True)

    def close(self) -> None:
        """End the tasks that still run."""
        for number, _ in list(self._running.values()):
            if not ray.is_initialized():
                return  # otherwise Ray would start another one
            self.end(number)

    @contextmanager
    def _cluster_errors(self) -> Iterator[None]:
        """Translate the errors of calls that fail only where the cluster does.

        Raises:
            ClusterError: For any error of Ray.
        """
        try:
            yield
        except (RayError, OSError, RuntimeError) as error:
            reason = str(error).strip().partition("\n")[0].rstrip(".")
            raise self._lookout.lost(reason or type(error).__name__) from error

    def _receive(self, stream: Any) -> Event:
        """Take the next message of a job."""
        number, job = self._running[stream]
        try:
            kind, value = ray.get(next(stream))
        except RayTaskError as error:  # not one of the job itself: it sends those
            raise ClusterError(
                f"Ray cannot run {job.name}: {str(error).strip()}",
                next_step="Install this version of stallward, with its extra `ray`, on all nodes.",
            ) from error
        except LocalRayletDiedError as error:
            raise self._lookout.lost("its part on this machine died") from error
        except (RayError, StopIteration) as error:
            del self._running[stream]
            self._lookout.check()
            return Event(number, Kind.DIED, _death(job, error))
        if kind is Kind.PROGRESS:
            return Event(number, kind, value)
        del self._running[stream]
        return Event(number, kind, value if kind is Kind.DONE else as_raised(*value))


def _death(job: Job[Any], reason: Exception) -> WorkerError:
    error = WorkerError(
        f"The worker of {job.name} died: {str(reason).strip().splitlines()[0]}",
        next_step="Where memory was short, give the nodes more of it or fewer CPUs. "
        "What is done is kept; the same command goes on.",
    )
    error.__cause__ = reason
    return error


def _make_lookout() -> Lookout:
    """Look out for the cluster that this process is connected to."""
    context = ray.get_runtime_context()
    others = {}
    for node in ray.nodes():
        if node["NodeID"] == context.get_node_id():
            address = f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}"
            others["its part on this machine"] = address
    return Lookout(str(context.gcs_address), ray.is_initialized, others)


@contextmanager
def sigterm_held_back() -> Iterator[Callable[[], None]]:
    """Hold SIGTERM back while Ray waits: what its handler raises, other than Ctrl-C, Ray drops.

    Yields:
        A function that lets a signal that came meanwhile act.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    came = False

    def note(_number: int, _frame: object) -> None:
        nonlocal came
        came = True

    def act() -> None:
        nonlocal came
        if came:
            came = False
            signal.signal(signal.SIGTERM, before)
            signal.raise_signal(signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, note)
    try:
        yield act
    finally:
        signal.signal(signal.SIGTERM, before)
        act()
