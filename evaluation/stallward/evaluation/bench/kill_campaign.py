"""A daemon that is killed again and again, and what is looked at after each kill."""

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
from stallward.env.sandbox.sandbox import Sandbox
from stallward.evaluation.bench.kernel_settings import Settings, changed, read_settings
from stallward.evaluation.bench.kill_tally import WHO, Kill, ends_holding

CHECK_S: Final = 1.0
"""When everything must be as it was after a kill."""
_HELD_WAIT_S: Final = 10.0
_LOOK_S: Final = 0.01
_GONE_S: Final = 10.0
_FLOOR_BYTES: Final = 4 << 20
_RESTORE: Final = "stallward.actuator.guardian.restore_command"


class Campaign:
    """A daemon that is killed again and again; a context manager.

    Args:
        sandbox: Its groups.
        pids: The programs in it.
        rng: Draws the instants.
    """

    def __init__(self, sandbox: Sandbox, pids: tuple[int, ...], rng: random.Random) -> None:
        self._groups = tuple(
            group.name for group in (sandbox.zone, sandbox.protected, *sandbox.slots)
        )
        self._pids = pids
        self._rng = rng
        self._config = campaign_config(sandbox)
        self._folder = sandbox.folder
        self._paths = sandbox.paths
        self._config_path = sandbox.folder / "kills.toml"
        self._config_path.write_text(config_toml(self._config), encoding="utf-8")
        self._daemon: Daemon | None = None
        self._before: Settings = {}

    def __enter__(self) -> Campaign:
        """Note how everything is before the daemon comes."""
        self._before = self._read()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the daemon in order."""
        if self._daemon is not None:
            self._daemon.stop()

    def _read(self) -> Settings:
        return read_settings(self._groups, self._pids, self._paths)

    def _changed(self) -> tuple[str, ...]:
        return changed(self._before, self._read())

    def kill(self, who: str) -> Kill:
        """Kill ``who`` at a random instant and look at what is left."""
        daemon = self._running()
        self._wait_for_an_instant(daemon)
        pids, victims = self._victims(daemon, who)
        gap_s = self._rng.choice([0.0, 0.0, self._rng.uniform(0.0, 0.005)])
        held = bool(self._changed())
        killed_s = time.monotonic()
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            if gap_s:
                time.sleep(gap_s)
        if not ends_holding(who):
            return Kill(who=who, held=held, left=_gone_on(pids, self._paths.proc))
        if who == "all":
            return self._start_after_all(pids, held=held)
        restore_s, left = self._watch_restoring(killed_s)
        if who == "guardian":
            self._end(pids)
        return Kill(who=who, held=held, left=left, restore_s=restore_s)

    def _victims(self, daemon: Daemon, who: str) -> tuple[DaemonPids, list[int]]:
        """Whom to kill, in a random order; one that is being started again is waited for."""
        deadline_s = time.monotonic() + _GONE_S
        while True:
            pids = daemon.pids
            found = [getattr(pids, name) for name in WHO[who][1]]
            victims = [pid for pid in found if pid is not None]
            if len(victims) == len(found):
                self._rng.shuffle(victims)
                return pids, victims
            if time.monotonic() > deadline_s:
                raise DaemonError(f"No {who} to kill. {daemon.last_words()}")
            time.sleep(_LOOK_S)

    def _running(self) -> Daemon:
        if self._daemon is None:
            self._daemon = Daemon(self._config, owned=self._folder)
            self._daemon.start()
        return self._daemon

    def _wait_for_an_instant(self, daemon: Daemon) -> None:
        """Mostly until something is held and a bit longer; else any time, starting included."""
        if self._rng.random() < 0.85:
            deadline_s = time.monotonic() + _HELD_WAIT_S
            while not self._changed():
                if time.monotonic() > deadline_s:
                    raise DaemonError(f"The daemon holds nothing. {daemon.last_words()}")
                time.sleep(_LOOK_S)
            time.sleep(self._rng.uniform(0.0, 0.4))
        else:
            time.sleep(self._rng.uniform(0.0, 1.5))

    def _watch_restoring(self, killed_s: float) -> tuple[float | None, tuple[str, ...]]:
        """When everything was as it was, and what is not so :data:`CHECK_S` after the kill."""
        restore_s = None
        while (now_s := time.monotonic()) < killed_s + CHECK_S:
            left = self._changed()
            restore_s = None if left else restore_s or now_s - killed_s
            time.sleep(_LOOK_S)
        left = self._changed()
        if left:
            # Late enough, it may be what the next loop does.
            left = (*left, f"looked at until {time.monotonic() - killed_s:.2f} s after the kill")
        return restore_s, left

    def _end(self, pids: DaemonPids) -> None:
        """Wait until the processes are gone, and forget the daemon."""
        deadline_s = time.monotonic() + _GONE_S
        while any(_alive(pid) for pid in pids.all) and time.monotonic() < deadline_s:
            time.sleep(_LOOK_S)
        if self._daemon is not None:
            self._daemon.stop()
            self._daemon = None

    def _start_after_all(self, pids: DaemonPids, *, held: bool) -> Kill:
        self._end(pids)
        held = held or bool(self._changed())
        began_s = time.monotonic()
        with ThreadPoolExecutor(max_workers=1) as pool:
            again = self._restore_alone if self._rng.random() < 0.5 else self._start_calm
            done = pool.submit(again)
            while self._changed() and not done.done():
                time.sleep(_LOOK_S)
            restore_s = time.monotonic() - began_s
            done.result()
        return Kill(who="all", held=held, left=self._changed(), restore_s=restore_s)

    def _restore_alone(self) -> None:
        command = command_line(_RESTORE, RestoreOptions(config=self._config_path))
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL)

    def _start_calm(self) -> None:
        control = replace(self._config.control, controller="none")
        with Daemon(replace(self._config, control=control), owned=self._folder):
            pass


def campaign_config(sandbox: Sandbox) -> DaemonConfig:
    """The daemon that is killed: a new loop acts only after the look at what is left."""
    folder = sandbox.folder
    delay_s = CHECK_S / 4  # it takes as long to start, and then storm waits
    return DaemonConfig(
        node=NodeConfig.at(sandbox.paths, zone=sandbox.zone.name),
        protected=ProtectedConfig(group=sandbox.protected.name, groups=(sandbox.load.name,)),
        background=tuple(
            SlotConfig(name=f"slot{index}", group=group.name, floor_bytes=_FLOOR_BYTES)
            for index, group in enumerate(sandbox.slots)
        ),
        service=ServiceConfig(socket=folder / "kills.sock"),
        journal=JournalConfig(path=folder / "kills.journal"),
        control=ControlConfig(controller=f"storm:idle_s={1.25 * CHECK_S}", seed=1),
        guard=Budgets(lift_budgets=True),
        record=RecordConfig(dir=folder / "kills"),
        restart=RestartConfig(delay_s=delay_s, max_delay_s=delay_s, max_per_minute=10_000),
    )


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _gone_on(pids: DaemonPids, proc: Path) -> tuple[str, ...]:
    """What is wrong with a loop beside which something was killed; empty if it goes on."""
    if pids.loop is None:
        return ()  # it was being started
    first = _slices(proc, pids.loop)
    time.sleep(CHECK_S)
    last = _slices(proc, pids.loop)
    if first is None or last is None:
        return (f"the loop {pids.loop} is gone",)
    return () if last > first else (f"the loop {pids.loop} does not run",)


def _slices(proc: Path, pid: int) -> int | None:
    """How often a process was given a CPU."""
    try:
        return int((proc / str(pid) / "schedstat").read_text(encoding="ascii").split()[2])
    except (OSError, ValueError, IndexError):
        return None
