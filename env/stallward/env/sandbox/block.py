"""Runs one live block: the programs of a scenario in the sandbox, for a given time.

Every block starts from the same state: empty groups, evicted data, new programs.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from threading import Event
from typing import Final

import numpy as np

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.tables import (
    ControlConfig,
    ExperimentsConfig,
    JournalConfig,
    NodeConfig,
    PolicyConfig,
    ProtectedConfig,
    RecordConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.kernel.files import read_text
from stallward.actuator.latency.config import LinesLatency
from stallward.actuator.runtime.temporary_folders import temporary_folder
from stallward.env.errors import WorkloadError
from stallward.env.recording.program_lines import parse_requests, parse_units
from stallward.env.recording.recording import Requests, Units
from stallward.env.recording.run_info import Condition
from stallward.env.sandbox.data_cache import (
    check_needs,
    evict,
    prepare_commands,
    prepare_data,
)
from stallward.env.sandbox.launch import Program, start, wait_for
from stallward.env.sandbox.oom_log import OomLog
from stallward.env.sandbox.peers.programs import Peer, RunningPeer
from stallward.env.sandbox.sandbox import Sandbox
from stallward.env.sandbox.watch import StealTime
from stallward.env.scenario.scenario import (
    Command,
    LatencyLines,
    Places,
    ProtectedSpec,
    Scenario,
    UnitLines,
    expand,
    running_phases,
)
from stallward.env.workloads.native.build import build_native

# ---------- The input and the result of one live block


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSite:
    """What a daemon needs to know about the block that it is to control."""

    scenario: Scenario
    """The scenario that runs."""
    condition: Condition
    """The condition it runs under."""
    sandbox: Sandbox
    """The sandbox with its groups."""
    latency: LatencyLines
    """Where the requests are logged, with the placeholders filled in; those of the first of
    several applications."""
    others: tuple[LatencyLines, ...] = ()
    """Where those of the further applications are logged."""
    units: tuple[UnitLines, ...]
    """Where the background reports its work, in the order of the slots."""
    limit_bytes: int
    """The zone's memory in this block."""
    out_dir: Path
    """The folder for the recording of the ticks."""

    @property
    def latencies(self) -> tuple[LatencyLines, ...]:
        """Where the requests of each application are logged."""
        return (self.latency, *self.others)


DaemonFactory = Callable[[BlockSite], AbstractContextManager[object]]
"""Starts the daemon for a block. Leaving the context stops it and restores everything."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ApplicationRequests:
    """The requests of a further protected application in one block."""

    name: str
    """Its name."""
    slo_ms: float
    """Its latency target."""
    requests: Requests
    """Every request, burn-in included."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockResult:
    """The result of one block."""

    scenario: str
    """The name of the scenario."""
    condition: Condition
    """Which programs ran, and with how much memory."""
    seed: int
    """The seed of the arrivals and the background."""
    start_s: float
    """CLOCK_MONOTONIC at the first scheduled arrivals, burn-in included."""
    end_s: float
    """CLOCK_MONOTONIC when the load was stopped."""
    burn_in_s: float
    """How long the block ran before the measurement began."""
    limit_bytes: int
    """The zone's memory."""
    requests: Requests
    """Every request, burn-in included; those of the first of several applications."""
    others: tuple[ApplicationRequests, ...] = ()
    """The requests of the further applications."""
    units: Units
    """The work of the background, burn-in included."""
    psi_some_share: float | None
    """Share of the measured time in which a task of the first protected group stalled for memory;
    ``None`` if the kernel does not report it."""
    oom_kills: int
    """Processes that the kernel killed because memory ran out."""
    limit_kills: int
    """Those among them that it killed because of a background group's own limit, which only the
    arm sets. Any other means that the block is invalid."""
    stolen_share: float
    """Steal time as a share of the CPU time in the measured time."""
    peer_kills: int = 0
    """Background processes that the block's peer ended, by its own log."""

    @property
    def measured(self) -> Requests:
        """The requests scheduled after the burn-in."""
        return self.requests.where(self.requests.scheduled_s >= self.start_s + self.burn_in_s)

    def units_per_s(self, slot: int) -> float | None:
        """Work of a slot per second after the burn-in; ``None`` if the slot never reported."""
        return self.units.rate_per_s(slot, self.start_s + self.burn_in_s, self.end_s)

    def latency_ms(self, quantile: float) -> float | None:
        """A quantile of the sojourn times after the burn-in; ``None`` without requests."""
        latencies = self.measured.sojourn_ms
        return float(np.quantile(latencies, quantile)) if len(latencies) else None


