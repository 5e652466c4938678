"""The loop process: sense, observe, decide, guard, apply, record.

Ten times a second under pressure, twice while the node is calm, and at once when the protected
application begins to stall. The guardian starts it as ``python -m stallward.actuator.loop``. On
its tick path nothing waits for a disk, a log or another process. It restores everything when it
is told to stop, when its guardian dies and when it fails; when it is killed, the guardian
restores.
"""

from __future__ import annotations

from stallward.actuator.residence import (
    let_go_of_code,
    quiet_collector,
    run_first,
    single_threaded_maths,
    stay_in_memory,
)

single_threaded_maths()  # before numpy comes in

import argparse  # noqa: E402
import contextlib  # noqa: E402
import gc  # noqa: E402
import os  # noqa: E402
import signal  # noqa: E402
import socket  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Final  # noqa: E402

from stallward.actuator import convert  # noqa: E402
from stallward.actuator.channels import (  # noqa: E402
    EXIT_USER,
    GuardianLink,
    Outlet,
    frame_status,
    frame_tick,
)
from stallward.actuator.commands import CommandDesk  # noqa: E402
from stallward.actuator.config import DaemonConfig, load_config  # noqa: E402
from stallward.actuator.engine import Engine, TickOutcome  # noqa: E402
from stallward.actuator.errors import JournalError  # noqa: E402
from stallward.actuator.lease import LeaseDesk  # noqa: E402
from stallward.actuator.levers.result import LeverResult  # noqa: E402
from stallward.actuator.node import Node  # noqa: E402
from stallward.actuator.orphan import end_and_restore  # noqa: E402
from stallward.actuator.pacing import Pacer, Rhythm  # noqa: E402
from stallward.actuator.policy_loader import Loaded, PolicyLoader  # noqa: E402
from stallward.actuator.record import Circumstances, Mode, TickRecord, TickTimings  # noqa: E402
from stallward.actuator.waiting import Waiter, Woken  # noqa: E402
from stallward.agent.controller import Controller, make_controller  # noqa: E402
from stallward.agent.errors import StallwardError  # noqa: E402
from stallward.agent.inference import import_runtime  # noqa: E402
from stallward.agent.sample import Sample  # noqa: E402
from stallward.proto.v1 import stallward_pb2 as pb  # noqa: E402

