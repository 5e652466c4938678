"""Runs the ticks: reads, decides, applies, records, and answers commands between them."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.engine.engine import Engine
from stallward.actuator.engine.interface import TickOutcome
from stallward.actuator.engine.lease import Leases
from stallward.actuator.guard.hold_budget import allowed_s, is_bounded
from stallward.actuator.ipc.channels import GuardianLink, MessageSocket, frame_status, frame_tick
from stallward.actuator.loop.commands import CommandHandler
from stallward.actuator.loop.pacing import Pacer, TickRate
from stallward.actuator.loop.wait import Waiter, Woken
from stallward.actuator.node.node import Node
from stallward.actuator.record import wire
from stallward.actuator.record.lever_result import LeverResult
from stallward.actuator.record.tick_record import Circumstances, TickRecord, TickTimings
from stallward.actuator.record.wire import WORK_SOURCE
from stallward.actuator.runtime.stderr_line import say
from stallward.actuator.work.config import unit_of
from stallward.agent.controller import needs_threads
from stallward.agent.sample import Sample, WorkSource
from stallward.proto.v1 import stallward_pb2 as pb

# ---------- The status that the loop sends to the service once a second

MISSING_S: Final = 5.0
"""How old the list of missing signals and levers may be: making it takes 0.4 ms."""
_LONGEST: Final = 200
"""At most so many characters of an error are said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusSources:
    """The sources of a status; see :class:`stallward.actuator.loop.tick.Ticker`."""

    config: DaemonConfig
    node: Node
    engine: Engine
    leases: Leases
    commands: CommandHandler
    link: GuardianLink
    senders: tuple[MessageSocket, ...]
    restarts: int
    daemon_start_s: float


