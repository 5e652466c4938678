"""``latd``, ``latd-cgroup``, ``latd-grow``: the rules of the latd thesis.

Source: "latd", thesis, UNC Charlotte 2019, Algorithms 1 to 3. Where its listing and Algorithm 1
disagree, these rules follow Algorithm 1. The thesis acts on a whole machine, these rules on a
zone: the candidates are the processes of the background groups, PSI is the zone's, and so is the
available memory, for which the thesis reads MemAvailable. The period is 0.1 s.

Each is refused on a node that lacks what its algorithm watches or sets. There is one substitute:
Algorithms 2 and 3 begin by giving the application's cgroup a swappiness of 90, so that its page
cache is kept. cgroup v2 has no swappiness of a group, and all groups have that of the node. There
the node's is set to 90, as Algorithm 1 does. The application has the 90 that it is to have, and so
has the background, which the thesis leaves at 60; the reasons of the decisions say so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.controller import (
    Decision,
    IgnoresTarget,
    Need,
    NodeContext,
    require_needs,
    require_one,
)
from stallward.agent.desired import (
    RELEASED,
    DesiredState,
    ProcessRef,
    SlotDesire,
    Tuning,
)
from stallward.agent.observation.available import available_bytes
from stallward.agent.plugin import ControllerEntry
from stallward.agent.sample import ProcessSample, Sample

_TERMINATE_RATIO: Final = 0.001
_BACKGROUND_RATIO: Final = 10 / 16
"""Algorithm 2 limits the background to 10 of the machine's 16 GB."""
_GROW_RATIO: Final = 1 / 16
"""Algorithm 3 gives no step; this is one of the machine's 16 GB."""

_CALM: Final = Tuning(name="latd", swappiness=90, overcommit_memory=0)
_FLUSHING: Final = replace(_CALM, name="latd-flush", dirty_background_ratio=2, dirty_ratio=100)
_CGROUP: Final = Tuning(name="latd-cgroup", protected_swappiness=90)
_CGROUP_NODE: Final = Tuning(name="latd-cgroup-node", swappiness=90)
"""The same where groups have no swappiness of their own."""
TUNINGS: Final = (_CALM, _FLUSHING, _CGROUP, _CGROUP_NODE)
"""The tunings of these rules, in addition to the profiles of the action table."""


def _available_ratio(sample: Sample, zone_limit_bytes: int) -> float | None:
    """The available share of the zone's memory; ``None`` when it is unknown."""
    total = sample.zone.memory_limit_bytes or zone_limit_bytes
    available = available_bytes(sample, zone_limit_bytes)
    return None if available is None else available / total


def _rose(now: int | None, before: int | None) -> bool:
    return now is not None and before is not None and now > before


class LatdController(IgnoresTarget):
    """Algorithm 1: flush on ``some``, stop the top OOM scorer on ``full``."""

    name = "latd"
    needs_processes = True
    _needs: tuple[Need, ...] = (Need.MEMORY_STALL, Need.AVAILABLE_MEMORY, Need.NODE_TUNING)
    _remark = ""
    """What is added to the reason of each decision."""

    def __init__(self) -> None:
        self.reset(NodeContext(zone_limit_bytes=0, slot_names=()))

    def check(self, context: NodeContext) -> None:
        """Check that the node has what the algorithm watches and sets.

        Raises:
            ControllerError: If it lacks something.
        """
        require_needs(self.name, self._needs, context)

    def reset(self, context: NodeContext) -> None:
        """Forget the stall totals and the stopped processes."""
        self._context = context
        self._some: int | None = None
        self._full: int | None = None
        self._flushing = False
        self._stopped: tuple[ProcessRef, ...] = ()
        self._ended = False

    def _top(self, sample: Sample) -> ProcessSample | None:
        """The background process with the highest OOM score; ties go to the lower pid."""
        background = (p for p in sample.processes or () if p.slot >= 0)
        return min(background, key=lambda p: (-p.oom_score, p.pid), default=None)

    def _stop(self, top: ProcessSample | None) -> None:
        if top is not None and not top.stopped:
            ref = ProcessRef(pid=top.pid, start_time_ticks=top.start_time_ticks)
            if ref not in self._stopped:
                self._stopped = (*self._stopped, ref)

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        """One pass of the algorithm's loop."""
        if self._ended:
            return Decision(desired=RELEASED, reason="ended after terminating")
        top = self._top(sample)
        some, full = sample.zone.psi.memory_some_us, sample.zone.psi.memory_full_us
        some_rose, full_rose = _rose(some, self._some), _rose(full, self._full)
        self._some, self._full = some, full
        reason = self._react(top, some_rose=some_rose, full_rose=full_rose)
        available = _available_ratio(sample, self._context.zone_limit_bytes)
        if available is not None and available <= _TERMINATE_RATIO and top is not None:
            self._ended = True
            victim = ProcessRef(pid=top.pid, start_time_ticks=top.start_time_ticks)
            desired = replace(self._desired(sample), terminate=victim, stopped=())
            return Decision(desired=desired, reason="0.1 % available: terminate")
        return Decision(desired=self._desired(sample), reason=f"{reason}{self._remark}")

    def _react(self, top: ProcessSample | None, *, some_rose: bool, full_rose: bool) -> str:
        if some_rose:
            self._flushing = True
            if full_rose:
                self._stop(top)
                return "full rose: stop the top scorer"
            return "some rose: flush"
        if self._flushing:
            self._flushing = False
            if not full_rose:
                self._stopped = ()
                return "stable: resume and restore"
            return "some stable: restore"
        return "stable"

    def _desired(self, sample: Sample) -> DesiredState:
        return DesiredState(
            tuning=_FLUSHING if self._flushing else _CALM,
            stopped=self._stopped,
            protect_from_oom=True,
        )