# ---------- One protected application in a live block: its server, its load generator and its requests.

_READY_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 3.0
_POLL_S: Final = 0.1
_LOAD_WAIT_S: Final = 1.0
"""The longest wait for the load generator to connect, before the first arrival."""
_TAIL_WAIT_S: Final = 5.0
"""The longest wait for the answers to the last requests, where only answers are logged."""

Start = Callable[[str, Command, Cgroup, Places], Program]
"""Starts a program of a name in a group, with the values of its placeholders."""


class ApplicationPrograms:
    """The programs of one protected application.

    Args:
        spec: The application.
        group: The group of its server.
        load_group: The group of load generators.
        latency: Where its requests are logged, with the placeholders filled in.
        places: The values of its placeholders.
        start: Starts its programs.
        prefix: Comes before the names of its programs, to tell several applications apart.
    """

    def __init__(
        self,
        *,
        spec: ProtectedSpec,
        group: Cgroup,
        load_group: Cgroup,
        latency: LatencyLines,
        places: Places,
        start: Start,
        prefix: str = "",
    ) -> None:
        self.spec = spec
        self._group, self._load_group = group, load_group
        self._latency, self._places = latency, places
        self._start_program, self._prefix = start, prefix
        self._server: Program | None = None
        self._load: Program | None = None

    def _start(self, name: str, command: Command, group: Cgroup) -> Program:
        return self._start_program(f"{self._prefix}{name}", command, group, self._places)

    def start_server(self) -> None:
        """Start the server, and wait until it is ready."""
        self._server = self._start("server", self.spec.server, self._group)
        ready = Path(expand(self.spec.ready, self._places))
        wait_for(ready, self._server, timeout_s=_READY_TIMEOUT_S)

    def warm(self) -> None:
        """Run the commands that warm the server, to their ends."""
        for index, argv in enumerate(self.spec.warm):
            command = replace(self.spec.load, argv=argv)
            warm = self._start(f"warm{index}", command, self._load_group)
            if warm.process.wait() != 0:
                warm.check(may_end=False)

    def start_load(self) -> None:
        """Start the load generator, and wait for a moment until it has connected."""
        self._load = self._start("load", self.spec.load, self._load_group)
        # Its first line comes with the first answer. Without this wait, the start of a slow load
        # generator would count as latency of the application.
        deadline_s = time.monotonic() + _LOAD_WAIT_S
        while not Path(self._latency.path).exists() and time.monotonic() < deadline_s:
            self._load.check(may_end=False)
            time.sleep(0.01)

    def check(self) -> None:
        """Check that the programs run.

        Raises:
            WorkloadError: If one has ended.
        """
        for program in (self._server, self._load):
            if program is not None:
                program.check(may_end=False)

    def end_load(self, end_s: float) -> None:
        """End the load generator once the requests due at ``end_s`` are logged."""
        if self._load is not None:
            self.await_tail(end_s)
            self._load.end(timeout_s=5.0)

    def end_server(self) -> None:
        """End the server, so that it can remove what it made outside of its group."""
        if self._server is not None:
            self._server.end(timeout_s=_STOP_TIMEOUT_S)

    def await_tail(self, end_s: float) -> None:
        """Wait until the log has reached the requests due at ``end_s``, for a few seconds at most.

        Requests that wait when the block ends are the slowest ones. A load generator that logs
        only answers would end without logging them. One that logs for each request whether it was
        answered (``ok``) logs these, too.
        """
        if self._latency.ok is not None:
            return
        deadline_s = time.monotonic() + _TAIL_WAIT_S
        while time.monotonic() < deadline_s:
            scheduled_s = self._logged().scheduled_s
            if scheduled_s.size and scheduled_s[-1] >= end_s:
                return
            time.sleep(_POLL_S)

    def requests(self, end_s: float) -> Requests:
        """The requests scheduled before ``end_s``; none if the application did not run.

        Raises:
            WorkloadError: If it ran and there are none.
        """
        if self._load is None:
            return Requests.empty()
        requests = self._logged()
        if not len(requests.scheduled_s):
            raise WorkloadError(
                f"No request was found in {self._latency.path}.",
                next_step="Check protected.latency of the scenario against what it writes.",
            )
        inside = requests.where(requests.scheduled_s < end_s)
        if self._latency.ok is not None:
            if not inside.ok.any():
                raise WorkloadError(
                    f"None of {len(inside.ok)} requests was answered as {self._latency.path} says.",
                    next_step="Check that the server answers once protected.ready exists, and "
                    "that the load generator knows a whole answer.",
                )
            return inside
        return inside.with_unanswered(end_s, time.monotonic())

    def _logged(self) -> Requests:
        """The requests logged so far, by scheduled time."""
        text = read_lines(Path(self._latency.path))
        offset_s = time.clock_gettime(time.CLOCK_REALTIME) - time.monotonic()
        return parse_requests(text, self._latency, realtime_offset_s=offset_s)


