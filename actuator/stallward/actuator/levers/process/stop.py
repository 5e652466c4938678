"""The lever that stops, continues and ends single processes by pidfd and start time."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from stallward.actuator.errors import LeverError
from stallward.actuator.journal.entries import Stopped
from stallward.actuator.kernel.files import read_bytes
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.kernel.process_table import send_signal, stat_fields
from stallward.actuator.kernel.target import Target
from stallward.actuator.levers.base.lever import LeverDefaults, PlannedWrite, daemon_pids
from stallward.actuator.levers.base.originals import Originals
from stallward.actuator.levers.base.plugin import ProcessSource
from stallward.actuator.levers.base.worker import OneShotLever, Superseded
from stallward.actuator.record.lever_result import LeverResult, attempt
from stallward.agent.desired import DesiredState, ProcessRef
from stallward.agent.sample import LeverState

# ---------- The lever that ends a slot; it cannot be undone
# It sends SIGTERM and kills what is left after a grace period, or kills at once where that is
# wanted.

GRACE_S: Final = 5.0
"""How long a slot may take to end by itself after SIGTERM."""
_LOOK_S: Final = 0.05
_KILL: Final = "cgroup.kill"


class TerminateLever(OneShotLever[signal.Signals, signal.Signals | None]):
    """Ends a slot once each time that is requested; within the grace period it can be cancelled.

    Where a kill is wanted while it waits for the slot to end by itself, it kills.

    Args:
        name: The lever's name, e.g. ``terminate:hog0``.
        source: The slot's processes.
        populated: Whether a process is left, be it one that ``source`` cannot name.
        kill: Kills all processes; returns those that are left.
        signal_of: The signal by which a state ends the slot; ``None`` if it does not. The guard
            checks that the configuration allows it.
        grace_s: The time between SIGTERM and killing.
    """

    def __init__(
        self,
        name: str,
        source: ProcessSource,
        *,
        populated: Callable[[], bool],
        kill: Callable[[], tuple[int, ...]],
        signal_of: Callable[[DesiredState], signal.Signals | None],
        grace_s: float = GRACE_S,
    ) -> None:
        self._source, self._populated, self._kill_all = source, populated, kill
        self._grace_s = grace_s
        super().__init__(name, "", signal_of, cancel=None, pending_s=grace_s + GRACE_S)

    def plan(self, granted: DesiredState) -> tuple[PlannedWrite, ...]:
        """One planned write if the slot would be ended."""
        target = self._new_target(granted)
        if target is None:
            return ()
        kills = target is signal.SIGKILL
        plan = PlannedWrite(
            lever=self.name,
            target=f"{target.name} to {len(self._source.members())} processes",
            before="running",
            after="killed" if kills else f"ended; killed after {self._grace_s:g} s",
            undo="cannot be undone",
        )
        return (plan,)

    def _work(
        self, wanted: signal.Signals | None, superseded: Superseded
    ) -> tuple[LeverResult, ...] | None:
        if wanted is None:
            return ()
        if wanted is signal.SIGKILL:
            return (attempt(self.name, _KILL, self._kill),)
        result = attempt(self.name, "SIGTERM", self._terminate_all)
        if not result.ok:
            return (result,)
        deadline_s = time.monotonic() + self._grace_s
        while self._populated():
            if superseded():
                return None
            if time.monotonic() >= deadline_s:
                return (attempt(self.name, _KILL, self._kill),)
            time.sleep(_LOOK_S)
        return (result,)

    def _terminate_all(self) -> None:
        self._source.check()
        for pid in self._source.members():
            self._terminate(pid)

    def _terminate(self, pid: int) -> None:
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            return
        try:
            # The descriptor pins the process; only now is it asked whether it is a member.
            if self._source.holds(pid):
                signal.pidfd_send_signal(pidfd, signal.SIGTERM)
                # A stopped process would take the signal only when it runs again.
                signal.pidfd_send_signal(pidfd, signal.SIGCONT)
        except ProcessLookupError:
            pass
        except OSError as error:
            raise LeverError(f"Process {pid} cannot be ended ({error.strerror}).") from error
        finally:
            os.close(pidfd)

    def _kill(self) -> None:
        self._source.check()
        left = self._kill_all()
        if left:
            raise LeverError(f"Processes {list(left)} cannot be killed.")


_NOT_RUNNING: Final = frozenset({b"T", b"t", b"Z", b"X"})
"""States of /proc/PID/stat in which a process does not run: stopped, traced or ended."""


class ProcessStopLever(LeverDefaults):
    """Sends SIGSTOP and SIGCONT to the listed processes, and SIGTERM or SIGKILL to one.

    Args:
        paths: The kernel's files.
        protected: The protected application, whose processes are never signalled.
        originals: Keeps the journal.
    """

    name = "stop"

    def __init__(self, paths: Paths, protected: Target, originals: Originals) -> None:
        self._paths = paths
        self._protected = protected
        self._originals = originals
        self._stopped: dict[ProcessRef, bool] = {}
        """Whether a process has been seen stopped: a signal takes effect with a delay."""
        self._left: set[ProcessRef] = set()
        """Processes that another program continued while they were to be stopped."""
        self._turn = 0
        self.foreign_total = 0
        self._ended: set[tuple[ProcessRef, signal.Signals]] = set()
        self._wanted: tuple[ProcessRef, ...] = ()

    @property
    def held(self) -> bool:
        """Whether anything is stopped."""
        return bool(self._stopped)

    @property
    def idle(self) -> bool:
        """Whether exactly the wanted processes are stopped."""
        return not self._left and set(self._wanted) == self._stopped.keys()

    def apply(self, granted: DesiredState, now_s: float) -> tuple[LeverResult, ...]:
        """Stop the listed processes and continue those that are not listed any more."""
        stopped, end = granted.stopped, _end_of(granted)
        self._wanted = stopped
        self._left.intersection_update(stopped)
        results = [self._continue(ref) for ref in tuple(self._stopped) if ref not in stopped]
        known = self._stopped.keys() | self._left
        results += [self._stop(ref) for ref in stopped if ref not in known]
        if end is not None and end not in self._ended:
            self._ended.add(end)
            ref, number = end
            lever = f"terminate:{ref.pid}"
            results.append(attempt(lever, number.name, partial(self._terminate, ref, number)))
        return tuple(results)

    def look(self, now_s: float) -> tuple[LeverResult, ...]:
        """Check whether one of the processes is still stopped; the next call takes the next."""
        if not self._stopped:
            return ()
        self._turn = (self._turn + 1) % len(self._stopped)
        ref = tuple(self._stopped)[self._turn]
        path = self._paths.proc / str(ref.pid) / "stat"
        content = read_bytes(path)
        fields = stat_fields(content, path) if content else []
        if not fields or int(fields[19]) != ref.start_time_ticks:
            return ()  # it has ended; continuing it will find that out
        if fields[0] in _NOT_RUNNING:
            self._stopped[ref] = True
        elif self._stopped[ref]:
            del self._stopped[ref]
            self._left.add(ref)
            self._originals.release(_entry(ref))
            self.foreign_total += 1
            error = "another program continued it; left as it is"
            return (LeverResult(lever=f"stop:{ref.pid}", value="SIGSTOP", ok=False, error=error),)
        return ()

    def states(self, now_s: float) -> tuple[LeverState, ...]:
        """Processes that another program continued; a sample shows the stopped ones."""
        return tuple(
            LeverState(lever=f"stop:{ref.pid}", value="SIGCONT", foreign=True)
            for ref in self._left
        )

    def restore(self, now_s: float) -> tuple[LeverResult, ...]:
        """Continue everything."""
        self._wanted = ()
        self._left.clear()
        return tuple(self._continue(ref) for ref in tuple(self._stopped))

    def plan(self, granted: DesiredState) -> tuple[PlannedWrite, ...]:
        """One planned write per process that would be stopped, continued or terminated."""
        new = [ref for ref in granted.stopped if ref not in self._stopped]
        old = [ref for ref in self._stopped if ref not in granted.stopped]
        plans = [_plan(ref, "stop", "SIGSTOP", "SIGCONT") for ref in new]
        plans += [_plan(ref, "stop", "SIGCONT", "SIGSTOP") for ref in old]
        end = _end_of(granted)
        if end is not None and end not in self._ended:
            plans.append(_plan(end[0], "terminate", end[1].name, "cannot be undone"))
        return tuple(plans)

    def _stop(self, ref: ProcessRef) -> LeverResult:
        result = attempt(f"stop:{ref.pid}", "SIGSTOP", partial(self._send_stop, ref))
        if result.ok:
            self._stopped[ref] = False
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
        """Refuse protected processes right before acting: the guard may have seen an old state."""
        if ref.pid in daemon_pids() or self._protected.among({ref.pid}):
            raise LeverError(f"Process {ref.pid} is protected and was left alone.")

    def _signal(self, ref: ProcessRef, number: signal.Signals) -> None:
        if not send_signal(self._paths.proc, ref.pid, ref.start_time_ticks, number):
            raise LeverError(f"Process {ref.pid} is gone.")

    def _send_stop(self, ref: ProcessRef) -> None:
        self._check(ref)
        self._originals.ensure(_entry(ref))
        self._signal(ref, signal.SIGSTOP)

    def _terminate(self, ref: ProcessRef, number: signal.Signals) -> None:
        self._check(ref)
        self._signal(ref, number)
        if number is signal.SIGTERM:
            # A stopped process would take the signal only when it runs again. It may have ended.
            send_signal(self._paths.proc, ref.pid, ref.start_time_ticks, signal.SIGCONT)
        self._stopped.pop(ref, None)
        self._originals.release(_entry(ref))


def _end_of(granted: DesiredState) -> tuple[ProcessRef, signal.Signals] | None:
    """The process that a state ends, and the signal by which; ``None`` if it ends none."""
    if granted.terminate is None:
        return None
    return granted.terminate, signal.SIGKILL if granted.kill_at_once else signal.SIGTERM


def _plan(ref: ProcessRef, what: str, action: str, undo: str) -> PlannedWrite:
    target = f"{action} to process {ref.pid}"
    return PlannedWrite(
        lever=f"{what}:{ref.pid}", target=target, before="", after=action, undo=undo
    )


def _entry(ref: ProcessRef) -> Stopped:
    return Stopped(ref.pid, ref.start_time_ticks)
