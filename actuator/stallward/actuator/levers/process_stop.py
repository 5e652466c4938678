"""Stopping, continuing and terminating single processes, by pidfd with the start time checked."""

from __future__ import annotations

import signal
from functools import partial

from stallward.actuator.errors import LeverError
from stallward.actuator.groups import Group
from stallward.actuator.journal_entries import Stopped
from stallward.actuator.levers.lever import PlannedWrite
from stallward.actuator.levers.originals import Originals
from stallward.actuator.levers.quiet import QuietLever
from stallward.actuator.levers.result import LeverResult, attempt
from stallward.actuator.levers.spared import daemon_pids
from stallward.actuator.paths import Paths
from stallward.actuator.process_identity import send_signal
from stallward.agent.desired import DesiredState, ProcessRef


class ProcessStopLever(QuietLever):
    """SIGSTOP and SIGCONT of the processes named, SIGTERM of one.

    Args:
        paths: The kernel's files.
        protected: Its processes are refused.
        originals: Keeps the journal.
    """

    name = "stop"

    def __init__(self, paths: Paths, protected: Group, originals: Originals) -> None:
        self._paths = paths
        self._protected = protected
        self._originals = originals
        self._stopped: dict[ProcessRef, None] = {}
        self._terminated: set[ProcessRef] = set()
        self._wanted: tuple[ProcessRef, ...] = ()

    @property
    def held(self) -> bool:
        """Whether anything is stopped."""
        return bool(self._stopped)

    @property
    def idle(self) -> bool:
        """Whether all that is wished to be stopped is, and nothing else."""
        return self._wanted == tuple(self._stopped)

    def apply(self, granted: DesiredState, now_s: float) -> tuple[LeverResult, ...]:
        """Stop what is named and continue what is not any more."""
        stopped, terminate = granted.stopped, granted.terminate
        self._wanted = stopped
        results = [self._continue(ref) for ref in tuple(self._stopped) if ref not in stopped]
        results += [self._stop(ref) for ref in stopped if ref not in self._stopped]
        if terminate is not None and terminate not in self._terminated:
            self._terminated.add(terminate)
            lever = f"terminate:{terminate.pid}"
            results.append(attempt(lever, "SIGTERM", partial(self._terminate, terminate)))
        return tuple(results)

    def restore(self, now_s: float) -> tuple[LeverResult, ...]:
        """Continue everything."""
        self._wanted = ()
        return tuple(self._continue(ref) for ref in tuple(self._stopped))

    def plan(self, granted: DesiredState) -> tuple[PlannedWrite, ...]:
        """One line per process that would be stopped, continued or ended."""
        new = [ref for ref in granted.stopped if ref not in self._stopped]
        old = [ref for ref in self._stopped if ref not in granted.stopped]
        plans = [_plan(ref, "stop", "SIGSTOP", "SIGCONT") for ref in new]
        plans += [_plan(ref, "stop", "SIGCONT", "SIGSTOP") for ref in old]
        if granted.terminate is not None and granted.terminate not in self._terminated:
            plans.append(_plan(granted.terminate, "terminate", "SIGTERM", "cannot be undone"))
        return tuple(plans)

    def _stop(self, ref: ProcessRef) -> LeverResult:
        result = attempt(f"stop:{ref.pid}", "SIGSTOP", partial(self._send_stop, ref))
        if result.ok:
            self._stopped[ref] = None
        else:
            self._originals.release(_entry(ref))
        return result

    def _continue(self, ref: ProcessRef) -> LeverResult:
        send = partial(
            send_signal, self._paths.proc, ref.pid, ref.start_time_ticks, signal.SIGCONT
        )
        result = attempt(f"stop:{ref.pid}", "SIGCONT", send)
        if result.ok:  # else it is tried again
            del self._stopped[ref]
            self._originals.release(_entry(ref))
        return result

    def _check(self, ref: ProcessRef) -> None:
        """Right before acting: a guard further up may have seen an older node."""
        if ref.pid in daemon_pids() or ref.pid in self._protected.pids(recursive=True):
            raise LeverError(f"Process {ref.pid} is protected and was left alone.")

    def _signal(self, ref: ProcessRef, number: signal.Signals) -> None:
        if not send_signal(self._paths.proc, ref.pid, ref.start_time_ticks, number):
            raise LeverError(f"Process {ref.pid} is gone.")

    def _send_stop(self, ref: ProcessRef) -> None:
        self._check(ref)
        self._originals.ensure(_entry(ref))
        self._signal(ref, signal.SIGSTOP)

    def _terminate(self, ref: ProcessRef) -> None:
        self._check(ref)
        self._signal(ref, signal.SIGTERM)
        # A stopped process would take the signal only when it runs again.
        self._signal(ref, signal.SIGCONT)
        self._stopped.pop(ref, None)
        self._originals.release(_entry(ref))


def _plan(ref: ProcessRef, what: str, action: str, undo: str) -> PlannedWrite:
    target = f"{action} to process {ref.pid}"
    return PlannedWrite(
        lever=f"{what}:{ref.pid}", target=target, before="", after=action, undo=undo
    )


def _entry(ref: ProcessRef) -> Stopped:
    return Stopped(ref.pid, ref.start_time_ticks)