def read_lines(path: Path) -> str:
    """The text that a program wrote; empty if there is no file."""
    if not path.is_file():
        return ""
    return path.read_text(encoding="utf-8", errors="replace")


# ---------- The programs of one live block: starts and stops them on time, and collects their results


class BlockPrograms:
    """The programs of one block while it runs.

    Args:
        site: The block.
        places: The values of the placeholders, for the background.
        own_places: Those of each protected application.
        seed: The seed of the arrivals and the background.
        ended: Ends the block before its time once it is set.
        peer: A peer that runs beside the daemon.
    """

    def __init__(
        self,
        *,
        site: BlockSite,
        places: Places,
        own_places: Sequence[Places],
        seed: int,
        ended: Event | None = None,
        peer: Peer | None = None,
    ) -> None:
        self._site = site
        self._places = places
        self._seed = seed
        self._ended = ended or Event()
        sandbox, applications = site.sandbox, site.scenario.applications
        self._applications = tuple(
            ApplicationPrograms(
                spec=spec,
                group=group,
                load_group=sandbox.load,
                latency=latency,
                places=own,
                start=self._start,
                prefix=f"{spec.name}-" if len(applications) > 1 else "",
            )
            for spec, group, latency, own in zip(
                applications, sandbox.applications, site.latencies, own_places, strict=True
            )
        )
        self._peer = None if peer is None else RunningPeer(peer, site.sandbox, places)
        self._slots: dict[int, Program] = {}
        self._started: list[Program] = []
        self._oom_log = OomLog()

    def reap(self) -> None:
        """Wait for every program to end, once all are killed, so that no zombie is left."""
        for program in self._started:
            program.process.wait()
        self._oom_log.close()

    def _start(
        self,
        name: str,
        command: Command,
        group: Cgroup,
        places: Places,
        inside: tuple[str, ...] = (),
    ) -> Program:
        sandbox = self._site.sandbox
        further = () if group is sandbox.load else sandbox.shared_dirs
        program = start(name, command, group, places, further, inside)
        self._started.append(program)
        return program

    def run(
        self,
        daemon: DaemonFactory | None,
        *,
        duration_s: float,
        burn_in_s: float,
        on_start: Callable[[float], None] | None,
    ) -> BlockResult:
        """Run the block to its end and return its result."""
        sandbox, condition = self._site.sandbox, self._site.condition
        oom_before = sandbox.oom_kills()
        self._oom_log.read()
        running = () if condition == "background" else self._applications
        for application in running:
            application.start_server()
        for application in running:
            application.warm()
        with contextlib.ExitStack() as beside:
            if self._peer is not None:
                beside.enter_context(self._peer)
            if daemon is not None:
                beside.enter_context(daemon(self._site))
            for application in running:
                application.start_load()
            start_s = time.monotonic()
            if on_start is not None:
                on_start(start_s)
            plan = self._plan(burn_in_s + duration_s)
            self._follow(plan, start_s, start_s + burn_in_s)
            stall_from_us, steal_time = self._stalled_us(), StealTime.from_now()
            self._follow(plan, start_s, start_s + burn_in_s + duration_s)
            stall_to_us, end_s = self._stalled_us(), time.monotonic()
            stolen_share = steal_time.share()
            for application in running:
                application.end_load(end_s)
        for application in running:
            application.end_server()
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
            requests=self._applications[0].requests(end_s),
            others=tuple(
                ApplicationRequests(
                    name=one.spec.name,
                    slo_ms=one.spec.slo.latency_ms or math.nan,
                    requests=one.requests(end_s),
                )
                for one in self._applications[1:]
            ),
            units=self._units(),
            psi_some_share=share,
            oom_kills=sandbox.oom_kills() - oom_before,
            limit_kills=self._limit_kills(),
            peer_kills=0 if self._peer is None else self._peer.count_ended(),
            stolen_share=stolen_share,
        )

    def _limit_kills(self) -> int:
        """How many processes the kernel killed because of a slot's own limit."""
        slots = [slot.name for slot in self._site.sandbox.slots]
        return sum(kill.under_limit_of(slots) for kill in self._oom_log.read())

    def _plan(self, length_s: float) -> list[tuple[float, int, bool]]:
        """Starts and stops as (seconds after the start, slot, whether it starts), latest first."""
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
        # Of two events at the same time, a slot stops before it starts again.
        return sorted(events, key=lambda event: (-event[0], not event[2]))

    def _follow(self, plan: list[tuple[float, int, bool]], start_s: float, until_s: float) -> None:
        """Start and stop background groups as planned until ``until_s``, or the block's end."""
        while (now_s := time.monotonic()) < until_s and not self._ended.is_set():
            while plan and start_s + plan[-1][0] <= now_s:
                _, slot, starts = plan.pop()
                self._stop_slot(slot)
                if starts:
                    spec = self._site.scenario.background[slot]
                    group = self._site.sandbox.slots[slot]
                    inside = () if self._peer is None else self._peer.enter
                    self._slots[slot] = self._start(
                        spec.name, spec.command, group, self._places, inside
                    )
            for application in self._applications:
                application.check()
            if self._peer is not None and self._peer.program is not None:
                self._peer.program.check(may_end=False)
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

    def _units(self) -> Units:
        texts = [read_lines(Path(source.path)) for source in self._site.units]
        return parse_units(texts, self._site.units)


