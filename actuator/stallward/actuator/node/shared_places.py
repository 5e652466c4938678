"""Gives pods that share slots their places there, tick by tick.

Each pod has a place of its own, with its own levers, behind the places of the slots. One that
leaves is released at the tick at which that is known; once its levers hold nothing, they are
dropped, with all that the journal has of it. The slot and its other pods stay as they are. One
that comes has its part of what is granted to the slot at the same tick.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.errors import ActuatorError
from stallward.actuator.guard.slot_tracker import PauseHistory, SlotTracker
from stallward.actuator.kernel.cgroups import Cgroup, Hierarchy
from stallward.actuator.kernel.target import unbound
from stallward.actuator.kubernetes.messages import BoundPod, PodsReport
from stallward.actuator.levers.lever_set import LeverSet
from stallward.actuator.node.shared_levers import SharedLevers, shared_slots
from stallward.actuator.sensors.sampler import Sampler

FREE: Final = "free"
"""What stands for a place behind the slots' own that no pod has."""


@dataclass(slots=True)
class _PlacedPod:
    """A pod that shares a slot."""

    pod: str
    """Its namespace and name."""
    slot: int
    place: int
    leaving: bool = False
    """Whether it has left the slot, and its levers may still hold something."""


class SharedPlaces:
    """The pods that share slots.

    Args:
        config: The daemon's configuration.
        hierarchy: The node's cgroup hierarchies.
        sampler: The sensors.
        levers: The levers.
        shared: Has the levers of the pods follow their slots.
        why_not: Says why a group cannot be background; empty if it can.
    """

    def __init__(
        self,
        config: DaemonConfig,
        hierarchy: Hierarchy,
        sampler: Sampler,
        levers: LeverSet,
        shared: SharedLevers,
        why_not: Callable[[Cgroup], str],
    ) -> None:
        self._hierarchy = hierarchy
        self._sampler = sampler
        self._levers = levers
        self._shared = shared
        self._why_not = why_not
        self._names = shared_slots(config)
        self._pods: dict[str, _PlacedPod] = {}
        """The pods by their groups."""
        self._free: list[int] = []
        self._refused: dict[str, str] = {}
        """Why pods are not given a place, by their groups."""

    def holds(self, group: str) -> bool:
        """Whether a pod has a place here, or its levers may still hold something."""
        return group in self._pods

    def step(
        self,
        report: PodsReport,
        now_s: float,
        tracker: SlotTracker,
        parted: dict[str, tuple[float, PauseHistory]],
        held_elsewhere: Callable[[str], bool],
    ) -> None:
        """Follow a report.

        Args:
            report: Which pods have which place.
            now_s: CLOCK_MONOTONIC.
            tracker: The slots' pauses.
            parted: When each group lost its place, and its pauses until then.
            held_elsewhere: Whether the levers of another place may hold something of a group.
        """
        wanted = {
            bound.group: (slot, bound)
            for slot in self._names
            if slot < len(report.slots)
            for bound in report.slots[slot]
        }
        for group, pod in tuple(self._pods.items()):
            if pod.leaving:
                self._let_go(group, pod, now_s, tracker, parted)
            elif wanted.get(group, (-1,))[0] != pod.slot:
                self._sampler.leave(pod.slot, group)
                self._shared.remove(pod.slot, group)
                pod.leaving = True
        self._refused = {group: why for group, why in self._refused.items() if group in wanted}
        for group, (slot, bound) in wanted.items():
            if group not in self._pods and not held_elsewhere(group):
                first = not any(pod.slot == slot for pod in self._pods.values())
                if self._bind(slot, bound) and first and group in parted:
                    tracker.resume(slot, parted.pop(group)[1])

    def _bind(self, slot: int, bound: BoundPod) -> bool:
        """Give a pod a place; return whether it has it."""
        place = self._free[-1] if self._free else len(self._levers.targets) - 1
        try:
            group = self._hierarchy.group(bound.group)
            if not group.exists():
                return False  # it is gone already, as the next report will say
            why = self._why_not(group)
            if not why:
                self._levers.rebind(place, group, slot)
                self._sampler.join(slot, group)
        except (ActuatorError, OSError) as error:
            why = str(error)
            self._sampler.leave(slot, bound.group)
            self._levers.rebind(place, unbound(self._hierarchy, FREE), slot)
            self._free = [*(free for free in self._free if free != place), place]
        if why:
            self._refused[bound.group] = f"{bound.pod} cannot be in {self._names[slot]}: {why}"
            return False
        self._refused.pop(bound.group, None)
        self._free = [free for free in self._free if free != place]
        self._pods[group.name] = _PlacedPod(pod=bound.pod, slot=slot, place=place)
        self._shared.add(slot, group.name, place)
        return True

    def _let_go(
        self,
        group: str,
        pod: _PlacedPod,
        now_s: float,
        tracker: SlotTracker,
        parted: dict[str, tuple[float, PauseHistory]],
    ) -> None:
        """Drop the levers of a pod that has left, once they hold nothing."""
        if not self._levers.settled(pod.place):
            return
        self._levers.rebind(pod.place, unbound(self._hierarchy, FREE), pod.slot)
        del self._pods[group]
        self._free.append(pod.place)
        parted[group] = (now_s, _ended(tracker.history(pod.slot), now_s))
        if not any(other.slot == pod.slot for other in self._pods.values()):
            tracker.forget(pod.slot)

    def pods(self, slot: int) -> tuple[str, ...]:
        """The namespaces and names of the pods that share a slot now."""
        placed = self._pods.values()
        return tuple(pod.pod for pod in placed if pod.slot == slot and not pod.leaving)

    @property
    def empty(self) -> tuple[str, ...]:
        """The names of the slots that have no pod now."""
        return tuple(name for slot, name in self._names.items() if not self.pods(slot))

    @property
    def refused(self) -> tuple[str, ...]:
        """Why pods are not given a place."""
        return tuple(self._refused.values())


def _ended(history: PauseHistory, now_s: float) -> PauseHistory:
    """The pauses of a pod that was released while its slot may still be paused."""
    if history.since_s is None:
        return history
    return replace(
        history,
        since_s=None,
        thawed_s=now_s,
        pauses=(*history.pauses, (history.since_s, now_s)),
    )
