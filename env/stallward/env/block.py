"""One live block: the programs of a scenario run in the sandbox for a while, and are read out.

Every block starts from the same state: groups empty, data evicted, programs new.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from stallward.actuator.groups import Group
from stallward.actuator.kernelfile import read_text
from stallward.env.cache import evict, prepare_data
from stallward.env.errors import WorkloadError
from stallward.env.launch import Program, start, wait_for
from stallward.env.lines import parse_requests, parse_units
from stallward.env.recording import Condition, Requests, Units
from stallward.env.sandbox import Sandbox
from stallward.env.scenario import (
    Command,
    LatencyLines,
    Places,
    Scenario,
    UnitLines,
    expand,
    running_phases,
)
from stallward.env.workloads.native import build_native

_MEMORY_DIR: Final = Path("/dev/shm")  # noqa: S108  (private folders are made below it)
_FOLDER_PREFIX: Final = "stallward-block-"
_READY_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 3.0
_POLL_S: Final = 0.1
_LOAD_WAIT_S: Final = 1.0
"""The load generator connects before the first arrival; that may take so long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSite:
    """What a daemon needs to know of the block it is to control.

    Args:
        scenario: The scenario that runs.
        condition: The condition it runs under.
        sandbox: The groups.
        latency: Where the requests are written, placeholders filled in.
        units: Where the background's work is written, in the order of the slots.
        limit_bytes: The zone's memory in this block.
        out_dir: Where the recording of ticks may be left.
    """

    scenario: Scenario
    condition: Condition
    sandbox: Sandbox
    latency: LatencyLines
    units: tuple[UnitLines, ...]
    limit_bytes: int
    out_dir: Path


