"""One tick after the other: read, decide, apply, record, and answer what was asked meanwhile."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Final

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.engine.engine import Engine, TickOutcome
from stallward.actuator.engine.lease import Leases
from stallward.actuator.ipc.channels import GuardianLink, MessageSocket, frame_status, frame_tick
from stallward.actuator.loop.commands import CommandDesk
from stallward.actuator.loop.pacing import Pacer, Rhythm
from stallward.actuator.loop.status import LoopStatus, StatusSources
from stallward.actuator.loop.wait import Waiter, Woken
from stallward.actuator.node.node import Node
from stallward.actuator.record import wire
from stallward.actuator.record.lever_result import LeverResult
from stallward.actuator.record.tick_record import Circumstances, TickRecord, TickTimings
from stallward.agent.errors import StallwardError
from stallward.agent.sample import Sample

_BEAT_S: Final = 1.0
"""How often the guardian is told that the loop has ticked; from the first tick on."""
_STATUS_S: Final = 1.0
"""How often the service is told what only the loop knows; and after each command."""
_COMMANDS_AT_ONCE: Final = 8
"""More wait: a tick that is due goes first."""
_COLLECT_EVERY_TICKS: Final = 300
_COLLECT_SPARE_S: Final = 0.03
_MAX_BLIND_TICKS: Final = 50
"""Ticks without a readable sample after which the loop gives up (and is started again)."""


class Ticker:
    """Runs the ticks of one loop.

    Args:
        config: What the user asked for.
        node: Its sensors and levers.
        engine: What decides.
        leases: Who holds a desired state from outside.
        desk: Answers the service's commands.
        link: The line to the guardian.
        service: The line to the service.
        recorder: The line to the recorder; ``None`` if nothing is recorded.
        restarts: How many loops of this daemon there were before.
        daemon_start_s: When the daemon was started, CLOCK_MONOTONIC.
    """

    def __init__(
        self,
        *,
        config: DaemonConfig,
        node: Node,
        engine: Engine,
        leases: Leases,
        desk: CommandDesk,
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
        self._desk = desk
        self._link = link
        self._service = service
        self._recorder = recorder
        self._status = LoopStatus(
            StatusSources(
                config=config,
                node=node,
                engine=engine,
                leases=leases,
                desk=desk,
                link=link,
                outlets=(service,) if recorder is None else (service, recorder),
                restarts=restarts,
                daemon_start_s=daemon_start_s,
            )
        )
        self._rhythm = Rhythm(config.control.rates, config.control.slo_ms)
        self._sequence = 0
        self._blind_ticks = 0
        self._beat_at_s = self._status_at_s = float("-inf")

    def run(self, waiter: Waiter, stopping: Callable[[], bool]) -> None:
        """Tick until ``stopping`` says so or the guardian is gone."""
        rhythm = self._rhythm
        pacer = Pacer(time.monotonic(), rhythm.tick_s)
        while not stopping():
            watching = rhythm.quiet and self._node.background_runs()
            woken = waiter.until(pacer.due_s, rhythm, watching=watching)
            if woken is Woken.STOPPED or (self._link.overdue and self._link.gone):
                break
            if woken is Woken.STALLED:
                pacer.restart(time.monotonic(), rhythm.tick_s)
            period_s, due_s = rhythm.tick_s, pacer.due_s
            self._tick(due_s)
            self._beat()
            if rhythm.tick_s != period_s:
                pacer.restart(due_s, rhythm.tick_s)
            pacer.advance(time.monotonic())
            self._between_ticks(pacer.due_s)

    def answer_commands(self) -> None:
        """Answer what the service asked, but not so much that a tick must wait."""
        for _ in range(_COMMANDS_AT_ONCE):
            message = self._service.receive()
            if message is None:
                return
            answer = self._desk.handle(message, time.monotonic())
            if answer is not None:
                self._tell_status()  # first: who has the answer must not see older facts
                self._service.send(answer)

    def _tick(self, due_s: float) -> None:
        start_s = time.monotonic()
        lease = self._leases.current(start_s)
        config = self._config
        self._node.sampler.needs_processes = (
            self._engine.needs_processes or config.control.read_processes
        )
        try:
            sample = self._node.read(self._sequence, start_s)
        except StallwardError:
            self._blind_tick()
            return
        sensed_s = time.monotonic()
        about = Circumstances(sample_age_s=sensed_s - sample.time_s, blind_ticks=self._blind_ticks)
        outcome = self._engine.step(
            sample, remote=lease.desired if lease else None, circumstances=about
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
        self._record(start_s, sample, outcome, applied, timings)
        self._rhythm.after_tick(
            sample, outcome.granted, held=self._node.anything_held(), leased=lease is not None
        )
        now_s = time.monotonic()
        answers = self._desk.after_tick(outcome, now_s)
        if answers or now_s >= self._status_at_s:
            self._tell_status()
        for answer in answers:
            self._service.send(answer)

    def _blind_tick(self) -> None:
        """Without a readable sample nothing may be held: run everything."""
        self._sequence += 1
        self._blind_ticks += 1
        self._node.release(time.monotonic())
        if self._blind_ticks >= _MAX_BLIND_TICKS:
            raise StallwardError(f"No sample could be read {_MAX_BLIND_TICKS} times in a row.")

    def _record(
        self,
        start_s: float,
        sample: Sample,
        outcome: TickOutcome,
        applied: tuple[LeverResult, ...],
        timings: TickTimings,
    ) -> None:
        record = TickRecord(
            sequence=self._sequence,
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
        )
        self._sequence += 1
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
        status = self._status.make(ticks=self._sequence, calm=self._rhythm.calm)
        self._service.send(frame_status(status.SerializeToString()))
        self._status_at_s = time.monotonic() + _STATUS_S
