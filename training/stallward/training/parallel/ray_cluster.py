"""Starts Ray on this machine, or connects to a cluster, and translates its errors."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import re
import secrets
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil

from stallward.actuator.runtime.process_start import safe_imports
from stallward.actuator.runtime.temporary_folders import temporary_folder
from stallward.training.errors import ClusterError

if TYPE_CHECKING:
    from stallward.training.parallel.ray_tasks import RayTasks


# ---------- Ends the processes of a Ray of our own, those that have lost their parent too

_SET_CHILD_SUBREAPER: Final = 36
_GET_CHILD_SUBREAPER: Final = 37
"""PR_SET_CHILD_SUBREAPER and PR_GET_CHILD_SUBREAPER (linux/prctl.h)."""
_ENDING_S: Final = 5.0
"""How long processes may take to end by themselves."""


@contextmanager
def processes_ended() -> Iterator[None]:
    """End all processes that were started below this one in a ``with``.

    They may take a while to end by themselves, and are killed then. One whose parent was killed
    would belong to the system; here it becomes a child of this process, so that it is found.
    """
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    with _orphans_adopted():
        try:
            yield
        finally:
            _end([p for p in psutil.Process().children(recursive=True) if p.pid not in before])


@contextmanager
def _orphans_adopted() -> Iterator[None]:
    """Make this process the parent of processes below it that lose theirs (prctl(2))."""
    prctl = ctypes.CDLL(None).prctl
    was = ctypes.c_int()
    prctl(_GET_CHILD_SUBREAPER, ctypes.byref(was), 0, 0, 0)
    prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_SET_CHILD_SUBREAPER, was.value, 0, 0, 0)


def _end(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=_ENDING_S)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=_ENDING_S)


HERE: Final = "local"
"""The address that stands for a Ray of our own on this machine."""
_OBJECT_STORE_BYTES: Final = 256 << 20
"""Jobs and results are a few megabytes; by default Ray takes 30 % of the memory."""
_LOOPBACK: Final = "127.0.0.1"
_STARTS: Final = 2
"""How often to start our own: Ray gives up after 30 s, which a busy machine may take."""
_ANSWER_S: Final = 5.0
"""How long an address may take to answer."""
_LONGEST_FOLDER: Final = 12
"""The longest path for Ray's folder: its sockets lie 94 characters below, and may have 107."""
_SYSTEM_FOLDER: Final = Path("/tmp")  # noqa: S108 - a folder with a random name is made in it
_ON_A_NODE: Final = (
    "Run this command on a node of the cluster, or as a job: "
    "`ray job submit --address http://HEAD:8265 -- stallward ... --ray`."
)


@contextmanager
def open_ray(address: str) -> Iterator[RayTasks]:
    """Use Ray for the time of a ``with``.

    Args:
        address: ``local`` starts a Ray on this machine, which ends with the ``with``; ``auto`` or
            ``HOST:PORT`` connects to a cluster of which this machine is a node. Empty means the
            value of ``RAY_ADDRESS``, which is set in a Ray job, or else ``local``.

    Raises:
        ModuleNotFoundError: If Ray is not installed.
        ClusterError: If Ray cannot be started or reached, has another version, or was started on
            this machine by this process before and a cluster is wanted now.
    """
    address = address or os.environ.get("RAY_ADDRESS", "") or HERE
    with _local_ray() if address == HERE else _connection(address) as executor:
        yield executor


@contextmanager
def _local_ray() -> Iterator[RayTasks]:
    """Start a Ray that nobody else can use, and end all its processes in the end."""
    cpus = len(os.sched_getaffinity(0))
    with (
        temporary_folder("ray", _short_folder()) as folder,
        _private_token(),
        processes_ended(),
        _initialised(
            folder,
            num_cpus=cpus,
            include_dashboard=False,
            object_store_memory=_OBJECT_STORE_BYTES,
            _temp_dir=str(folder),
            _node_ip_address=_LOOPBACK,
        ),
    ):
        yield _tasks(cpus, shares_files=True)