class LoopStatus:
    """Makes the status of one loop.

    Args:
        sources: The sources of the status.
    """

    def __init__(self, sources: StatusSources) -> None:
        self._sources = sources
        self._slots = [slot.name for slot in sources.config.background]
        self._missing: tuple[str, ...] = ()
        self._problems: tuple[str, ...] = ()
        """Those of the missing that somebody should look at."""
        self._missing_until_s = float("-inf")
        self._faults: tuple[str, ...] = ()
        self._untold = 0
        self._first_untold = ""
        self._blind = 0
        self._why_blind = ""

    def reconfigure(self, config: DaemonConfig) -> None:
        """Judge by the targets of another configuration from now on."""
        self._sources = replace(self._sources, config=config)

    def note_untold(self, error: Exception) -> None:
        """Count a record, an answer or a status that could not be made, because of ``error``."""
        self._untold += 1
        self._first_untold = self._first_untold or f"{type(error).__name__}: {error}"[:_LONGEST]

    def note_blind(self, error: Exception) -> None:
        """Count a tick at which no sample could be read, because of ``error``."""
        why = f"{type(error).__name__}: {error}"[:_LONGEST]
        if why != self._why_blind:
            say(f"no sample can be read ({why}), so nothing is held back", "loop")
        self._why_blind = why
        self._blind += 1

    def make(self, *, ticks: int, calm: bool) -> pb.StatusResponse:
        """Make the present status.

        Args:
            ticks: How many ticks there were.
            calm: Whether the node is calm.
        """
        sources = self._sources
        now_s = time.monotonic()
        lease = sources.leases.current(now_s)
        engine, counts = sources.engine, sources.engine.counts
        return pb.StatusResponse(
            node_kind=sources.node.hierarchy.kind,
            controller="remote" if lease else engine.in_force.name,
            mode=wire.MODE.to_wire(engine.mode),
            policy=sources.commands.policy,
            slots=self._slots,
            lease_held=lease is not None,
            lease_remaining_s=sources.leases.remaining_s(now_s),
            ticks=ticks,
            records_dropped=sum(sender.dropped for sender in sources.senders),
            missing=self._missing_now(now_s),
            plugged_levers=[entry.name for entry in sources.node.levers.plugins],
            problems=self._problems,
            uptime_s=now_s - sources.daemon_start_s,
            loop_restarts=sources.restarts,
            calm=calm,
            fallbacks=counts.fallbacks,
            stepped_aside=counts.stepped_aside,
            hold_budget=self._hold_budget(),
            work_sources=self._work_sources(),
            slot_pods=[pb.SlotPods(pods=sources.node.pods(i)) for i in range(len(self._slots))],
            latency_source=self._latency_source(),
            applications=self._applications(),
        )

    def _latency_source(self) -> pb.LatencySourceStatus | None:
        """Return the status of the source of the only application's latencies."""
        sources = self._sources
        if len(sources.node.latencies) > 1:
            return None
        return wire.latency_status(sources.config.latency, sources.node.latencies[0])

    def _applications(self) -> list[pb.ApplicationStatus]:
        """Return the status of each application, where there are several."""
        config, latencies = self._sources.config, self._sources.node.latencies
        if len(latencies) == 1:
            return []
        return [
            pb.ApplicationStatus(
                name=one.name, slo_ms=slo_ms, latency_source=wire.latency_status(table, source)
            )
            for one, slo_ms, table, source in zip(
                config.applications, config.targets_ms, config.latencies, latencies, strict=True
            )
        ]

    def _work_sources(self) -> list[pb.WorkSourceStatus]:
        """Return where the work of each slot is counted."""
        sources = self._sources
        return [
            pb.WorkSourceStatus(
                source=WORK_SOURCE.to_wire(WorkSource(slot.work.source)),
                unit=unit_of(slot.work),
                fault=fault,
            )
            for slot, fault in zip(
                sources.config.background, sources.node.work_faults(), strict=True
            )
        ]

    def _hold_budget(self) -> pb.HoldBudgetStatus | None:
        """Return what holds without pressure have used up; ``None`` if they have no bound."""
        engine = self._sources.engine
        budgets, holds = engine.guard.budgets, engine.memory.holds
        if not is_bounded(budgets):
            return None
        return pb.HoldBudgetStatus(
            used_s=holds.used_s,
            allowed_s=allowed_s(budgets),
            refusing=holds.refusing,
            since_pressure_s=holds.since_sign_s,
        )

    def _missing_now(self, now_s: float) -> tuple[str, ...]:
        """Return what is missing, and why; a fault that comes or goes shows at once."""
        untold, blind = self._untold_text(), self._blind_text()
        faults = (self._sources.link.problem, untold, blind, *self._sources.node.passing_faults())
        if now_s >= self._missing_until_s or faults != self._faults:
            self._faults, self._missing_until_s = faults, now_s + MISSING_S
            problem = self._sources.link.problem
            text = f"journal: {problem} Nothing new is changed until it can be."
            own = tuple(filter(None, (text if problem else "", untold, blind)))
            self._missing = (*own, *self._sources.node.missing())
            self._problems = (*own, *self._sources.node.problems())
        return self._missing

    def _untold_text(self) -> str:
        """Say how many records could not be made, and why the first could not."""
        if not self._untold:
            return ""
        return f"records: {self._untold} could not be made; the first: {self._first_untold}"

    def _blind_text(self) -> str:
        """Say at how many ticks no sample could be read, and why at the last of them."""
        if not self._blind:
            return ""
        return f"samples: {self._blind} could not be read; the last: {self._why_blind}"


_BEAT_S: Final = 1.0
"""How often the loop tells the guardian that it has ticked, from the first tick on."""
_STATUS_S: Final = 1.0
"""How often the loop sends its status to the service; it also does so after a command."""
_COMMANDS_AT_ONCE: Final = 8
"""How many commands are answered in a row; further ones wait for a tick that is due."""
_COLLECT_EVERY_TICKS: Final = 300
"""How often garbage is collected."""
_COLLECT_SPARE_S: Final = 0.03
"""The time until the next tick that collecting garbage needs."""


