"""``stallward bench kills``: kill -9 at random instants under pressure, and what is left of it.

A daemon with a controller that moves every lever all the time runs on a small sandbox whose
programs starve each other. Its processes are killed at random instants: the loop, the service,
the recorder, several of them, the guardian, or all. A second later (after all: at the next
start, or after ``stallward restore``) every setting of the groups, of the node and of the
processes is read from the kernel and compared with what it was before the daemon came.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
import psutil

from stallward.actuator.config import (
    ControlConfig,
    DaemonConfig,
    JournalConfig,
    NodeConfig,
    ProtectedConfig,
    RecordConfig,
    RestartConfig,
    ServiceConfig,
    SlotConfig,
    config_toml,
)
from stallward.actuator.daemon import Daemon, DaemonPids
from stallward.actuator.errors import DaemonError
from stallward.actuator.guard import Budgets
from stallward.actuator.paths import Paths
from stallward.env.cache import default_cache_dir
from stallward.env.sandbox import Sandbox, open_sandbox
from stallward.evaluation.node_settings import Settings, changed, read_settings
from stallward.evaluation.progress import Report, silent

_MIB: Final = 1 << 20
_LIMIT_BYTES: Final = 112 * _MIB
_SWAP_BYTES: Final = 512 * _MIB
CHECK_S: Final = 1.0
"""When everything must be as it was after a kill."""
_HELD_WAIT_S: Final = 10.0
_LOOK_S: Final = 0.01
_GONE_S: Final = 10.0

# Touches its memory for ever, in one read-only mapped file or in anonymous pages.
_PROGRAM: Final = """
import mmap, sys, time
size, pause_s, path = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
if path:
    with open(path, "rb") as file:
        pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    while True:
        for offset in range(0, size, 4096):
            pages[offset]
        time.sleep(pause_s)
pages = mmap.mmap(-1, size)
while True:
    for offset in range(0, size, 4096):
        pages[offset] = 1
    time.sleep(pause_s)