@contextmanager
def _connection(address: str) -> Iterator[RayTasks]:
    """Connect to a cluster."""
    _check_address(address)
    if _token.cache_info().currsize:
        raise ClusterError(
            f"This process has used a Ray of its own before, so it cannot work with {address}: "
            "Ray would still ask everybody for that one's token.",
            next_step="Connect to the cluster in another process.",
        )
    with temporary_folder("ray") as folder, _initialised(folder, address=address) as ray:
        yield _tasks(int(ray.cluster_resources().get("CPU", 1)), shares_files=False)


def _tasks(cpus: int, *, shares_files: bool) -> RayTasks:
    from stallward.training.parallel.ray_tasks import RayTasks  # noqa: PLC0415 - it imports Ray

    return RayTasks(cpus=cpus, shares_files=shares_files)


@contextmanager
def _initialised(folder: Path, **arguments: Any) -> Iterator[Any]:
    """Import and initialise Ray; yields its module.

    Args:
        folder: An empty folder of ours. Workers look for modules in the folder in which Ray is
            initialised, and the current one may be anybody's.
        **arguments: The arguments of ``ray.init``.
    """
    with _sigterm_kept():
        import ray  # noqa: PLC0415 - an extra, and it takes a second

        for tries_left in reversed(range(_STARTS)):
            try:
                with safe_imports(), contextlib.chdir(folder):
                    ray.init(log_to_driver=False, logging_level="ERROR", **arguments)
                break
            except Exception as error:  # Ray raises many kinds, and Exception itself
                ray.shutdown()
                if not tries_left or "address" in arguments:
                    raise _translated(error, arguments.get("address", "")) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _translated(error: Exception, address: str) -> ClusterError:
    """What an error of ``ray.init`` means for the user."""
    text = " ".join(str(error).split())
    if "ersion mismatch" in text:
        return ClusterError(
            f"The Ray cluster at {address} has another version: {text}",
            next_step="Install the same versions of Ray and Python here and on all nodes.",
        )
    if not address:
        return ClusterError(
            f"Ray cannot be started on this machine: {text}",
            next_step="Check the free memory and the space in the folder for temporary files, or "
            "run without --ray.",
        )
    return ClusterError(
        f"There is no Ray cluster of this machine at {address}: {text}", next_step=_ON_A_NODE
    )


def _check_address(address: str) -> None:
    """Refuse an address that cannot be one, or where nobody answers; Ray would wait a minute.

    Raises:
        ClusterError: With the cause.
    """
    if address == "auto":
        return
    if address.startswith("ray://"):
        raise ClusterError(
            f"{address} is an address for Ray Client, which cannot follow the progress of jobs.",
            next_step=_ON_A_NODE,
        )
    host, _, port = address.rpartition(":")
    if not re.fullmatch(r"[\w.-]+|\[[\da-fA-F:]+\]", host) or not re.fullmatch(r"\d{1,5}", port):
        raise ClusterError(
            f"{address!r:.200} is not the address of a Ray cluster.",
            next_step="Use --ray HOST:PORT, --ray auto, or --ray alone for this machine.",
        )
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_S):
            pass
    except (OSError, OverflowError) as error:
        raise ClusterError(
            f"No Ray cluster answers at {address} ({error}).",
            next_step="Check that its head runs (`ray status`), and that this machine reaches it.",
        ) from error


def _short_folder() -> Path:
    """The folder for temporary files, or the system's where its path is too long for sockets."""
    folder = Path(tempfile.gettempdir())
    return folder if len(str(folder)) <= _LONGEST_FOLDER else _SYSTEM_FOLDER


@functools.cache
def _token() -> str:
    """The token of all Rays that this process starts: Ray reads it once."""
    return secrets.token_hex(32)


@contextmanager
def _private_token() -> Iterator[None]:
    """Let only this process and those below it use the Ray that is started in the ``with``.

    Ray sets the mode itself, and would not do so completely if it were set already.
    """
    before = {name: os.environ.pop(name, None) for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN")}
    os.environ["RAY_AUTH_TOKEN"] = _token()
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _sigterm_kept() -> Iterator[None]:
    """Keep SIGTERM for this process, which ends all others itself.

    Ray replaces its handler. The processes that Ray starts inherit that it is blocked, as Ctrl-C
    is in them: either may be sent to all processes of a terminal or a service.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGTERM)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