_MEMORY_DIR: Final = Path("/dev/shm")  # noqa: S108  (private folders are made below it)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """What all blocks of a scenario share: its data and the compiled programs."""

    data: Path
    """The folder that ``{data}`` stands for, for the first application and the background."""
    others: tuple[Path, ...] = ()
    """The folders of the further applications."""
    native: Path
    """The folder with the compiled programs."""
    cache_dir: Path
    """The folder in which scratch folders are made."""


def make_workplace(scenario: Scenario, cache_dir: Path) -> Workplace:
    """Compile the programs and make the data of a scenario, unless that has been done.

    Raises:
        WorkloadError: If that fails, or a program that the scenario needs is not installed.
    """
    check_needs(scenario)
    native = build_native(cache_dir)
    data = prepare_data(scenario, cache_dir, native)
    others = tuple(prepare_commands(one.prepare, cache_dir, native) for one in scenario.others)
    return Workplace(data=data, others=others, native=native, cache_dir=cache_dir)


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
    ended: Event | None = None,
    peer: Peer | None = None,
    on_start: Callable[[float], None] | None = None,
) -> BlockResult:
    """Run one block and collect its result.

    Args:
        sandbox: The sandbox. Programs of an earlier block are killed first.
        scenario: The scenario.
        condition: Which programs run, and with how much memory. ``alone``: the application
            without background. ``together``: everything under the limit. ``ample``: everything
            with ample memory. ``background``: the background with ample memory, without the
            application.
        daemon: Starts the daemon that controls the sandbox; ``None`` for none.
        workplace: The scenario's data and the compiled programs.
        duration_s: How long the block is measured, after the burn-in.
        burn_in_s: The length of the burn-in.
        out_dir: An existing folder for the daemon's recording.
        seed: The seed of the arrivals and the background.
        ended: Ends the block before its time once it is set.
        peer: A peer that runs beside the daemon and may end the background programs.
        on_start: Called with CLOCK_MONOTONIC when the arrivals and the background begin.

    Raises:
        WorkloadError: If a program fails, or the peer cannot run here.
        SandboxError: If the sandbox cannot be set up or emptied.
    """
    sandbox.kill()
    sandbox.empty()
    for data in (workplace.data, *workplace.others):
        evict(data)
    limit_bytes = scenario.sandbox.limit_bytes
    if condition in {"ample", "background"}:
        limit_bytes = scenario.sandbox.ample_bytes
    sandbox.set_limit(limit_bytes)
    with make_places(workplace, seed) as places:
        own_places = _own_places(scenario, workplace, places)
        latency, *others = (
            replace(one.latency, path=expand(one.latency.path, own))
            for one, own in zip(scenario.applications, own_places, strict=True)
        )
        site = BlockSite(
            scenario=scenario,
            condition=condition,
            sandbox=sandbox,
            latency=latency,
            others=tuple(others),
            units=tuple(
                replace(spec.units, path=expand(spec.units.path, places))
                for spec in scenario.background
            ),
            limit_bytes=limit_bytes,
            out_dir=out_dir,
        )
        block = BlockPrograms(
            site=site, places=places, own_places=own_places, seed=seed, ended=ended, peer=peer
        )
        try:
            return block.run(daemon, duration_s=duration_s, burn_in_s=burn_in_s, on_start=on_start)
        finally:
            sandbox.kill()
            block.reap()