DaemonFactory = Callable[[BlockSite], AbstractContextManager[object]]
"""Starts the daemon for a block; leaving the context stops it and restores everything."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockResult:
    """What one block left behind.

    Args:
        scenario: Name of the scenario.
        condition: What ran, and with how much memory.
        seed: Seed of the arrivals and the background.
        start_s: CLOCK_MONOTONIC at the first scheduled arrivals, burn-in included.
        end_s: CLOCK_MONOTONIC when the load was stopped.
        burn_in_s: How much of it at the start is not measured.
        limit_bytes: The zone's memory.
        requests: Every request, burn-in included.
        units: Work of the background, burn-in included.
        psi_some_share: Share of the measured time in which the protected group had a task
            stalled for memory; ``None`` if the kernel does not say.
        oom_kills: Processes the kernel killed for memory in the sandbox; not 0 means that the
            block is invalid.
    """

    scenario: str
    condition: Condition
    seed: int
    start_s: float
    end_s: float
    burn_in_s: float
    limit_bytes: int
    requests: Requests
    units: Units
    psi_some_share: float | None
    oom_kills: int

    @property
    def measured(self) -> Requests:
        """The requests scheduled after the burn-in."""
        keep = self.requests.scheduled_s >= self.start_s + self.burn_in_s
        return Requests(
            scheduled_s=self.requests.scheduled_s[keep],
            start_s=self.requests.start_s[keep],
            end_s=self.requests.end_s[keep],
            ok=self.requests.ok[keep],
        )

    def units_per_s(self, slot: int) -> float | None:
        """Work of a slot per second after the burn-in; ``None`` if it never reported."""
        return self.units.rate_per_s(slot, self.start_s + self.burn_in_s, self.end_s)

    def latency_ms(self, quantile: float) -> float | None:
        """A quantile of the sojourn times after the burn-in; ``None`` without requests."""
        latencies = self.measured.sojourn_ms
        return float(np.quantile(latencies, quantile)) if len(latencies) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """What every block of a scenario shares: its data and the compiled programs.

    Args:
        data: The folder that ``{data}`` stands for.
        native: The folder with the compiled programs.
        cache_dir: Where scratch folders are made.
    """

    data: Path
    native: Path
    cache_dir: Path


def make_workplace(scenario: Scenario, cache_dir: Path) -> Workplace:
    """Compile the programs and make the data of a scenario, unless they are there.

    Raises:
        WorkloadError: If that fails.
    """
    native = build_native(cache_dir)
    data = prepare_data(scenario, cache_dir, native)
    return Workplace(data=data, native=native, cache_dir=cache_dir)


def run_block(
    sandbox: Sandbox,
    scenario: Scenario,
    condition: Condition,
    daemon: DaemonFactory | None,
    *,
    workplace: Workplace,
    duration_s: float,
    burn_in_s: float,
    out_dir: Path,
    seed: int,
) -> BlockResult:
    """Run one block and read it out.

    Args:
        sandbox: Where it runs; nothing of an earlier block is left running in it.
        scenario: What runs.
        condition: ``alone``: no background. ``together``: everything under the limit.
            ``ample``: everything with memory enough. ``background``: no protected application,
            memory enough.
        daemon: Starts what controls the sandbox; ``None`` means nothing does.
        workplace: The scenario's data and programs.
        duration_s: How long it is measured after the burn-in.
        burn_in_s: How long it runs before.
        out_dir: An existing folder for what the daemon records.
        seed: Seed of the arrivals and the background.

    Raises:
        WorkloadError: If a program fails.
        SandboxError: If the sandbox cannot be set up or emptied.
    """
    sandbox.kill()
    sandbox.empty()
    evict(workplace.data)
    limit_bytes = scenario.sandbox.limit_bytes
    if condition in {"ample", "background"}:
        limit_bytes = scenario.sandbox.ample_bytes
    sandbox.set_limit(limit_bytes)
    with _places(workplace, seed) as places:
        site = BlockSite(
            scenario=scenario,
            condition=condition,
            sandbox=sandbox,
            latency=replace(
                scenario.protected.latency, path=expand(scenario.protected.latency.path, places)
            ),
            units=tuple(
                replace(spec.units, path=expand(spec.units.path, places))
                for spec in scenario.background
            ),
            limit_bytes=limit_bytes,
            out_dir=out_dir,
        )
        block = _Block(site=site, places=places, seed=seed)
        try:
            return block.run(daemon, duration_s=duration_s, burn_in_s=burn_in_s)
        finally:
            sandbox.kill()
            block.reap()


@contextlib.contextmanager
def _places(workplace: Workplace, seed: int) -> Iterator[Places]:
    """Folders of one block, gone after it."""
    memory_dir = _MEMORY_DIR if _MEMORY_DIR.is_dir() else Path(tempfile.gettempdir())
    for parent in (memory_dir, workplace.cache_dir):
        _clear_stale(parent)
    prefix = f"{_FOLDER_PREFIX}{os.getpid()}-"
    with contextlib.ExitStack() as stack:
        run = Path(tempfile.mkdtemp(prefix=prefix, dir=memory_dir))
        stack.callback(shutil.rmtree, run, ignore_errors=True)
        scratch = Path(tempfile.mkdtemp(prefix=prefix, dir=workplace.cache_dir))
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        for folder in (run, scratch):
            folder.chmod(0o755)  # servers may run as another user
        yield Places(
            data=workplace.data,
            run=run,
            scratch=scratch,
            python=sys.executable,
            workloads=workplace.native,
            seed=seed,
        )


def _clear_stale(parent: Path) -> None:
    """Remove the folders of blocks whose process was killed."""
    for folder in parent.glob(f"{_FOLDER_PREFIX}*"):
        owner = folder.name.removeprefix(_FOLDER_PREFIX).partition("-")[0]
        if owner.isdigit() and not Path("/proc", owner).exists():
            shutil.rmtree(folder, ignore_errors=True)


class _Block:
    """The programs of one block while it runs."""

    def __init__(self, *, site: BlockSite, places: Places, seed: int) -> None:
        self._site = site
        self._places = places
        self._seed = seed
        self._server: Program | None = None
        self._load: Program | None = None
        self._slots: dict[int, Program] = {}
        self._started: list[Program] = []

    def reap(self) -> None:
        """Take note of the end of every program, once all are killed."""
        for program in self._started:
            program.process.wait()

    def _start(self, name: str, command: Command, group: Group) -> Program:
        program = start(name, command, group, self._places)
        self._started.append(program)
        return program

    def run(
        self, daemon: DaemonFactory | None, *, duration_s: float, burn_in_s: float
    ) -> BlockResult:
        """Run it to its end and read it out."""
        sandbox, condition = self._site.sandbox, self._site.condition
        oom_before = sandbox.oom_kills()
        if condition != "background":
            self._start_server()
        with daemon(self._site) if daemon else contextlib.nullcontext():
            if condition != "background":
                self._start_load()
            start_s = time.monotonic()
            plan = self._plan(burn_in_s + duration_s)
            self._follow(plan, start_s, start_s + burn_in_s)
            stall_from_us = self._stalled_us()
            self._follow(plan, start_s, start_s + burn_in_s + duration_s)
            stall_to_us, end_s = self._stalled_us(), time.monotonic()
            if self._load is not None:
                self._load.end(timeout_s=5.0)
        if self._server is not None:  # so that it can take away what it left outside its group
            self._server.end(timeout_s=_STOP_TIMEOUT_S)
        share = None
        if stall_from_us is not None and stall_to_us is not None:
            share = (stall_to_us - stall_from_us) * 1e-6 / (end_s - start_s - burn_in_s)
        return BlockResult(
            scenario=self._site.scenario.name,
            condition=condition,
            seed=self._seed,
            start_s=start_s,
            end_s=end_s,
            burn_in_s=burn_in_s,
            limit_bytes=self._site.limit_bytes,
            requests=self._requests(),
            units=self._units(),
            psi_some_share=share,
            oom_kills=sandbox.oom_kills() - oom_before,
        )

    def _start_server(self) -> None:
        spec, group = self._site.scenario.protected, self._site.sandbox.protected
        self._server = self._start("server", spec.server, group)
        ready = Path(expand(spec.ready, self._places))
        wait_for(ready, self._server, timeout_s=_READY_TIMEOUT_S)
        for index, argv in enumerate(spec.warm):
            command = replace(spec.load, argv=argv)
            warm = self._start(f"warm{index}", command, self._site.sandbox.load)
            if warm.process.wait() != 0:
                warm.check(may_end=False)

    def _start_load(self) -> None:
        spec = self._site.scenario.protected
        self._load = self._start("load", spec.load, self._site.sandbox.load)
        # Its first line comes with the first answer; without this wait a load generator that
        # is slow to start would count as an application that is slow to answer.
        deadline_s = time.monotonic() + _LOAD_WAIT_S
        while not Path(self._site.latency.path).exists() and time.monotonic() < deadline_s:
            self._load.check(may_end=False)
            time.sleep(0.01)

    def _plan(self, length_s: float) -> list[tuple[float, int, bool]]:
        """(seconds after the start, slot, whether it starts), latest first."""
        if self._site.condition == "alone":
            return []
        events = [
            event
            for slot, spec in enumerate(self._site.scenario.background)
            for phase in running_phases(spec, length_s)
            for event in (
                (phase.start_s, slot, True),
                (length_s if phase.stop_s is None else phase.stop_s, slot, False),
            )
        ]
        # At one moment a slot stops before it starts again.
        return sorted(events, key=lambda event: (-event[0], not event[2]))

    def _follow(self, plan: list[tuple[float, int, bool]], start_s: float, until_s: float) -> None:
        """Start and stop background groups as planned until ``until_s``."""
        while (now_s := time.monotonic()) < until_s:
            while plan and start_s + plan[-1][0] <= now_s:
                _, slot, starts = plan.pop()
                self._stop_slot(slot)
                if starts:
                    spec = self._site.scenario.background[slot]
                    group = self._site.sandbox.slots[slot]
                    self._slots[slot] = self._start(spec.name, spec.command, group)
            for program in (self._server, self._load):
                if program is not None:
                    program.check(may_end=False)
            for program in self._slots.values():
                program.check(may_end=True)
            next_s = min(until_s, start_s + plan[-1][0] if plan else until_s)
            time.sleep(max(0.0, min(_POLL_S, next_s - time.monotonic())))

    def _stop_slot(self, slot: int) -> None:
        program = self._slots.pop(slot, None)
        if program is not None:
            left = self._site.sandbox.slots[slot].kill()
            if left:
                raise WorkloadError(f"{program.name} cannot be killed: {list(left)}.")
            program.process.wait()

    def _stalled_us(self) -> int | None:
        folder = self._site.sandbox.protected.unified_dir
        text = None if folder is None else read_text(folder / "memory.pressure")
        for line in (text or "").splitlines():
            if line.startswith("some "):
                return int(line.rpartition("total=")[2])
        return None

    def _requests(self) -> Requests:
        if self._site.condition == "background":
            return Requests.empty()
        text = _read(Path(self._site.latency.path))
        offset_s = time.clock_gettime(time.CLOCK_REALTIME) - time.monotonic()
        requests = parse_requests(text, self._site.latency, realtime_offset_s=offset_s)
        if not len(requests.scheduled_s):
            raise WorkloadError(
                f"No request was found in {self._site.latency.path} of {len(text)} characters.",
                next_step="Check protected.latency of the scenario against what it writes.",
            )
        return requests

    def _units(self) -> Units:
        texts = [_read(Path(source.path)) for source in self._site.units]
        return parse_units(texts, self._site.units)


def _read(path: Path) -> str:
    """What a program wrote; nothing if it never did."""
    if not path.is_file():
        return ""
    return path.read_text(encoding="utf-8", errors="replace")
