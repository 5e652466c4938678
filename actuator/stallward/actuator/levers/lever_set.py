"""All levers of one node, which put a granted desired state into force."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from stallward.actuator.journal.entries import JournalEntry
from stallward.actuator.kernel.cgroups import Cgroup, Hierarchy
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.kernel.target import AnyTarget, protected_pids
from stallward.actuator.levers.base.lever import ASIDE_S, ExemptProcesses, Lever, PlannedWrite
from stallward.actuator.levers.base.originals import (
    Originals,
    ReleaseJournal,
    SendJournal,
    TouchJournal,
)
from stallward.actuator.levers.base.plugin import KNOWN, LeverEntry, why_not_loaded
from stallward.actuator.levers.node_levers import NodeLevers, retire
from stallward.actuator.levers.slot_levers import Site
from stallward.actuator.parts import Part, load_part
from stallward.actuator.record.lever_result import LeverResult
from stallward.agent.desired import RELEASED, DesiredState
from stallward.agent.errors import StallwardError
from stallward.agent.sample import LeverState

if TYPE_CHECKING:
    from stallward.actuator.levers.cgroup.oom_wait import OomAlarms

__all__ = ["LeverOptions", "LeverResult", "LeverSet"]

_LOOSEN_S: Final = 0.05
"""How long thawing waits for limits to be loosened; a write that reclaims is interrupted for it."""
RESTORE_S: Final = 2.0
"""How long a restore waits in total for writes under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeverOptions:
    """How the levers of a node are used."""

    dry_run: bool = False
    """Whether changes are only reported, not made."""
    aside_s: float = ASIDE_S
    """How long a lever steps aside after a foreign change, unless another value is wanted."""
    hard_protection: tuple[bool, ...] = ()
    """Whether the guaranteed memory of each application is never reclaimed, on v2; by default not."""
    plugins: tuple[LeverEntry, ...] = ()
    """The levers of other packages."""


