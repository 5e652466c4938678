"""A daemon that is killed again and again, with checks after each kill."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
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
from stallward.actuator.latency.config import LinesLatency
from stallward.actuator.runtime.process_start import command_line
from stallward.benchmarks.kernel_settings import Settings, changed_settings, read_settings
from stallward.benchmarks.kills.arms import STORM, KilledArm, one_controller
from stallward.benchmarks.kills.faults import MOST_AFTER_S, Faults, draw_window
from stallward.benchmarks.kills.programs import Programs, latency_log
from stallward.benchmarks.kills.tally import CHECK_S, KILL_TARGETS, Kill, requires_restore
from stallward.env.sandbox.sandbox import Sandbox
from stallward.evaluation.errors import ComparisonError
from stallward.evaluation.remote import remote_controller

# ---------- The configuration of a daemon that is killed

TARGET_MS: Final = 20.0
"""The latency target. The application misses it under pressure, so that those who act on it do."""
_FLOOR_BYTES: Final = 4 << 20


def campaign_config(
    sandbox: Sandbox, arm: KilledArm, *, faults_s: float = 0.0, several: bool = False
) -> DaemonConfig:
    """The daemon that is killed; a restarted loop acts only after the checks of a kill.

    A controller of the application's threads has the consent that it needs.

    Args:
        sandbox: The sandbox that it controls.
        arm: Its controller.
        faults_s: How long system calls fail after a kill at most.
        several: Whether the last group of the background is protected as well.
    """
    folder = sandbox.folder
    lines = LinesLatency(path=latency_log(sandbox), latency="0")
    protected: ProtectedConfig | tuple[ProtectedConfig, ...]
    protected = ProtectedConfig(group=sandbox.protected.name, groups=(sandbox.load.name,))
    slots = sandbox.slots
    if several:
        slots, last = slots[:-1], slots[-1]
        protected = (
            replace(protected, name="first", latency=lines),
            ProtectedConfig(name="last", group=last.name),
        )
    # Starting takes as long again, and then STORM waits; another controller acts at once.
    delay_s = CHECK_S / 4 if arm.controller.startswith(STORM) else 1.25 * CHECK_S
    delay_s += faults_s
    return DaemonConfig(
        node=NodeConfig.at(sandbox.paths, zone=sandbox.zone.name),
        protected=protected,
        background=tuple(
            SlotConfig(name=f"slot{index}", group=group.name, floor_bytes=_FLOOR_BYTES)
            for index, group in enumerate(slots)
        ),
        service=ServiceConfig(socket=folder / "kills.sock"),
        journal=JournalConfig(path=folder / "kills.journal"),
        latency=None if several else lines,
        control=ControlConfig(controller=arm.controller, slo_ms=TARGET_MS, seed=1),
        guard=Budgets(
            lift_budgets=True,
            allow_terminate=arm.may_end,
            allow_protected_threads=arm.schedules_threads,
        ),
        record=RecordConfig(dir=folder / "kills"),
        restart=RestartConfig(delay_s=delay_s, max_delay_s=delay_s, max_per_minute=10_000),
    )


# ---------- Whether the processes of a daemon are alive, and whether its loop runs on


def alive(pid: int) -> bool:
    """Whether a process has not ended."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def loop_problems(pids: DaemonPids, proc: Path) -> tuple[str, ...]:
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


_POLL_S: Final = 0.01
_START_TIMEOUT_S: Final = 60.0
"""A daemon starts in two seconds, and in many more on a machine that other work fills."""
_PROCESS_TIMEOUT_S: Final = 10.0
_RESTORE: Final = "stallward.actuator.guardian.restore_command"


@dataclass(frozen=True, slots=True, kw_only=True)
class Instants:
    """When a daemon is killed."""

    any_time_share: float = 0.15
    """The share of the kills at any time, even while the daemon starts. The others wait until the
    daemon has changed a setting."""
    patience_s: float = 60.0
    """How long they wait for it. A loop that was killed starts slowly on a busy machine."""
    without_change: bool = False
    """Whether to kill a daemon that has changed nothing by then; otherwise that is an error."""


IN_TURN: Final = Instants(patience_s=6.0, without_change=True)
"""When arms that take turns are killed: some of them change no setting here."""


