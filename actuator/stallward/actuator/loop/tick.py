"""Runs the ticks: reads, decides, applies, records, and answers commands between them."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.engine.engine import Engine
from stallward.actuator.engine.interface import TickOutcome
from stallward.actuator.engine.lease import Leases
from stallward.actuator.ipc.channels import GuardianLink, MessageSocket, frame_status, frame_tick
from stallward.actuator.loop.commands import CommandHandler
from stallward.actuator.loop.pacing import Pacer, TickRate
from stallward.actuator.loop.status import LoopStatus, StatusSources
from stallward.actuator.loop.wait import Waiter, Woken
from stallward.actuator.node.node import Node
from stallward.actuator.record import wire
from stallward.actuator.record.lever_result import LeverResult
from stallward.actuator.record.tick_record import Circumstances, TickRecord, TickTimings
from stallward.agent.controller import needs_threads
from stallward.agent.sample import Sample

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

    def _answer_after(self, outcome: TickOutcome) -> None:
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
        if time.monotonic() >= self._status_at_s:
            self._tell(self._tell_status)

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
        data = wire.record_to_wire(record).SerializeToString()
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