def _own_places(scenario: Scenario, workplace: Workplace, places: Places) -> tuple[Places, ...]:
    """The places of each application; several have folders of their own, which are made."""
    if not scenario.others:
        return (places,)
    own = tuple(
        replace(places, data=data, run=places.run / spec.name, scratch=places.scratch / spec.name)
        for spec, data in zip(
            scenario.applications, (workplace.data, *workplace.others), strict=True
        )
    )
    for one in own:
        for folder in (one.run, one.scratch):
            folder.mkdir()
            folder.chmod(0o755)  # servers may run as another user
    return own


@contextlib.contextmanager
def make_places(workplace: Workplace, seed: int) -> Iterator[Places]:
    """Make the folders of one block; they are removed when the context ends."""
    memory_dir = _MEMORY_DIR if _MEMORY_DIR.is_dir() else None
    with (
        temporary_folder("block", memory_dir) as run,
        temporary_folder("block", workplace.cache_dir) as scratch,
    ):
        for folder in (run, scratch):
            folder.chmod(0o755)  # servers may run as another user
        yield Places(
            data=workplace.data,
            run=run,
            scratch=scratch,
            python=sys.executable,  # noqa: TID251
            workloads=workplace.native,
            seed=seed,
        )


# ---------- The daemon's configuration for one live block: its groups, its files, its latency source


def site_config(
    site: BlockSite,
    place: Path,
    *,
    control: ControlConfig,
    guard: Budgets,
    record: RecordConfig | None = None,
    experiments: ExperimentsConfig | None = None,
) -> DaemonConfig:
    """Configure a daemon, or its sensors and levers alone, for a block.

    It counts page-cache hits and misses where the node allows eBPF.

    Args:
        site: The block's groups and files.
        place: A folder for the socket ``actuator.sock`` and the journal.
        control: The controller and its settings.
        guard: The budgets of the guard.
        record: Where tick records go; ``None`` to record nothing.
        experiments: Where experiments are kept; ``None`` to run none.
    """
    node = NodeConfig.at(site.sandbox.paths, zone=site.sandbox.zone.name)
    several = len(site.scenario.applications) > 1
    return DaemonConfig(
        # Every arm of a comparison pays the same for it, and it ends with the block.
        node=replace(node, page_cache="auto"),
        protected=_applications(site) if several else _protected(site),
        background=tuple(
            SlotConfig(name=spec.name, group=group.name, floor_bytes=spec.floor_bytes)
            for spec, group in zip(site.scenario.background, site.sandbox.slots, strict=True)
        ),
        service=ServiceConfig(socket=place / "actuator.sock"),
        journal=JournalConfig(path=place / "journal"),
        latency=None if several else _latency(site.latency),
        control=control,
        guard=guard,
        record=record,
        experiments=experiments or ExperimentsConfig(),
        policy=PolicyConfig(canary_s=0.0),  # a block measures its policy, however bad it is
    )


def _protected(site: BlockSite) -> ProtectedConfig:
    """The only protected application, or what the first of several has beside its own."""
    return ProtectedConfig(group=site.sandbox.protected.name, groups=(site.sandbox.load.name,))


def _applications(site: BlockSite) -> tuple[ProtectedConfig, ...]:
    """Several protected applications, each with its own target and latencies."""
    first = _protected(site)
    return tuple(
        replace(
            first if index == 0 else ProtectedConfig(group=group.name),
            name=spec.name,
            slo_ms=spec.slo.latency_ms,
            latency=_latency(latency),
        )
        for index, (spec, group, latency) in enumerate(
            zip(site.scenario.applications, site.sandbox.applications, site.latencies, strict=True)
        )
    )


def _latency(lines: LatencyLines) -> LinesLatency:
    """Convert a scenario's latency source into the daemon's form."""
    known = {f.name for f in fields(LinesLatency)} & {f.name for f in fields(LatencyLines)}
    values = {name: getattr(lines, name) for name in known - {"path"}}
    return LinesLatency(path=Path(lines.path), **values)
