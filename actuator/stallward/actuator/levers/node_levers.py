"""All levers of a node, by the places that they act on; a place may get another target.

A pod comes and goes, and the next one has other files. The levers of its slot are then made anew;
those of other slots keep what they hold. A slot without a target has levers that do nothing.
"""

from __future__ import annotations

import _thread
import time
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from functools import partial
from typing import TYPE_CHECKING, Final

from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.kernel.target import AnyTarget, is_unbound
from stallward.actuator.levers.base.file_lever import FileLever
from stallward.actuator.levers.base.lever import (
    Lever,
    LeverDefaults,
    SlotLevers,
    SlotLimit,
    SlotPause,
)
from stallward.actuator.levers.base.originals import Originals
from stallward.actuator.levers.base.plugin import LeverSite, ProcessSource
from stallward.actuator.levers.cgroup import cpu_and_io
from stallward.actuator.levers.cgroup.vm_settings import swappiness, vm_levers
from stallward.actuator.levers.process.oom_score import OomScoreLever
from stallward.actuator.levers.process.page_advice import PageAdviceLever
from stallward.actuator.levers.process.stop import ProcessStopLever
from stallward.actuator.levers.slot_levers import (
    GroupSlot,
    Site,
    protected_thread_levers,
)
from stallward.actuator.parts import Part, load_part
from stallward.actuator.record.lever_result import LeverResult
from stallward.agent.desired import DesiredState, PageAdvice
from stallward.agent.sample import LeverState

if TYPE_CHECKING:
    from stallward.actuator.levers.tree_slot import TreeSlot

PROTECTED: Final = -1
"""The place of the first protected application; the others have -2, -3 and so on, and slots have
their indices."""
_RETIRE_S: Final = 10.0
"""How long a thread of a lever that is not used any more may take to end."""


class _Empty(LeverDefaults):
    """Pause and limit of a slot without a target: they do nothing."""

    limit_bytes: int | None = None
    held = busy = False

    hard = False

    def __init__(self, name: str) -> None:
        self.name = name

    def wait(self, deadline_s: float) -> bool:
        """True: nothing is under way."""
        return True

    def requested(self) -> bool:
        """False: nothing is paused."""
        return False

    def frozen(self) -> bool:
        """False: nothing is paused."""
        return False

    def apply(self, granted: DesiredState, now_s: float) -> tuple[LeverResult, ...]:
        """Do nothing."""
        return ()

    def restore(self, now_s: float) -> tuple[LeverResult, ...]:
        """Do nothing."""
        return ()

    def states(self, now_s: float) -> tuple[LeverState, ...]:
        """List nothing."""
        return ()


def _no_levers(target: AnyTarget) -> SlotLevers:
    short = target.short_name
    return SlotLevers(pause=_Empty(f"pause:{short}"), limit=_Empty(f"limit:{short}"))


