"""Stopping, continuing and terminating single processes, by pidfd with the start time checked."""

from __future__ import annotations

import signal
from functools import partial

from stallward.actuator.errors import LeverError
from stallward.actuator.groups import Group
from stallward.actuator.journal_entries import Stopped
from stallward.actuator.levers.originals import Originals
from stallward.actuator.levers.result import LeverResult, attempt
from stallward.actuator.levers.spared import daemon_pids
from stallward.actuator.paths import Paths
from stallward.actuator.process_identity import send_signal
from stallward.agent.desired import ProcessRef


class ProcessStopLever:
    """SIGSTOP and SIGCONT of the processes named, SIGTERM of one.

    Args:
        paths: The kernel's files.
        protected: Its processes are refused.
        originals: Keeps the journal.
    """

    def __init__(self, paths: Paths, protected: Group, originals: Originals) -> None:
        self._paths = paths
        self._protected = protected
        self._originals = originals
        self._stopped: dict[ProcessRef, None] = {}
        self._terminated: set[ProcessRef] = set()

    @property
    def held(self) -> bool:
        """Whether anything is stopped."""
        return bool(self._stopped)

    def apply(
        self, stopped: tuple[ProcessRef, ...], terminate: ProcessRef | None
    ) -> tuple[LeverResult, ...]:
        """Stop what is named and continue what is not any more."""
        results = [self._continue(ref) for ref in tuple(self._stopped) if ref not in stopped]
        results += [self._stop(ref) for ref in stopped if ref not in self._stopped]
        if terminate is not None and terminate not in self._terminated:
            self._terminated.add(terminate)
            lever = f"terminate:{terminate.pid}"
            results.append(attempt(lever, "SIGTERM", partial(self._terminate, terminate)))
        return tuple(results)

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


def _entry(ref: ProcessRef) -> Stopped:
    return Stopped(ref.pid, ref.start_time_ticks)