class LatdCgroupController(LatdController):
    """Algorithm 2: limit the background, and stop the top scorer whenever ``some`` rises.

    The background's limit (10/16 of the zone) is divided equally among its groups.
    """

    name = "latd-cgroup"
    _needs: tuple[Need, ...] = (Need.MEMORY_STALL, Need.AVAILABLE_MEMORY, Need.LIMIT)

    def check(self, context: NodeContext) -> None:
        """Check that the node has what the algorithm watches and sets.

        Raises:
            ControllerError: If it lacks something.
        """
        super().check(context)
        require_one(self.name, (Need.GROUP_SWAPPINESS, Need.NODE_TUNING), context)

    def reset(self, context: NodeContext) -> None:
        """Forget everything and start with the background's limit."""
        super().reset(context)
        groups = max(1, len(context.slot_names))
        share = int(context.zone_limit_bytes * _BACKGROUND_RATIO / groups)
        self._limits = [share] * len(context.slot_names)
        of_group = Need.GROUP_SWAPPINESS not in context.lacks
        self._tuning = _CGROUP if of_group else _CGROUP_NODE
        self._remark = "" if of_group else "; swappiness 90 for all groups"

    def _react(self, top: ProcessSample | None, *, some_rose: bool, full_rose: bool) -> str:
        if some_rose:
            self._stop(top)
            return "some rose: stop the top scorer"
        if self._stopped:
            self._stopped = ()
            return "some stable: resume"
        return "stable"

    def _desired(self, sample: Sample) -> DesiredState:
        return DesiredState(
            slots=tuple(SlotDesire(limit_bytes=limit) for limit in self._limits),
            tuning=self._tuning,
            stopped=self._stopped,
        )


class LatdGrowController(LatdCgroupController):
    """Algorithm 3: Algorithm 2, and a background group that stalls gets a larger limit.

    The thesis does not give the size of a step, nor what "while the system has memory" means.
    Here a step is a sixteenth of the zone, and it is taken while that much is available.
    """

    name = "latd-grow"
    _needs = (*LatdCgroupController._needs, Need.SLOT_STALL)

    def reset(self, context: NodeContext) -> None:
        """Forget everything and start with the background's limit."""
        super().reset(context)
        self._slot_some: list[int | None] = [None] * len(context.slot_names)

    def _desired(self, sample: Sample) -> DesiredState:
        zone = self._context.zone_limit_bytes
        step = int(zone * _GROW_RATIO)
        available = _available_ratio(sample, zone)
        for i, group in enumerate(sample.slots[: len(self._limits)]):
            some = group.psi.memory_some_us
            if _rose(some, self._slot_some[i]) and (available or 0.0) * zone >= step:
                self._limits[i] = min(zone, self._limits[i] + step)
            self._slot_some[i] = some
        return super()._desired(sample)


def _entry(controller: type[LatdController], summary: str) -> ControllerEntry:
    return ControllerEntry(
        name=controller.name,
        summary=summary,
        make=lambda _arguments: controller(),
        unbudgeted=True,
    )


LATD: Final = _entry(
    LatdController, "latd Algorithm 1: flush on some, stop the top OOM scorer on full"
)
CGROUP: Final = _entry(
    LatdCgroupController, "latd Algorithm 2: limit the background, stop its top scorer on some"
)
GROW: Final = _entry(
    LatdGrowController, "latd Algorithm 3: as 2, growing the limit of a group that stalls"
)
