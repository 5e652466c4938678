"""All levers of one node: applies a granted desired state and nothing else."""

from __future__ import annotations

import threading

from stallward.actuator.groups import Group, Hierarchy
from stallward.actuator.journal_entries import JournalEntry
from stallward.actuator.levers.memory_limit import MemoryLimitLever
from stallward.actuator.levers.oom import OomLever
from stallward.actuator.levers.originals import Originals, ReleaseJournal, SendJournal
from stallward.actuator.levers.pause import PauseLever
from stallward.actuator.levers.process_stop import ProcessStopLever
from stallward.actuator.levers.result import LeverResult, attempt
from stallward.actuator.levers.spared import Spared
from stallward.actuator.levers.vm_knobs import VmKnobsLever
from stallward.actuator.paths import Paths
from stallward.agent.desired import RELEASED, DesiredState

__all__ = ["LeverResult", "LeverSet"]


class LeverSet:
    """Every lever of a node.

    Repeating a state changes nothing: only differences are written. Nothing blocks: limits are
    written by threads of their own, freezing is confirmed at later ticks.

    Args:
        paths: The kernel's files.
        hierarchy: The node's cgroup hierarchies.
        zone: What the protected application and the background share.
        protected: The protected application's group; never paused, limited or signalled.
        slots: The background groups, in slot order.
        zone_limit_bytes: The zone's memory limit; ``None`` for the whole machine.
        send_journal: Called with every entry that :meth:`originals` does not cover, before the
            change that it undoes; an error it raises keeps that change from being made.
        release_journal: Called with such an entry when it is undone for good.
        spared: Processes with which no group is paused or limited, besides the daemon's own.
    """

    def __init__(
        self,
        paths: Paths,
        hierarchy: Hierarchy,
        zone: Group,
        protected: Group,
        slots: tuple[Group, ...],
        zone_limit_bytes: int | None,
        send_journal: SendJournal,
        release_journal: ReleaseJournal | None = None,
        spared: frozenset[int] = frozenset(),
    ) -> None:
        lock = threading.Lock()

        def send(entry: JournalEntry) -> None:
            with lock:  # the limits' threads send too
                send_journal(entry)

        self._kind = hierarchy.kind
        self._why = hierarchy.why
        self._originals = Originals(send, release_journal)
        apart = Spared(spared)
        self._pauses = tuple(PauseLever(group, self._originals, spared=apart) for group in slots)
        self._limits = tuple(
            MemoryLimitLever(group, self._originals, spared=apart) for group in slots
        )
        self._knobs = VmKnobsLever(
            paths=paths,
            zone=zone,
            protected=protected,
            slots=slots,
            zone_limit_bytes=zone_limit_bytes,
            originals=self._originals,
        )
        self._stops = ProcessStopLever(paths, protected, self._originals)
        self._oom = OomLever(paths, protected, slots, self._originals)

    def originals(self) -> tuple[JournalEntry, ...]:
        """Everything that is known now and may ever be changed; hand it to the journal first."""
        return self._originals.entries

    def uncover(self) -> None:
        """The journal did not take :meth:`originals`: try each again before its first change."""
        self._originals.uncover()

    def apply(self, granted: DesiredState) -> tuple[LeverResult, ...]:
        """Make ``granted`` so.

        Returns:
            What was moved now, and what slower levers finished since the last call.
        """
        results: list[LeverResult] = list(self.poll())
        for index, (pause, limit) in enumerate(zip(self._pauses, self._limits, strict=True)):
            desire = granted.slot(index)
            results += pause.apply(desire.paused)
            limit.apply(desire.limit_bytes)
        results += self._stops.apply(granted.stopped, granted.terminate)
        results += self._knobs.apply(granted.tuning)
        results += self._oom.apply(granted.protect_from_oom)
        return tuple(results)

    def poll(self) -> tuple[LeverResult, ...]:
        """What levers that take their time finished since the last call."""
        results: list[LeverResult] = []
        for pause, limit in zip(self._pauses, self._limits, strict=True):
            results += pause.poll()
            results += limit.poll()
        return tuple(results)

    def slot_paused(self, index: int) -> bool:
        """Whether the kernel is asked to keep slot ``index`` frozen now."""
        return self._pauses[index].requested()

    def slot_limit_bytes(self, index: int) -> int | None:
        """The limit that slot ``index`` has or is being moved to; ``None`` for its original."""
        return self._limits[index].limit_bytes

    def slot_limit_settled(self, index: int) -> bool:
        """Whether no write of the limit of slot ``index`` is under way."""
        return not self._limits[index].busy

    def restore(self) -> tuple[LeverResult, ...]:
        """Put everything back, thawing first; waits for limits under way, but not for ever.

        Never raises: what could not be put back is among the results.
        """
        results: list[LeverResult] = []
        for pause in self._pauses:
            results += pause.apply(False)
        results += self._stops.apply((), None)
        for limit in self._limits:
            failed = attempt("limit", "original", limit.restore)
            results += limit.poll() if failed.ok else (failed,)
        results += self._knobs.apply(RELEASED.tuning)
        results += self._oom.apply(False)
        return tuple(results)

    def held(self) -> tuple[str, ...]:
        """Kinds of levers of which something may not be as it was; empty after a full restore."""
        kinds = {
            "pause": any(lever.held for lever in self._pauses),
            "limit": any(lever.held for lever in self._limits),
            "stop": self._stops.held,
            "knobs": self._knobs.held,
            "oom": self._oom.held,
        }
        return tuple(kind for kind, held in kinds.items() if held)

    def missing(self) -> tuple[str, ...]:
        """Levers this node does not have, and why."""
        reasons = [self._why.rstrip(".")] if self._kind == "none" else []
        reasons += [lever.missing for lever in self._pauses if lever.missing]
        reasons += [lever.missing for lever in self._limits if lever.missing]
        reasons += self._knobs.missing()
        if self._oom.refused:
            reasons.append("oom: lowering a score is refused; the background's are raised")
        return tuple(reasons)