"""

WHO: Final[dict[str, tuple[float, tuple[str, ...]]]] = {
    "loop": (0.45, ("loop",)),
    "service": (0.06, ("service",)),
    "loop and service": (0.20, ("loop", "service")),
    "recorder": (0.03, ("recorder",)),
    "loop, service and recorder": (0.06, ("loop", "service", "recorder")),
    "guardian": (0.09, ("guardian",)),
    "all": (0.11, ("guardian", "loop", "service", "recorder")),
}
"""Whom to kill, and the share of the kills."""
MEANINGS: Final = {
    "kills": "kills at random instants, under pressure",
    "found_held": "of these, with something paused, limited or tuned at that instant",
    "left_after_1_s": "kills of which anything was left 1 s later (all: at the next start)",
    "loop_lost": "kills beside the loop after which the loop did not go on",
    "restore_p50_ms": "kill to everything as it was",
    "restore_max_ms": "the same, slowest",
    "restart_max_ms": "all killed: start of `stallward restore` or the daemon to all as it was",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """One kill and what came of it."""

    who: str
    took_s: float = 0.0
    """Everything, from the kill before to the end of the look."""
    held: bool
    """Whether anything was changed at that instant."""
    left: tuple[str, ...] = ()
    """What was not as it was when it should have been."""
    restore_s: float | None = None
    """When everything was as it was; ``None`` where nothing had to be put back."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """Kills so far."""

    kills: list[Kill] = field(default_factory=list)

    def figures(self) -> dict[str, float | None]:
        """What ``stallward bench kills`` prints."""
        alive = [k.restore_s for k in self.kills if k.who != "all" and k.restore_s is not None]
        dead = [k.restore_s for k in self.kills if k.who == "all" and k.restore_s is not None]
        beside = [kill for kill in self.kills if not _ends_holding(kill.who)]
        return {
            "kills": float(len(self.kills)),
            "found_held": float(sum(kill.held for kill in self.kills)),
            "left_after_1_s": float(
                sum(bool(kill.left) for kill in self.kills if _ends_holding(kill.who))
            ),
            "loop_lost": float(sum(bool(kill.left) for kill in beside)),
            "restore_p50_ms": 1e3 * float(np.median(alive)) if alive else None,
            "restore_max_ms": 1e3 * max(alive) if alive else None,
            "restart_max_ms": 1e3 * max(dead) if dead else None,
        }


def _ends_holding(who: str) -> bool:
    """Whether a kill ends the loop, so that everything must be put back."""
    return not {"loop", "guardian"}.isdisjoint(WHO[who][1])


def bench_kills(*, kills: int, seed: int = 1, report: Report = silent) -> Tally:
    """Kill a daemon's processes ``kills`` times and look at what is left.

    Raises:
        StallwardError: If this machine cannot hold the sandbox, or the daemon does not start.
    """
    rng = random.Random(seed)  # noqa: S311 - chooses whom to kill
    tally = Tally()
    names = list(WHO)
    with (
        open_sandbox(
            slots=2,
            limit_bytes=_LIMIT_BYTES,
            swap_bytes=_SWAP_BYTES,
            cache_dir=default_cache_dir(),
        ) as sandbox,
        _programs(sandbox) as pids,
        Campaign(sandbox, pids, rng) as campaign,
    ):
        for number in range(kills):
            report(f"{number} kills", number / kills)
            who = rng.choices(names, [WHO[name][0] for name in names])[0]
            began_s = time.monotonic()
            kill = campaign.kill(who)
            tally.kills.append(replace(kill, took_s=time.monotonic() - began_s))
    report("done", 1.0)
    return tally


@contextlib.contextmanager
def _programs(sandbox: Sandbox) -> Iterator[tuple[int, ...]]:
    """The programs that starve each other; killed with the sandbox."""
    folder = sandbox.folder
    app, file_hog, anon_hog = folder / "app.data", folder / "hog.data", ""
    started = []
    try:
        for group, size_mib, pause_s, path in (
            (sandbox.protected, 24, 0.05, app),
            (sandbox.slots[0], 80, 0.0, anon_hog),
            (sandbox.slots[1], 60, 0.0, file_hog),
        ):
            if path:
                _write_uncached(Path(path), size_mib)
            arguments = [str(size_mib * _MIB), str(pause_s), str(path)]
            process = subprocess.Popen([sys.executable, "-c", _PROGRAM, *arguments])
            started.append(process)
            group.add_pid(process.pid)
        yield tuple(process.pid for process in started)
    finally:
        sandbox.kill()
        for process in started:
            process.kill()
            process.wait()


def _write_uncached(path: Path, size_mib: int) -> None:
    """Write a file of which no page stays cached: who reads it first is charged for it."""
    with path.open("wb") as file:
        for _ in range(size_mib):
            file.write(bytes(_MIB))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


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
        return read_settings(self._groups, self._pids, Paths())

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
        if not _ends_holding(who):
            return Kill(who=who, held=held, left=_gone_on(pids))
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
            self._daemon = Daemon(self._config)
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
        return restore_s, self._changed()

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
        module = "stallward.actuator.restore_command"
        command = [sys.executable, "-m", module, "--config", str(self._config_path)]
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL)

    def _start_calm(self) -> None:
        control = replace(self._config.control, controller="none")
        with Daemon(replace(self._config, control=control)):
            pass


def campaign_config(sandbox: Sandbox) -> DaemonConfig:
    """The daemon that is killed: a new loop acts only after the look at what is left."""
    folder = sandbox.folder
    delay_s = CHECK_S / 4  # it takes as long to start, and then storm waits
    return DaemonConfig(
        node=NodeConfig(zone=sandbox.zone.name),
        protected=ProtectedConfig(group=sandbox.protected.name, groups=(sandbox.load.name,)),
        background=tuple(
            SlotConfig(name=f"slot{index}", group=group.name, floor_bytes=4 * _MIB)
            for index, group in enumerate(sandbox.slots)
        ),
        service=ServiceConfig(socket=folder / "kills.sock"),
        journal=JournalConfig(path=folder / "kills.journal"),
        control=ControlConfig(controller=f"storm:idle_s={CHECK_S / 2}", seed=1),
        guard=Budgets(lift_budgets=True),
        record=RecordConfig(dir=folder / "kills"),
        restart=RestartConfig(delay_s=delay_s, max_delay_s=delay_s, max_per_minute=10_000),
    )


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _gone_on(pids: DaemonPids) -> tuple[str, ...]:
    """What is wrong with a loop beside which something was killed; empty if it goes on."""
    if pids.loop is None:
        return ()  # it was being started
    first = _slices(pids.loop)
    time.sleep(CHECK_S)
    last = _slices(pids.loop)
    if first is None or last is None:
        return (f"the loop {pids.loop} is gone",)
    return () if last > first else (f"the loop {pids.loop} does not run",)


def _slices(pid: int) -> int | None:
    """How often a process was given a CPU."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[2])
    except (OSError, ValueError, IndexError):
        return None