class Ticker:
    """Runs the ticks of one loop.

    Args:
        config: The daemon's configuration.
        node: The sensors and levers.
        engine: The engine, which decides.
        leases: The leases of clients.
        commands: Answers the commands of the service.
        link: The connection to the guardian.
        service: The connection to the service.
        recorder: The connection to the recorder; ``None`` if nothing is recorded.
        restarts: How many loops of this daemon there were before.
        daemon_start_s: When the daemon was started (CLOCK_MONOTONIC).
    """

    def __init__(
        self,
        *,
        config: DaemonConfig,
        node: Node,
        engine: Engine,
        leases: Leases,
        commands: CommandHandler,
        link: GuardianLink,
        service: MessageSocket,
        recorder: MessageSocket | None,
        restarts: int,
        daemon_start_s: float,
    ) -> None:
        self._config = config
        self._node = node
        self._engine = engine
        self._leases = leases
        self._commands = commands
        self._link = link
        self._service = service
        self._recorder = recorder
        self._status = LoopStatus(
            StatusSources(
                config=config,
                node=node,
                engine=engine,
                leases=leases,
                commands=commands,
                link=link,
                senders=(service,) if recorder is None else (service, recorder),
                restarts=restarts,
                daemon_start_s=daemon_start_s,
            )
        )
        self._rate = TickRate(config.control.rates, config.control.slo_ms)
        self._sequence = 0
        self._blind_ticks = 0
        self._beat_at_s = self._status_at_s = float("-inf")

    def reconfigure(self, config: DaemonConfig) -> None:
        """Go on with a configuration that differs in the target and the budgets only."""
        self._config = config
        self._rate.set_target(config.control.slo_ms)
        self._status.reconfigure(config)

    def run(
        self, waiter: Waiter, stopping: Callable[[], bool], reload: Callable[[], None]
    ) -> None:
        """Tick until the loop is to stop or the guardian is gone.

        Args:
            waiter: Waits between the ticks.
            stopping: Whether the loop is to stop.
            reload: Called after any other signal; reads the configuration again if that was asked.
        """
        rate = self._rate
        pacer = Pacer(time.monotonic(), rate.tick_s)
        while not stopping():
            watching = rate.quiet and self._node.background_runs()
            woken = waiter.until(pacer.due_s, rate, watching=watching)
            if woken is Woken.STOPPED and not stopping() and not self._link.gone:
                reload()
                continue
            if woken is Woken.STOPPED or (self._link.overdue and self._link.gone):
                break
            if woken in {Woken.STALLED, Woken.OUT_OF_MEMORY}:
                pacer.restart(time.monotonic(), rate.tick_s)
            period_s, due_s = rate.tick_s, pacer.due_s
            self._tick(due_s)
            self._beat()
            if rate.tick_s != period_s:
                pacer.restart(due_s, rate.tick_s)
            pacer.advance(time.monotonic())
            self._between_ticks(pacer.due_s)

    def answer_commands(self) -> None:
        """Answer commands of the service, but not so many that a tick must wait."""
        for _ in range(_COMMANDS_AT_ONCE):
            message = self._service.receive()
            if message is None:
                return
            self._tell(partial(self._answer, message))

    def _answer(self, message: bytes) -> None:
        answer = self._commands.handle(message, time.monotonic())
        if answer is not None:
            self._tell_status()  # first: a client with the answer must not see an older status
            self._service.send(answer)

    def _tick(self, due_s: float) -> None:
        start_s = time.monotonic()
        lease = self._leases.current(start_s)
        config = self._config
        asking, sampler = self._engine.controllers, self._node.sampler
        sampler.needs_processes = config.control.read_processes or any(
            controller.needs_processes for controller in asking
        )
        sampler.needs_threads = (
            config.control.read_threads
            or (lease is not None and bool(lease.desired.protected_threads))
            or any(map(needs_threads, asking))
        )
        try:
            sample = self._node.read(self._sequence, start_s)
        except Exception as error:  # also one that nobody has thought of
            self._blind_tick(error)
            return
        sensed_s = time.monotonic()
        circumstances = Circumstances(
            sample_age_s=sensed_s - sample.time_s, blind_ticks=self._blind_ticks
        )
        outcome = self._engine.step(
            sample, remote=lease.desired if lease else None, circumstances=circumstances
        )
        decided_s = time.monotonic()
        applied = self._node.apply(outcome.granted, sample, decided_s)
        timings = TickTimings(
            late_ms=(start_s - due_s) * 1e3,
            sense_ms=(sensed_s - start_s) * 1e3,
            observe_ms=outcome.observe_ms,
            decide_ms=outcome.decide_ms,
            guard_ms=outcome.guard_ms,
            apply_ms=(time.monotonic() - decided_s) * 1e3,
        )
        self._blind_ticks = 0
        sequence, self._sequence = self._sequence, self._sequence + 1
        self._tell(partial(self._record, sequence, start_s, sample, outcome, applied, timings))
        self._rate.after_tick(
            sample, outcome.granted, held=self._node.anything_held(), leased=lease is not None
        )
        self._tell(partial(self._answer_after, outcome))

    def _answer_after(self, outcome: TickOutcome | None) -> None:
        now_s = time.monotonic()
        answers = self._commands.after_tick(outcome, now_s)
        if answers or now_s >= self._status_at_s:
            self._tell_status()
        for answer in answers:
            self._service.send(answer)

    def _tell(self, tell: Callable[[], None]) -> None:
        """Do what only tells others of a tick.

        Whatever fails in it is counted and said in the status: what is told comes partly from
        outside, and the levers must follow the controller all the same.
        """
        try:
            tell()
        except Exception as error:  # also one that nobody has thought of
            self._status.note_untold(error)

    def _blind_tick(self, error: Exception) -> None:
        """Release everything: without a readable sample nothing may be held.

        What is read comes partly from programs that others run, so nothing in it may end the loop:
        it would fail again at each start, and nothing would be protected meanwhile.
        """
        self._sequence += 1
        self._blind_ticks += 1
        self._status.note_blind(error)
        self._node.release(time.monotonic())
        self._tell(partial(self._answer_after, None))

    def _record(
        self,
        sequence: int,
        start_s: float,
        sample: Sample,
        outcome: TickOutcome,
        applied: tuple[LeverResult, ...],
        timings: TickTimings,
    ) -> None:
        record = TickRecord(
            sequence=sequence,
            time_s=start_s,
            wall_time_s=time.time(),
            sample=sample,
            observation=tuple(outcome.observation.tolist()),
            decision=outcome.decision,
            granted=outcome.granted,
            reasons=outcome.reasons,
            applied=applied,
            timings=timings,
            mode=outcome.mode,
            shadow=outcome.shadow,
            fallback=outcome.fallback,
            circumstances=outcome.circumstances,
            slo_ms=self._config.control.slo_ms,
        )
        data = wire.TICK_RECORD.to_wire(record).SerializeToString()
        self._service.send(frame_tick(data))
        if self._recorder is not None:
            self._recorder.send(data)

    def _beat(self) -> None:
        now_s = time.monotonic()
        if now_s >= self._beat_at_s:
            self._link.beat()
            self._beat_at_s = now_s + _BEAT_S

    def _between_ticks(self, due_s: float) -> None:
        spare_s = due_s - time.monotonic()
        if self._sequence % _COLLECT_EVERY_TICKS == 0 and spare_s > _COLLECT_SPARE_S:
            gc.collect()

    def _tell_status(self) -> None:
        status = self._status.make(ticks=self._sequence, calm=self._rate.calm)
        self._service.send(frame_status(status.SerializeToString()))
        self._status_at_s = time.monotonic() + _STATUS_S