EXIT_FAILED: Final = 1
_JOURNAL_START_S: Final = 10.0
"""How long the guardian's disk may take for the originals, before the first tick."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopOptions:
    """What the guardian tells its loop."""

    config: DaemonConfig
    guardian_fd: int
    command_fd: int
    record_fd: int
    latency_fd: int
    """Where another process sends latencies; -1 for none."""
    restarts: int
    daemon_start_s: float


class Loop:
    """The control loop of one node."""

    def __init__(self, options: LoopOptions) -> None:
        config = options.config
        self._options = options
        self._link = GuardianLink(socket.socket(fileno=options.guardian_fd))
        self._service = Outlet(socket.socket(fileno=options.command_fd))
        self._recorder = (
            Outlet(socket.socket(fileno=options.record_fd)) if options.record_fd >= 0 else None
        )
        self._stopping = False
        self._sequence = 0
        self._blind_ticks = 0
        self._beat_at_s = self._status_at_s = float("-inf")
        self._rhythm = Rhythm(config.control.rates, config.control.slo_ms)
        controller = make_controller(config.control.controller)
        latencies = options.latency_fd
        self._node = Node(
            config,
            self._link.hold_one,
            self._link.release_one,
            options.daemon_start_s,
            latencies=socket.socket(fileno=latencies) if latencies >= 0 else None,
        )
        if options.restarts:
            self._node.assume_paused(time.monotonic())
        self._engine = _engine(config, self._node, controller)
        self._leases = LeaseDesk()
        self._desk = CommandDesk(
            engine=self._engine,
            leases=self._leases,
            loader=PolicyLoader(config.policy.dir if config.policy else None),
        )
        if is_policy(controller):
            path = Path(str(getattr(controller, "path", "")))
            self._desk.adopt(Loaded(ticket=0, path=path, controller=controller))
            self._engine.set_mode(Mode.ACTIVE)

    def run(self) -> bool:
        """Tick until told to stop; everything is put back whatever happens.

        Returns:
            Whether all is back; if not, the guardian does it.
        """
        restored = False
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._stop)
        try:
            self._journal_originals()
            let_go_of_code()
            stay_in_memory()
            run_first()
            quiet_collector()
            self._watch = self._node.stall_watch()
            waiter = Waiter(
                link=self._link,
                wake_fd=wake_read,
                command_fd=self._service.connection.fileno(),
                answer=self._answer_commands,
                watch=self._watch,
            )
            self._run(waiter)
        finally:
            restored = self._close()
        return restored

    def _close(self) -> bool:
        """Put everything back; a loop without a guardian ends here."""
        if self._link.orphaned:
            ends = (self._link.connection, self._service.connection)
            sockets = [end.fileno() for end in ends]
            sockets += [self._recorder.connection.fileno()] if self._recorder else []
            config = self._options.config
            with contextlib.suppress(OSError):
                end_and_restore(self._link.held, config.node.paths, config.journal.path, sockets)
        return self._node.close()

    def _journal_originals(self) -> None:
        """Have every original in the journal; what cannot be noted is not changed.

        Raises:
            JournalError: If the guardian is gone.
        """
        try:
            self._link.hold(self._node.levers.originals(), timeout_s=_JOURNAL_START_S)
        except JournalError:
            if self._link.gone:
                raise
            # A full disk must not end the watching; each change asks the journal again.
            self._node.levers.uncover()

    def _missing(self) -> tuple[str, ...]:
        problem = self._link.problem
        reasons = (
            [f"journal: {problem} Nothing new is changed until it can be."] if problem else []
        )
        return (*reasons, *self._node.missing())

    def _stop(self, number: int, _frame: object) -> None:
        self._stopping = True

    def _run(self, waiter: Waiter) -> None:
        rhythm = self._rhythm
        pacer = Pacer(time.monotonic(), rhythm.tick_s)
        while not self._stopping:
            watching = rhythm.quiet and self._node.anything_runs()
            woken = waiter.until(pacer.due_s, rhythm, watching=watching)
            if woken is Woken.STOPPED or self._link.gone:
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

    def _answer_commands(self) -> None:
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
        config = self._options.config
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
            sample, outcome.granted, held=self._node.holds_anything(), leased=lease is not None
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
            guard_notes=outcome.notes,
            applied=applied,
            timings=timings,
            mode=outcome.mode,
            shadow=outcome.shadow,
            fallback=outcome.fallback,
            circumstances=outcome.circumstances,
        )
        self._sequence += 1
        data = convert.record_to_wire(record).SerializeToString()
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
        self._service.send(frame_status(self._status().SerializeToString()))
        self._status_at_s = time.monotonic() + _STATUS_S

    def _status(self) -> pb.StatusResponse:
        now_s = time.monotonic()
        lease = self._leases.current(now_s)
        dropped = self._service.dropped + (self._recorder.dropped if self._recorder else 0)
        return pb.StatusResponse(
            node_kind=self._node.hierarchy.kind,
            controller="remote" if lease else self._engine.in_force.name,
            mode=convert.mode_to_wire(self._engine.mode),
            policy=self._desk.policy,
            slots=[slot.name for slot in self._options.config.background],
            lease_held=lease is not None,
            lease_remaining_s=self._leases.remaining_s(now_s),
            ticks=self._sequence,
            records_dropped=dropped,
            missing=self._missing(),
            uptime_s=now_s - self._options.daemon_start_s,
            loop_restarts=self._options.restarts,
            calm=self._rhythm.calm,
            fallbacks=self._engine.counts.fallbacks,
            stepped_aside=self._engine.counts.stepped_aside,
            latency_source=convert.latency_status(
                self._options.config.latency, self._node.latency
            ),
        )


def is_policy(controller: Controller) -> bool:
    """Whether a controller is a loaded policy file, which has modes."""
    return hasattr(controller, "metadata") and hasattr(controller, "path")


def _engine(config: DaemonConfig, node: Node, controller: Controller) -> Engine:
    default = config.control.default_controller
    rule = make_controller(default) if is_policy(controller) else controller
    family = frozenset({os.getpid(), os.getppid()})
    return Engine(settings=node.settings(family), rule=rule, default=make_controller(default))


def _warm_up_runtime() -> None:
    """Import ONNX Runtime now: doing it at the first ``Load`` would hold up ticks."""
    with contextlib.suppress(ImportError):  # optional
        import_runtime()


def main(arguments: list[str] | None = None) -> int:
    """The loop process; returns its exit status."""
    parser = argparse.ArgumentParser(prog="stallward.actuator.loop", description=__doc__)
    parser.add_argument("--config", type=Path, required=True)
    for name in ("--guardian-fd", "--command-fd", "--record-fd", "--latency-fd", "--restarts"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--daemon-start-s", type=float, required=True)
    options = vars(parser.parse_args(arguments))
    try:
        config = load_config(options.pop("config"))
        _warm_up_runtime()
        loop = Loop(LoopOptions(config=config, **options))
    except StallwardError as error:
        sys.stderr.write(f"stallward loop: {error}\n")
        return EXIT_USER
    try:
        restored = loop.run()
    except StallwardError as error:
        sys.stderr.write(f"stallward loop: {error}\n")
        return EXIT_FAILED
    return 0 if restored else EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
