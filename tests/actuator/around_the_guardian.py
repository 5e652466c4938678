"""For tests of the guardian: a configuration, a dead daemon, and a scripted loop's guardian."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from child_path import python_path

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.load import config_toml
from stallward.actuator.config.tables import (
    ControlConfig,
    JournalConfig,
    NodeConfig,
    ProtectedConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.ipc.options import GuardianOptions
from stallward.actuator.journal.disk import Journal
from stallward.actuator.journal.entries import FileValue, Frozen
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.runtime.process_start import command_line

WAIT_S = 120.0
"""The longest wait for anything, with room for a busy machine."""


def config_in(folder: Path, period_s: float = 0.1, **changes: object) -> DaemonConfig:
    values: dict[str, object] = {
        "node": NodeConfig(zone="z", proc=folder / "proc", cgroup=folder),
        "protected": ProtectedConfig(group="z/app"),
        "background": (SlotConfig(name="bg", group="z/bg"),),
        "service": ServiceConfig(socket=folder / "s.sock"),
        "journal": JournalConfig(path=folder / "journal"),
        "control": ControlConfig(tick_period_s=period_s),
    }
    return DaemonConfig(**{**values, **changes})  # type: ignore[arg-type]


def wait_until(true: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < deadline_s, "it did not happen"
        time.sleep(0.01)


class DeadDaemon:
    """The changes and the journal that a dead daemon left in a folder."""

    def __init__(self, folder: Path) -> None:
        self.knob, self.freeze = folder / "memory.high", folder / "cgroup.freeze"
        self.knob.write_text("90")
        self.freeze.write_text("1")
        self.path, self.config = folder / "state/journal", folder / "daemon.toml"
        boot = folder / "proc/sys/kernel/random"
        boot.mkdir(parents=True)
        (boot / "boot_id").write_text("boot")
        self.paths = Paths(proc=folder / "proc", cgroup=folder)
        journal = Journal(self.path, self.paths)
        journal.append((FileValue(self.knob, "60"), Frozen(self.freeze)))
        journal.close()
        self.write_config()

    def write_config(self, more: str = "") -> None:
        roots = f'proc = "{self.paths.proc}"\ncgroup = "{self.paths.cgroup}"'
        self.config.write_text(
            f'[node]\nzone = "z"\n{roots}\n[protected]\ngroup = "z/app"\n'
            f'[[background]]\nname = "bg"\ngroup = "z/bg"\n[service]\nsocket = "/run/s"\n'
            f'[journal]\npath = "{self.path}"\n{more}'
        )


class ScriptedDaemon:
    """A guardian in a process of its own, with a loop that runs ``script``; a context manager.

    Args:
        folder: The folder of its files.
        script: The program of the loop; see ``scripted_loop``.
        first: A program that the guardian's process runs before it becomes a guardian.
        changes: Tables of the configuration.
    """

    def __init__(self, folder: Path, script: str, *, first: str = "", **changes: object) -> None:
        self.folder = folder
        config = config_in(folder, **changes)  # type: ignore[arg-type]
        (folder / "daemon.toml").write_text(config_toml(config))
        (folder / "loop.py").write_text(script)
        (folder / "guardian.py").write_text(first)
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._listening.bind(str(folder / "notify"))
        self._listening.setblocking(False)
        self._said: list[str] = []
        options = GuardianOptions(config=folder / "daemon.toml")
        environment = {
            **os.environ,
            "PYTHONPATH": python_path(Path(__file__).parent),
            "NOTIFY_SOCKET": str(folder / "notify"),
        }
        self.process = subprocess.Popen(
            command_line("scripted_guardian", options), env=environment, process_group=0
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.stop()
        self._listening.close()

    def stop(self) -> int:
        """Stop it in order; returns its exit status."""
        self.process.terminate()
        return self.process.wait(WAIT_S)

    def make(self, name: str) -> None:
        """Make a file that the script waits for."""
        (self.folder / name).touch()

    @property
    def notes(self) -> list[str]:
        """The notes of the script so far."""
        try:
            return (self.folder / "notes").read_text().splitlines()
        except FileNotFoundError:
            return []

    def wait_for(self, note: str) -> None:
        """Wait until the script has written ``note``."""
        wait_until(lambda: note in self.notes)

    @property
    def said(self) -> list[str]:
        """The guardian's messages to its service manager so far, without ``STATUS=``."""
        while True:
            try:
                text = self._listening.recv(4096).decode()
            except BlockingIOError:
                return self._said
            self._said += [line.removeprefix("STATUS=") for line in text.splitlines()]

    def wait_until_said(self, beginning: str) -> None:
        """Wait until a message of the guardian to its manager begins with ``beginning``."""
        wait_until(lambda: any(line.startswith(beginning) for line in self.said))
