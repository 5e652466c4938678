"""Running a daemon from a program: starting it, waiting for it, and always stopping it again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import psutil

from stallward.actuator.client.client import ActuatorClient
from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.load import config_toml
from stallward.actuator.errors import ActuatorError, DaemonError, DaemonUnavailableError
from stallward.actuator.ipc.options import GuardianOptions, Modules
from stallward.actuator.runtime.process_start import command_line
from stallward.actuator.runtime.temporary_folders import make_temporary_folder, remove_folder
from stallward.actuator.targets.sources import follower_of_pods

_CONFIG_NAME: Final = "daemon.toml"
_POLL_S: Final = 0.05
_STOP_S: Final = 15.0
_ORPHANS_S: Final = 5.0
_LAST_WORDS: Final = 8
_STALE_S: Final = 60.0
"""An owner dead for so long has no guardian any more that still uses the folder."""
_MODULES: Final = Modules()
_CHILDREN: Final = ("loop", "service", "recorder", "collector", "work")


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonPids:
    """The daemon's processes; ``None`` for one that is not running now."""

    guardian: int
    loop: int | None = None
    service: int | None = None
    recorder: int | None = None
    collector: int | None = None
    work: int | None = None

    @property
    def all(self) -> tuple[int, ...]:
        """The pids of all processes that run."""
        children = (getattr(self, name) for name in _CHILDREN)
        pids = (self.guardian, *children)
        return tuple(pid for pid in pids if pid is not None)


class Daemon:
    """A daemon of our own, as a context manager.

    It stops when this process ends, however it ends.

    Args:
        config: The daemon's configuration.
        log_path: The file for its messages; a temporary file if not given.
        owned: A temporary folder of this process, named ``stallward-...``, for the daemon's files.
            If this process is killed, the daemon removes the folder when it ends. A new folder if
            not given.
    """

    def __init__(
        self, config: DaemonConfig, log_path: Path | None = None, *, owned: Path | None = None
    ) -> None:
        self.config = config
        self._log_path = log_path
        self._owned = owned
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, timeout_s: float = 20.0) -> None:
        """Start the daemon and wait until it ticks and serves.

        Raises:
            ConfigError: If pods are targets, and what follows them is not installed.
            DaemonError: If it does not; the message has its last words, and no process is left.
        """
        if self._process is not None:
            raise DaemonError("This daemon has been started already.")
        pods_module = follower_of_pods() if self.config.follows_pods else ""
        self._folder = folder = make_temporary_folder("daemon", self._owned, stale_s=_STALE_S)
        config_path = folder / _CONFIG_NAME
        config_path.write_text(config_toml(self.config), encoding="utf-8")
        self._log_path = self._log_path or folder / "daemon.log"
        self._started_s = time.monotonic()
        owner_read, owner_write = os.pipe()
        options = GuardianOptions(
            config=config_path,
            owner_fd=owner_read,
            owned_folder=self._owned or folder,
            pods_module=pods_module,
        )
        try:
            with self._log_path.open("ab") as log:
                self._process = subprocess.Popen(
                    command_line(_MODULES.guardian, options),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(owner_read,),
                    start_new_session=True,
                )
        finally:
            os.close(owner_read)
        self._owner_write = owner_write
        try:
            self._wait_serving(timeout_s)
        except BaseException:
            self.stop()
            raise

    def _wait_serving(self, timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        with self.client() as client:
            while True:
                self._check_alive()
                with contextlib.suppress(DaemonUnavailableError):
                    status = client.wait_ready(0.5)
                    # The service of another daemon on this socket would be older than this one.
                    ours = status.uptime_s <= time.monotonic() - self._started_s
                    if ours and status.ticks > 0:
                        return
                if time.monotonic() > deadline_s:
                    raise DaemonError(
                        f"The daemon does not serve within {timeout_s:g} s. {self.last_words()}"
                    )
                time.sleep(_POLL_S)

    def _check_alive(self) -> None:
        status = None if self._process is None else self._process.poll()
        if status is not None:
            raise DaemonError(f"The daemon ended with status {status}. {self.last_words()}")

    def last_words(self) -> str:
        """Return the last lines of the daemon's log."""
        if self._log_path is None or not self._log_path.exists():
            return ""
        lines = self._log_path.read_text("utf-8", "replace").strip().splitlines()
        return "\n".join(lines[-_LAST_WORDS:])

    def client(self) -> ActuatorClient:
        """Make a client of this daemon; the caller closes it."""
        return ActuatorClient(self.config.service.socket)

    @property
    def running(self) -> bool:
        """Whether the guardian is alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def pids(self) -> DaemonPids:
        """Return the pids of the daemon's processes now.

        Raises:
            DaemonError: If the daemon is not running.
        """
        if self._process is None or self._process.poll() is not None:
            raise DaemonError("The daemon is not running.")
        guardian = self._process.pid
        pids = {}
        for child in _children(guardian):
            arguments = _arguments(child)
            for name in _CHILDREN:
                if getattr(_MODULES, name) in arguments:
                    pids[name] = child.pid
        return DaemonPids(guardian=guardian, **pids)

    def reload(self, config: DaemonConfig) -> None:
        """Ask the daemon to continue with another configuration.

        It takes another target, other controllers and other budgets; for everything else it writes
        to its log that it takes a restart.

        Raises:
            DaemonError: If the daemon is not running.
        """
        if self._process is None or self._folder is None:
            raise DaemonError("The daemon is not running.")
        self.config = config
        (self._folder / _CONFIG_NAME).write_text(config_toml(config), encoding="utf-8")
        self._process.send_signal(signal.SIGHUP)

    def stop(self) -> None:
        """Stop the daemon; processes that do not stop in time are killed. It may be repeated."""
        process, self._process = self._process, None
        if process is None:
            return
        children = _children(process.pid) if process.poll() is None else []
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            _wait_gone(children)
        os.close(self._owner_write)
        if self._folder is not None:
            with contextlib.suppress(ActuatorError):
                remove_folder(self._folder)
            self._folder = None


def _children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children()
    except psutil.NoSuchProcess:
        return []


def _arguments(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:  # also raised for a zombie
        return []


def _wait_gone(children: list[psutil.Process]) -> None:
    """Give processes that lost their guardian a moment to restore and exit, then kill them."""
    _, alive = psutil.wait_procs(children, timeout=_ORPHANS_S)
    for child in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