class Campaign:
    """A daemon that is killed again and again; a context manager.

    Args:
        sandbox: The sandbox that the daemon controls.
        programs: The programs in the sandbox.
        rng: Draws the order and the times of the kills.
        instants: When it kills.
        faults: Lets the daemon's system calls fail around each kill; ``None`` for no faults.
        several: Whether the last group of the background is protected as well.

    Attributes:
        ended: Label of an arm -> how many programs of the background ended beside it, and were
            started again.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        programs: Programs,
        rng: random.Random,
        instants: Instants,
        faults: Faults | None = None,
        *,
        several: bool = False,
    ) -> None:
        self._sandbox = sandbox
        self._faults = faults
        self._several = several
        self._groups = tuple(
            group.name for group in (sandbox.zone, sandbox.protected, *sandbox.slots)
        )
        self._programs = programs
        self._rng = rng
        self._instants = instants
        self.ended: Counter[str] = Counter()
        self._paths = sandbox.paths
        self._config_path = sandbox.folder / "kills.toml"
        self._arm: KilledArm | None = None
        self._daemon: Daemon | None = None
        self._before: Settings = {}

    def __enter__(self) -> Campaign:
        """Read all settings before the daemon is started."""
        self._before = self._read()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the daemon in order."""
        if self._faults is not None:
            self._faults.end()
        self._stop_daemon()

    def _stop_daemon(self) -> None:
        if self._daemon is not None:
            self._daemon.stop()
            self._daemon = None

    def _read(self) -> Settings:
        return read_settings(self._groups, self._programs.pids, self._paths)

    def _changed(self) -> tuple[str, ...]:
        return changed_settings(self._before, self._read())

    def kill(self, target: str, arm: KilledArm) -> Kill:
        """Kill the processes of ``target`` at a random instant and check what follows.

        Args:
            target: A key of ``KILL_TARGETS``.
            arm: Whose daemon is killed. If the one that runs is another's, it is stopped before.
        """
        if self._arm is not arm or arm.client_file is not None:
            self._stop_daemon()  # that of a client, too: no two may hold a lease
        self._replace_ended()
        self._arm = arm
        daemon = self._running_daemon(arm)
        with _client(daemon, arm):
            self._wait_for_an_instant(daemon)
            kill = replace(self._kill(daemon, target), arm=arm.label)
        if self._programs.application_runs:
            return kill
        return replace(kill, problems=(*kill.problems, "the application was ended"))

    def _replace_ended(self) -> None:
        """Start a program again for each that has ended, and note its settings."""
        for pid, group in self._programs.started_again().items():
            # The node's own settings are read, too, and may be changed now: the first ones count.
            self._before = {**read_settings((), (pid,), self._paths), **self._before}
            group.add_pid(pid)
            if self._arm is not None:
                self.ended[self._arm.label] += 1

    def _kill(self, daemon: Daemon, target: str) -> Kill:
        pids, victims = self._victims(daemon, target)
        gap_s = self._rng.choice([0.0, 0.0, self._rng.uniform(0.0, 0.005)])
        window = None if self._faults is None else draw_window(self._rng)
        if self._faults is not None and window is not None:
            self._faults.begin(window)
            time.sleep(window.before_s)
        held = bool(self._changed())
        killed_s = time.monotonic()
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            if gap_s:
                time.sleep(gap_s)
        if self._faults is not None and window is not None:
            time.sleep(window.after_s)
            self._faults.end()
            killed_s = time.monotonic()  # what could not be undone before must be undone from now
        if not requires_restore(target):
            problems = loop_problems(pids, self._paths.proc)
            if problems:
                problems = (*problems, f"the daemon's last words: {daemon.last_words()}")
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

    def _running_daemon(self, arm: KilledArm) -> Daemon:
        if self._daemon is None:
            faults_s = 0.0 if self._faults is None else MOST_AFTER_S
            config = campaign_config(self._sandbox, arm, faults_s=faults_s, several=self._several)
            self._config_path.write_text(config_toml(config), encoding="utf-8")
            self._daemon = Daemon(config, owned=self._sandbox.folder)
            with contextlib.ExitStack() as stack:
                if self._faults is not None:
                    stack.enter_context(self._faults.inherited())
                self._daemon.start(_START_TIMEOUT_S)
        return self._daemon

    def _wait_for_an_instant(self, daemon: Daemon) -> None:
        """Wait for the time of the next kill.

        Mostly it is a little after the daemon has changed a setting; else it is any time, even
        while the daemon starts.
        """
        instants = self._instants
        if self._rng.random() >= 1.0 - instants.any_time_share:
            time.sleep(self._rng.uniform(0.0, 1.5))
            return
        deadline_s = time.monotonic() + instants.patience_s
        while not self._changed():
            if time.monotonic() > deadline_s:
                if instants.without_change:
                    break
                raise DaemonError(f"The daemon changes no setting. {daemon.last_words()}")
            time.sleep(_POLL_S)
        time.sleep(self._rng.uniform(0.0, 0.4))

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
        while any(alive(pid) for pid in pids.all) and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)
        self._stop_daemon()

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
        problems = self._changed()
        restored_s = None if problems else restore_s
        return Kill(target="all", held=held, problems=problems, restore_s=restored_s)

    def _run_restore(self) -> None:
        command = command_line(_RESTORE, RestoreOptions(config=self._config_path))
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL)

    def _run_calm_daemon(self) -> None:
        calm = campaign_config(self._sandbox, one_controller("none"))
        daemon = Daemon(calm, owned=self._sandbox.folder)
        daemon.start(_START_TIMEOUT_S)
        daemon.stop()


@contextlib.contextmanager
def _client(daemon: Daemon, arm: KilledArm) -> Iterator[None]:
    """Run the process that decides beside a daemon, if the arm has one."""
    clients = contextlib.ExitStack()
    if arm.client_file is not None:
        clients.enter_context(
            remote_controller(
                daemon.config.service.socket, arm.client_file, twin=arm.plans, slo_ms=TARGET_MS
            )
        )
    try:
        yield
    finally:
        with contextlib.suppress(ComparisonError):  # it ends with what is killed
            clients.close()
