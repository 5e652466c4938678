"""A daemon that is killed again and again, with checks after each kill."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final

import psutil

from stallward.actuator.client.daemon_process import Daemon, DaemonPids
from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.load import config_toml
from stallward.actuator.config.tables import (
    ControlConfig,
    JournalConfig,
    NodeConfig,
    ProtectedConfig,
    RecordConfig,
    RestartConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.errors import DaemonError
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.guardian.restore_command import RestoreOptions
from stallward.actuator.runtime.process_start import command_line
from stallward.agent.controller import needs_threads
from stallward.agent.registry import make_controller
from stallward.env.sandbox.sandbox import Sandbox
from stallward.evaluation.bench.kernel_settings import Settings, changed_settings, read_settings
from stallward.evaluation.bench.kills.programs import Programs
from stallward.evaluation.bench.kills.tally import KILL_TARGETS, Kill, requires_restore

CHECK_S: Final = 1.0
"""Time after a kill within which everything must be restored."""
STORM: Final = f"storm:idle_s={1.25 * CHECK_S}"
"""The controller that moves every lever all the time."""
ENDING_STORM: Final = f"{STORM},ends=0.2"
"""The same, which also ends a program with every fifth new state."""
_CHANGE_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.01
_PROCESS_TIMEOUT_S: Final = 10.0
_FLOOR_BYTES: Final = 4 << 20
_RESTORE: Final = "stallward.actuator.guardian.restore_command"


class Campaign:
    """A daemon that is killed again and again; a context manager.

    Args:
        sandbox: The sandbox that the daemon controls.
        programs: The programs in the sandbox.
        rng: Draws the order and the times of the kills.
        controller: The daemon's controller.
        ends: Whether it may end programs of the background.

    Attributes:
        programs_ended: How many programs of the background ended, and were started again.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        programs: Programs,
        rng: random.Random,
        controller: str = STORM,
        *,
        ends: bool = False,
    ) -> None:
        self._groups = tuple(
            group.name for group in (sandbox.zone, sandbox.protected, *sandbox.slots)
        )
        self._programs = programs
        self._rng = rng
        self.programs_ended = 0
        self._config = campaign_config(sandbox, controller, ends=ends)
        self._folder = sandbox.folder
        self._paths = sandbox.paths
        self._config_path = sandbox.folder / "kills.toml"
        self._config_path.write_text(config_toml(self._config), encoding="utf-8")
        self._daemon: Daemon | None = None
        self._before: Settings = {}

    def __enter__(self) -> Campaign:
        """Read all settings before the daemon is started."""
        self._before = self._read()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the daemon in order."""
        if self._daemon is not None:
            self._daemon.stop()

    def _read(self) -> Settings:
        return read_settings(self._groups, self._programs.pids, self._paths)

    def _changed(self) -> tuple[str, ...]:
        return changed_settings(self._before, self._read())

    def kill(self, target: str) -> Kill:
        """Kill the processes of ``target`` at a random instant and check what follows."""
        self._replace_ended()
        kill = self._kill(target)
        if self._programs.application_runs:
            return kill
        return replace(kill, problems=(*kill.problems, "the application was ended"))

    def _replace_ended(self) -> None:
        """Start a program again for each that has ended, and note its settings."""
        for pid, group in self._programs.started_again().items():
            # The node's own settings are read, too, and may be changed now: the first ones count.
            self._before = {**read_settings((), (pid,), self._paths), **self._before}
            group.add_pid(pid)
            self.programs_ended += 1

    def _kill(self, target: str) -> Kill:
        daemon = self._running_daemon()
        self._wait_for_an_instant(daemon)
        pids, victims = self._victims(daemon, target)
        gap_s = self._rng.choice([0.0, 0.0, self._rng.uniform(0.0, 0.005)])
        held = bool(self._changed())
        killed_s = time.monotonic()
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            if gap_s:
                time.sleep(gap_s)
        if not requires_restore(target):
            problems = _loop_problems(pids, self._paths.proc)
            return Kill(target=target, held=held, problems=problems)
        if target == "all":
            return self._restart_after_all(pids, held=held)
        restore_s, problems = self._watch_restoring(killed_s)
        if target == "guardian":
            self._await_end(pids)
        return Kill(target=target, held=held, problems=problems, restore_s=restore_s)

    def _victims(self, daemon: Daemon, target: str) -> tuple[DaemonPids, list[int]]:
        """The processes to kill, in a random order; a process that is restarting is awaited."""
        deadline_s = time.monotonic() + _PROCESS_TIMEOUT_S
        while True:
            pids = daemon.pids
            of_target = [getattr(pids, name) for name in KILL_TARGETS[target][1]]
            victims = [pid for pid in of_target if pid is not None]
            if len(victims) == len(of_target):
                self._rng.shuffle(victims)
                return pids, victims
            if time.monotonic() > deadline_s:
                raise DaemonError(f"No {target} to kill. {daemon.last_words()}")
            time.sleep(_POLL_S)

    def _running_daemon(self) -> Daemon:
        if self._daemon is None:
            self._daemon = Daemon(self._config, owned=self._folder)
            self._daemon.start()
        return self._daemon

    def _wait_for_an_instant(self, daemon: Daemon) -> None:
        """Wait for the time of the next kill.

        Mostly it is a little after the daemon has changed a setting; else it is any time, even
        while the daemon starts.
        """
        if self._rng.random() < 0.85:
            deadline_s = time.monotonic() + _CHANGE_TIMEOUT_S
            while not self._changed():
                if time.monotonic() > deadline_s:
                    raise DaemonError(f"The daemon changes no setting. {daemon.last_words()}")
                time.sleep(_POLL_S)
            time.sleep(self._rng.uniform(0.0, 0.4))
        else:
            time.sleep(self._rng.uniform(0.0, 1.5))

    def _watch_restoring(self, killed_s: float) -> tuple[float | None, tuple[str, ...]]:
        """The time until restoration, and the changes that remain after :data:`CHECK_S`."""
        restore_s = None
        while (now_s := time.monotonic()) < killed_s + CHECK_S:
            changes = self._changed()
            restore_s = None if changes else restore_s or now_s - killed_s
            time.sleep(_POLL_S)
        changes = self._changed()
        if changes:
            # If this is late, the next loop may have made the changes.
            checked_s = time.monotonic() - killed_s
            changes = (*changes, f"checked until {checked_s:.2f} s after the kill")
        return restore_s, changes

    def _await_end(self, pids: DaemonPids) -> None:
        """Wait until the processes have ended, and forget the daemon."""
        deadline_s = time.monotonic() + _PROCESS_TIMEOUT_S
        while any(_alive(pid) for pid in pids.all) and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)
        if self._daemon is not None:
            self._daemon.stop()
            self._daemon = None

    def _restart_after_all(self, pids: DaemonPids, *, held: bool) -> Kill:
        self._await_end(pids)
        held = held or bool(self._changed())
        began_s = time.monotonic()
        with ThreadPoolExecutor(max_workers=1) as pool:
            restore = self._run_restore if self._rng.random() < 0.5 else self._run_calm_daemon
            done = pool.submit(restore)
            while self._changed() and not done.done():
                time.sleep(_POLL_S)
            restore_s = time.monotonic() - began_s
            done.result()
        return Kill(target="all", held=held, problems=self._changed(), restore_s=restore_s)

    def _run_restore(self) -> None:
        command = command_line(_RESTORE, RestoreOptions(config=self._config_path))
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL)

    def _run_calm_daemon(self) -> None:
        control = replace(self._config.control, controller="none")
        with Daemon(replace(self._config, control=control), owned=self._folder):
            pass


def campaign_config(
    sandbox: Sandbox, controller: str = STORM, *, ends: bool = False
) -> DaemonConfig:
    """The daemon that is killed; a restarted loop acts only after the checks of a kill.

    A controller of the application's threads has the consent that it needs.

    Args:
        sandbox: The sandbox that it controls.
        controller: Its controller.
        ends: Whether that may end programs of the background.
    """
    folder = sandbox.folder
    # Starting takes as long again, and then STORM waits; another controller acts at once.
    delay_s = CHECK_S / 4 if controller.startswith(STORM) else 1.25 * CHECK_S
    return DaemonConfig(
        node=NodeConfig.at(sandbox.paths, zone=sandbox.zone.name),
        protected=ProtectedConfig(group=sandbox.protected.name, groups=(sandbox.load.name,)),
        background=tuple(
            SlotConfig(name=f"slot{index}", group=group.name, floor_bytes=_FLOOR_BYTES)
            for index, group in enumerate(sandbox.slots)
        ),
        service=ServiceConfig(socket=folder / "kills.sock"),
        journal=JournalConfig(path=folder / "kills.journal"),
        control=ControlConfig(controller=controller, seed=1),
        guard=Budgets(
            lift_budgets=True,
            allow_terminate=ends,
            allow_protected_threads=needs_threads(make_controller(controller)),
        ),
        record=RecordConfig(dir=folder / "kills"),
        restart=RestartConfig(delay_s=delay_s, max_delay_s=delay_s, max_per_minute=10_000),
    )


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _loop_problems(pids: DaemonPids, proc: Path) -> tuple[str, ...]:
    """What is wrong with the loop after other processes were killed; empty if it runs on."""
    if pids.loop is None:
        return ()  # it was being started
    first = _timeslices(proc, pids.loop)
    time.sleep(CHECK_S)
    last = _timeslices(proc, pids.loop)
    if first is None or last is None:
        return (f"the loop {pids.loop} is gone",)
    return () if last > first else (f"the loop {pids.loop} does not run",)


def _timeslices(proc: Path, pid: int) -> int | None:
    """How many times a process was given a CPU, or ``None`` if it has ended."""
    try:
        return int((proc / str(pid) / "schedstat").read_text(encoding="ascii").split()[2])
    except (OSError, ValueError, IndexError):
        return None