class LeverSet:
    """Every lever of a node.

    Repeating a state changes nothing: only differences are written, and a tick without any costs
    microseconds. Nothing blocks: threads write the limits, and freezing is confirmed at later
    ticks.

    Args:
        paths: The kernel's files.
        hierarchy: The node's cgroup hierarchies.
        zone: The group that the protected application and the background share.
        applications: The groups or process trees of the protected applications; never paused,
            limited or signalled.
        slots: The background groups or process trees, in slot order.
        zone_limit_bytes: The zone's memory limit; ``None`` for the whole machine.
        send_journal: Called with every entry that :meth:`originals` does not cover, before the
            change that it undoes; an error that it raises prevents the change.
        release_journal: Called with such an entry when it need not be undone any more.
        touch_journal: Marks whether the setting of an entry that was sent may be changed now.
        exempt: Processes besides the daemon's own: a group that holds one is not changed.
        options: How the levers are used.
    """

    def __init__(
        self,
        paths: Paths,
        hierarchy: Hierarchy,
        zone: Cgroup,
        applications: tuple[AnyTarget, ...],
        slots: tuple[AnyTarget, ...],
        zone_limit_bytes: int | None,
        send_journal: SendJournal,
        release_journal: ReleaseJournal | None = None,
        touch_journal: TouchJournal | None = None,
        exempt: frozenset[int] = frozenset(),
        options: LeverOptions | None = None,
    ) -> None:
        lock = threading.Lock()

        def send(*entries: JournalEntry) -> None:
            with lock:  # the levers' threads send too
                send_journal(*entries)

        options = options or LeverOptions()
        v2 = hierarchy.kind == "v2"
        self._alarms: OomAlarms | None = None if v2 else load_part(Part.OOM_WAIT)(len(slots))
        self._originals = Originals(send, release_journal, touch_journal)
        site = Site(
            paths=paths,
            hierarchy=hierarchy,
            zone=zone,
            applications=applications,
            slots=slots,
            zone_limit_bytes=zone_limit_bytes,
            exempt=ExemptProcesses(exempt, lambda: protected_pids(applications)),
            alarms=self._alarms,
            aside_s=options.aside_s,
            hard_protection=options.hard_protection,
            plugins=options.plugins,
        )
        self._plugins = options.plugins
        self._levers = NodeLevers(site, self._originals)
        self._every = self._levers.every
        self._dry_run = options.dry_run
        self._why = hierarchy.why.rstrip(".") if hierarchy.kind == "none" else ""
        self._last: DesiredState | None = None
        self._active: tuple[Lever, ...] = ()
        """Levers that hold something or have something left to do; the others wait."""
        self._turn = 0

    def settled(self, place: int) -> bool:
        """Whether the levers of a slot, or of ``PROTECTED``, hold nothing."""
        return not any(lever.held for lever in self._levers.of(place))

    def rebind(self, place: int, target: AnyTarget, slot: int | None = None) -> None:
        """Give another target to a place whose levers are settled; it starts released.

        The journal drops what it has of the old one, and has what is of the new one before its
        first change. Places behind the slots' own are for the pods that share the slot ``slot``.
        """
        if self._alarms is not None:
            self._alarms.forget(place)
        gone = self._levers.target(place)
        with self._originals.unnoted():
            before = self._levers.rebind(place, target, slot)
        if isinstance(gone, Cgroup):
            self._originals.forget_below(gone.every_dir)
        retire(before)
        self._every = self._levers.every
        old = frozenset(map(id, before))
        self._active = tuple(lever for lever in self._active if id(lever) not in old)
        self._last = None  # the new levers have seen no state yet

    @property
    def applications(self) -> tuple[AnyTarget, ...]:
        """The targets that are protected now."""
        return self._levers.applications

    @property
    def targets(self) -> tuple[AnyTarget, ...]:
        """The targets of all places of slots now."""
        return self._levers.targets

    @property
    def plugins(self) -> tuple[LeverEntry, ...]:
        """The levers of other packages."""
        return self._plugins

    @property
    def dry_run(self) -> bool:
        """Whether changes are only reported, not made."""
        return self._dry_run

    @property
    def foreign_total(self) -> int:
        """How many foreign changes there were to what a lever held."""
        return sum(lever.foreign_total for lever in self._every)

    def originals(self) -> tuple[JournalEntry, ...]:
        """The entries of all settings known now; the journal must have them before a change."""
        return self._originals.entries

    def uncover(self) -> None:
        """Note that the journal lacks :meth:`originals`: send each before its first change."""
        self._originals.uncover()

    def apply(self, granted: DesiredState) -> tuple[LeverResult, ...]:
        """Put ``granted`` into force.

        Returns:
            The changes made now, and those that slower levers finished since the last call; in a
            dry run the changes that would have been made.
        """
        new, self._last = granted != self._last, granted
        if self._dry_run:
            return tuple(_as_dry(plan) for plan in self.plan(granted)) if new else ()
        now_s = time.monotonic()
        results = [*self._not_loaded(granted), *self._loosen_first(granted)] if new else []
        active: list[Lever] = []
        for lever in self._every if new else self._active:
            # Read before the poll: what finishes in between is reported at the next tick.
            quiet = lever.idle and not lever.held
            results += _safely(lever, lever.poll, now_s)
            if new or not quiet:
                results += _safely(lever, partial(lever.apply, granted), now_s)
            if not quiet or not lever.idle or lever.held:
                active.append(lever)
        self._active = tuple(active)
        results += self._look(now_s)
        return tuple(results)

    def _not_loaded(self, granted: DesiredState) -> list[LeverResult]:
        """Say what is wanted of levers of other packages that are not loaded."""
        loaded = {entry.name for entry in self._plugins}
        return [
            LeverResult(lever=name, value="", ok=False, error=why_not_loaded(name))
            for name, known in KNOWN.items()
            if name not in loaded and getattr(granted, known.field) is not None
        ]

    def _loosen_first(self, granted: DesiredState) -> list[LeverResult]:
        """Loosen the limits of groups that are about to run again, before they run.

        A group that was squeezed while it was paused may have nothing left to reclaim, and under a
        hard limit its system calls would fail in the milliseconds until that is raised.
        """
        results: list[LeverResult] = []
        loosened = [
            slot.limit
            for index, slot in enumerate(self._levers.slots)
            if slot.limit.hard and slot.pause.held and not granted.slot(index).paused
        ]
        for limit in loosened:
            results += _safely(limit, partial(limit.apply, granted), time.monotonic())
        deadline_s = time.monotonic() + _LOOSEN_S
        for limit in loosened:
            limit.wait(deadline_s)
        return results

    def _look(self, now_s: float) -> tuple[LeverResult, ...]:
        """Let one lever check what it holds; the next call takes the next lever."""
        pauses = self._levers.pauses
        watched = len(pauses) + len(self._active)
        if not watched:
            return ()
        self._turn = (self._turn + 1) % watched
        looks_at_pause = self._turn < len(pauses)
        lever: Lever = (
            pauses[self._turn] if looks_at_pause else self._active[self._turn - len(pauses)]
        )
        results = tuple(_safely(lever, lever.look, now_s))
        if lever not in self._active and not lever.idle:
            self._active = (*self._active, lever)
        return results

    def poll(self) -> tuple[LeverResult, ...]:
        """The results that slower levers finished since the last call."""
        now_s = time.monotonic()
        return tuple(result for lever in self._every for result in lever.poll(now_s))

    def plan(self, granted: DesiredState) -> tuple[PlannedWrite, ...]:
        """List what :meth:`apply` would change now; nothing is changed."""
        return tuple(plan for lever in self._every for plan in lever.plan(granted))

    def slot_paused(self, index: int) -> bool:
        """Whether a pause of slot ``index`` is requested, by its lever or another program."""
        return self._levers.slots[index].pause.requested()

    def slot_pause_held(self, index: int) -> bool:
        """Whether the lever of slot ``index`` may have paused it."""
        return self._levers.slots[index].pause.held

    def slot_frozen(self, index: int) -> bool:
        """Whether the whole of slot ``index`` is stopped now; read from the kernel."""
        return self._levers.slots[index].pause.frozen()

    def slot_limit_bytes(self, index: int) -> int | None:
        """The limit of slot ``index`` in force or being approached; ``None`` for its original."""
        return self._levers.slots[index].limit.limit_bytes

    def slot_limit_settled(self, index: int) -> bool:
        """Whether no write of the limit of slot ``index`` is under way."""
        return not self._levers.slots[index].limit.busy

    @property
    def alarm_fd(self) -> int:
        """A descriptor that is readable once a slot waits for memory; -1 where none ever does."""
        return -1 if self._alarms is None else self._alarms.fd

    def memory_waits(self) -> tuple[int, ...]:
        """For each slot, how often it had to wait for memory under a limit."""
        return (0,) * len(self.targets) if self._alarms is None else self._alarms.take()

    def states(self) -> tuple[LeverState, ...]:
        """What is held now besides pauses and limits, and what levers have stepped aside from."""
        now_s = time.monotonic()
        return tuple(state for lever in self._active for state in lever.states(now_s))

    def restore(self) -> tuple[LeverResult, ...]:
        """Put everything back, thawing first; waits a limited time for writes under way.

        It never raises: the results include what could not be put back.
        """
        self._last = None
        results = self._loosen_first(RELEASED)
        for lever in self._every:
            results += _safely(lever, lever.restore, time.monotonic())
        deadline_s = time.monotonic() + RESTORE_S
        for lever in self._every:
            results += _safely(lever, lever.finish, deadline_s)
        self._active = ()
        return tuple(results)

    def held(self) -> tuple[str, ...]:
        """Names of levers that may not be back to their originals; empty after a full restore."""
        return tuple(lever.name for lever in self._every if lever.held)

    def anything_held(self) -> bool:
        """Whether :meth:`held` names any lever; asks only the active ones."""
        return any(lever.held for lever in self._active)

    def close(self) -> None:
        """Close what the levers listen on; they cannot be used afterwards."""
        if self._alarms is not None:
            self._alarms.close()

    def survey(self) -> tuple[tuple[str, str], ...]:
        """The name of every lever, and why it cannot be used (empty where it can)."""
        return tuple((lever.name, "; ".join(lever.missing)) for lever in self._every)

    def can_hold_back(self) -> bool:
        """Whether any slot can be paused or limited."""
        slots = self._levers.slots
        return any(not lever.missing for slot in slots for lever in (slot.pause, slot.limit))

    def missing(self) -> tuple[str, ...]:
        """The reasons why levers are missing on this node."""
        reasons = [self._why] if self._why else []
        remarks = (slot.limit.remark for slot in self._levers.slots if slot.limit.remark)
        return (*reasons, *(reason for lever in self._every for reason in lever.missing), *remarks)


def _safely(
    lever: Lever, action: Callable[[float], Iterable[LeverResult]], time_s: float
) -> tuple[LeverResult, ...]:
    """Return the results of ``action``; a lever that fails must not stop the others."""
    try:
        results = action(time_s)
        return tuple(map(_as_missing, results)) if lever.missing else tuple(results)
    except (StallwardError, OSError, RuntimeError) as error:
        return (LeverResult(lever=lever.name, value="", ok=False, error=str(error)),)


def _as_missing(result: LeverResult) -> LeverResult:
    """The result of a lever that the node does not have, which does not count as a failure."""
    return result if result.ok else replace(result, missing=True)


def _as_dry(plan: PlannedWrite) -> LeverResult:
    return LeverResult(lever=plan.lever, value=plan.after, dry_run=True)