class _Now:
    """The targets that a slot or the application has now, for levers that act on several."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.targets: dict[int, AnyTarget] = {}
        """The targets by their places."""
        self.pages: dict[int, ProcessSource] = {}

    def pids(self, *, recursive: bool = False, most: int | None = None) -> tuple[int, ...]:
        """The processes of the targets."""
        found = [one.pids(recursive=recursive, most=most) for one in self.targets.values()]
        return found[0] if len(found) == 1 else tuple(sorted(set().union(*found)))

    def among(self, pids: AbstractSet[int]) -> frozenset[int]:
        """Which of some processes are in one of the targets."""
        return frozenset[int]().union(*(one.among(pids) for one in self.targets.values()))

    def exists(self) -> bool:
        """Whether any target can have processes."""
        return any(one.exists() for one in self.targets.values())

    def source(self) -> ProcessSource:
        """The processes whose file pages may be acted on."""
        return ProcessSource(members=self._members, holds=self._holds, check=self._check)

    def _members(self) -> tuple[int, ...]:
        return tuple(pid for pages in self.pages.values() for pid in pages.members())

    def _holds(self, pid: int) -> bool:
        return any(pages.holds(pid) for pages in self.pages.values())

    def _check(self) -> None:
        for pages in self.pages.values():
            pages.check()


class NodeLevers:
    """The levers of a node's groups and process trees; each knows whether it is missing.

    Args:
        site: The parts of the node.
        originals: Keeps the journal.
    """

    def __init__(self, site: Site, originals: Originals) -> None:
        self._site = site
        self._originals = originals
        self._now = [_Now(slot.name) for slot in site.slots]
        self._slot_of = list(range(len(site.slots)))
        """The slot of each place; those behind the slots' own are for pods that share one."""
        self._targets: dict[int, AnyTarget] = {}
        """By place; the applications have :data:`PROTECTED` and the places below it."""
        self._protected_now = _Now(site.applications[0].name)
        self._slots = [self._make_slot(index, slot) for index, slot in enumerate(site.slots)]
        self._protected = [
            self._make_protected(index, target) for index, target in enumerate(site.applications)
        ]
        self._shared = self._make_shared()

    @property
    def slots(self) -> tuple[SlotLevers, ...]:
        """The levers of each place of a slot."""
        return tuple(self._slots)

    @property
    def pauses(self) -> tuple[SlotPause, ...]:
        """The pauses of the places that have a target."""
        there = (place for place in self._targets if place > PROTECTED)
        return tuple(self._slots[i].pause for i in there if not is_unbound(self._targets[i]))

    @property
    def every(self) -> tuple[Lever, ...]:
        """All levers, pauses first."""
        return (
            *(slot.pause for slot in self._slots),
            *(slot.limit for slot in self._slots),
            *(lever for slot in self._slots for lever in slot.others),
            *(lever for levers in self._protected for lever in levers),
            *self._shared,
        )

    def of(self, place: int) -> tuple[Lever, ...]:
        """The levers of one place."""
        return (
            self._slots[place].every if place > PROTECTED else self._protected[PROTECTED - place]
        )

    @property
    def targets(self) -> tuple[AnyTarget, ...]:
        """The targets of all places of slots."""
        return tuple(self._targets[place] for place in range(len(self._slots)))

    @property
    def applications(self) -> tuple[AnyTarget, ...]:
        """The targets that are protected."""
        return tuple(self._targets[PROTECTED - index] for index in range(len(self._protected)))

    def target(self, place: int) -> AnyTarget | None:
        """The target of one place; ``None`` if there is no such place yet."""
        return self._targets.get(place)

    def rebind(self, place: int, target: AnyTarget, slot: int | None) -> tuple[Lever, ...]:
        """Give another target to a place whose levers hold nothing; return the old levers.

        Args:
            place: The place; a new one is made behind the last.
            target: The target.
            slot: The slot that it is for; ``None`` for that of before.
        """
        if place == len(self._slots):
            self._slot_of.append(0 if slot is None else slot)
            self._slots.append(_no_levers(target))
        before = self.of(place)
        if place <= PROTECTED:
            index = PROTECTED - place
            self._protected[index] = self._make_protected(index, target)
            return before
        if slot is not None:
            self._slot_of[place] = slot
        self._slots[place] = self._make_slot(place, target)
        return before

    def _make_slot(self, index: int, target: AnyTarget) -> SlotLevers:
        site, originals = self._site, self._originals
        now = self._now[self._slot_of[index]]
        self._targets[index] = target
        if is_unbound(target):
            now.targets.pop(index, None)
            now.pages.pop(index, None)
            return _no_levers(target)
        maker: GroupSlot | TreeSlot = (
            GroupSlot(site, index, target, originals)
            if isinstance(target, Cgroup)
            else load_part(Part.TREE_LEVERS)(
                index, target, site.paths.proc, originals, site.exempt
            )
        )
        now.targets[index] = target
        now.pages[index] = maker.source()
        limit: SlotLimit
        limit, *rest = maker.memory()
        return SlotLevers(
            pause=maker.pause(),
            limit=limit,
            others=(*rest, *maker.files(), *maker.processes()),
        )

    def _make_protected(self, index: int, target: AnyTarget) -> tuple[Lever, ...]:
        site, originals = self._site, self._originals
        place, now = PROTECTED - index, self._protected_now
        self._targets[place] = now.targets[place] = target
        if is_unbound(target):
            now.pages.pop(place, None)
            return ()
        members = partial(target.pids, recursive=True)
        pages = ProcessSource(members=members, holds=lambda pid: pid in members())
        now.pages[place] = pages
        specs = []
        group = target if isinstance(target, Cgroup) else None
        if group is not None:
            hard = index < len(site.hard_protection) and site.hard_protection[index]
            specs = [
                cpu_and_io.protection(group, hard=hard, application=index),
                *swappiness(group, application=index),
            ]
        return (
            *(FileLever(spec, originals, aside_s=site.aside_s) for spec in specs),
            self._willneed(target, pages),
            *protected_thread_levers(
                target.short_name,
                members,
                None if group is None else group.unified_dir,
                site.paths.proc,
                originals,
            ),
        )

    def _willneed(self, target: AnyTarget, pages: ProcessSource) -> PageAdviceLever:
        def advice(granted: DesiredState) -> PageAdvice | None:
            return "willneed" if granted.protected_willneed else None

        name, proc = f"pages:{target.short_name}", self._site.paths.proc
        return PageAdviceLever(name, pages, advice, proc)

    def _make_shared(self) -> tuple[Lever, ...]:
        site, originals, protected = self._site, self._originals, self._protected_now
        of_others = LeverSite(
            slots=[now.source() for now in self._now],
            protected=protected.source(),
            proc=site.paths.proc,
            hierarchy=site.hierarchy,
        )
        return (
            *(entry.make(of_others) for entry in site.plugins),
            ProcessStopLever(site.paths, protected, originals),
            *vm_levers(
                paths=site.paths,
                zone=site.zone,
                zone_limit_bytes=site.zone_limit_bytes,
                originals=originals,
                aside_s=site.aside_s,
            ),
            OomScoreLever(site.paths, protected, tuple(self._now), originals),
        )


def retire(levers: Iterable[Lever]) -> None:
    """End the threads of levers that hold nothing and are not used any more, and close files.

    A thread does it: one of those may still be in the kernel.
    """
    levers = tuple(levers)

    def end() -> None:
        deadline_s = time.monotonic() + _RETIRE_S
        for lever in levers:
            lever.finish(deadline_s)

    try:
        # Thread.start() waits until the thread runs, which may take long under pressure.
        _thread.start_new_thread(end, ())
    except RuntimeError:  # no room for another thread
        end()
