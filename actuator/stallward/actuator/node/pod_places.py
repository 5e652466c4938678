"""Gives the places of a node the pods that have them now, tick by tick.

A place that loses its pod first shows as empty in one sample at least: the guard releases an empty
slot, and whatever compares two samples starts anew with the next pod, whose counters are its own.
Once its levers hold nothing, they are dropped, with all that the journal has of the old pod. Only
then may the next one have the place, and it starts released. Pods that share a slot have places
of their own.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.errors import ActuatorError
from stallward.actuator.guard.slot_tracker import SHARE_WINDOW_S, PauseHistory, SlotTracker
from stallward.actuator.kernel.cgroups import Cgroup, Hierarchy
from stallward.actuator.kernel.target import unbound
from stallward.actuator.levers.base.lever import ExemptProcesses
from stallward.actuator.levers.lever_set import LeverSet
from stallward.actuator.levers.node_levers import PROTECTED
from stallward.actuator.node.shared_levers import SharedLevers
from stallward.actuator.sensors.sampler import Sampler
from stallward.actuator.targets.messages import (
    BoundPod,
    PauseBudget,
    PodsChannel,
    PodsReport,
    tightest,
)
from stallward.agent.sample import SlotState

# ---------- Gives pods that share slots their places there, tick by tick
# Each pod has a place of its own, with its own levers, behind the places of the slots. One that
# leaves is released at the tick at which that is known; once its levers hold nothing, they are
# dropped, with all that the journal has of it. The slot and its other pods stay as they are. One
# that comes has its part of what is granted to the slot at the same tick.

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
        self._names = config.shared_slots
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
        place = self._free[-1] if self._free else len(self._levers.targets)
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


def _names(config: DaemonConfig) -> dict[int, str]:
    """Return the names of the places of one pod, by the place of the slot or application."""
    named = enumerate(config.applications)
    names = {PROTECTED - i: one.name for i, one in named if one.pod is not None}
    slots = enumerate(config.background)
    return names | {i: s.name for i, s in slots if s.pod is not None and not s.pod.shared}


def histories_of_pods(
    config: DaemonConfig, histories: Sequence[PauseHistory | None]
) -> tuple[PauseHistory | None, ...]:
    """Return the recorded pauses of the slots for a loop that is started again.

    A pod may have another slot than before then, so each slot of pods goes on from the pauses of
    the one that was paused most; ``None``, the worst, if those of one are not known.

    Args:
        config: The daemon's configuration.
        histories: What was recorded of each slot.
    """
    are_pods = [slot.pod is not None for slot in config.background]
    of_pods = [known for known, is_pod in zip(histories, are_pods, strict=True) if is_pod]
    if not of_pods:
        return tuple(histories)
    most = None if None in of_pods else max(filter(None, of_pods), key=_paused_s)
    return tuple(
        most if is_pod else known for known, is_pod in zip(histories, are_pods, strict=True)
    )


def _paused_s(history: PauseHistory) -> tuple[bool, float]:
    ended_s = sum(end_s - begin_s for begin_s, end_s in history.pauses)
    return history.since_s is not None, ended_s


class _Place:
    """One place that pods have in turn."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.group = ""
        """The cgroup that sensors read; empty while the place is empty."""
        self.held = ""
        """The cgroup that levers act on; empty once they hold nothing of it."""
        self.pod = ""
        """The namespace and name of the pod that has it."""
        self.refused = ""
        """Why a pod is not given the place; empty if none was refused."""


class PodPlaces:
    """The places that are pods.

    Args:
        config: The daemon's configuration.
        connection: The socket from which comes which pod has which place; ``None`` if nothing
            follows the pods.
        hierarchy: The node's cgroup hierarchies.
        sampler: The sensors.
        levers: The levers.
        growth_bytes: See :class:`~stallward.actuator.node.shared_levers.SharedLevers`.
    """

    def __init__(
        self,
        config: DaemonConfig,
        connection: socket.socket | None,
        hierarchy: Hierarchy,
        sampler: Sampler,
        levers: LeverSet,
        *,
        growth_bytes: int | None,
    ) -> None:
        self._config = config
        self._channel = PodsChannel(connection)
        self._hierarchy = hierarchy
        self._sampler = sampler
        self._levers = levers
        self.slots = SharedLevers(config, sampler, levers, growth_bytes=growth_bytes)
        """Has the levers of pods that share a slot follow it."""
        self._exempt = ExemptProcesses(config.exempt_pids)
        self._zone = hierarchy.group(config.node.zone)
        groups = (*config.protected_groups, *(slot.group for slot in config.background))
        self._fixed = tuple(hierarchy.group(name) for name in groups if name is not None)
        self._places = {place: _Place(name) for place, name in _names(config).items()}
        self._parted: dict[str, tuple[float, PauseHistory]] = {}
        """When a group lost its place, and its pauses until then."""
        self._shared = SharedPlaces(
            config, hierarchy, sampler, levers, self.slots, partial(self._why_not, 0)
        )

    def step(self, now_s: float, tracker: SlotTracker) -> bool:
        """Follow the last report; return whether an application is another group now.

        Args:
            now_s: CLOCK_MONOTONIC.
            tracker: The slots' pauses.
        """
        report = self._channel.read(now_s)
        if report is None:
            return False
        moved = False
        for index, place in self._places.items():
            wanted = _wanted(report, index)
            group = "" if wanted is None else wanted.group
            place.refused = place.refused if group else ""
            if place.group and place.group != group:
                self._empty(index, place)
                moved = moved or index <= PROTECTED
            elif place.held and not place.group:
                self._let_go(index, place, now_s, tracker)
            if wanted is None or place.held or self._is_held(wanted.group):
                continue
            if self._bind(index, place, wanted, tracker):
                moved = moved or index <= PROTECTED
        self._shared.step(report, now_s, tracker, self._parted, self._is_placed)
        self._parted = {
            group: (left_s, history)
            for group, (left_s, history) in self._parted.items()
            if now_s - left_s <= SHARE_WINDOW_S
        }
        return moved

    def _is_placed(self, group: str) -> bool:
        """Whether a place of one pod may still hold something of a group."""
        return any(place.held == group for place in self._places.values())

    def _is_held(self, group: str) -> bool:
        """Whether any place may still hold something of a group: it waits until that is over."""
        return self._is_placed(group) or self._shared.holds(group)

    def with_budgets(self, states: Sequence[SlotState]) -> tuple[SlotState, ...]:
        """Return the states of all slots with what they and their pods allow of pauses.

        Args:
            states: The states, with what the configuration allows.
        """
        report = self._channel.report
        pods = () if report is None else report.slots
        bounded = [_bounded(state, of_it) for state, of_it in zip(states, pods, strict=False)]
        return (*bounded, *states[len(bounded) :])

    def _empty(self, index: int, place: _Place) -> None:
        """Show a place as empty from this sample on."""
        self._sampler.rebind(index, unbound(self._hierarchy, place.name))
        place.group = ""

    def _let_go(self, index: int, place: _Place, now_s: float, tracker: SlotTracker) -> None:
        """Drop the levers of a place that is empty, once they hold nothing."""
        if not self._levers.settled(index):
            return
        self._levers.rebind(index, unbound(self._hierarchy, place.name))
        if index > PROTECTED:
            self._parted[place.held] = (now_s, tracker.history(index))
            tracker.forget(index)
        place.held = ""

    def _bind(self, index: int, place: _Place, wanted: BoundPod, tracker: SlotTracker) -> bool:
        """Give a pod an empty place; return whether it has it."""
        try:
            group = self._hierarchy.group(wanted.group)
            if not group.exists():
                return False  # it is gone already, as the next report will say
            why = self._why_not(index, group)
            if not why:
                self._levers.rebind(index, group)
                self._sampler.rebind(index, group)
        except (ActuatorError, OSError) as error:
            why = str(error)
            nothing = unbound(self._hierarchy, place.name)
            self._levers.rebind(index, nothing)
            self._sampler.rebind(index, nothing)
        place.refused = f"{wanted.pod} cannot be {place.name}: {why}" if why else ""
        if why:
            return False
        history = self._parted.pop(group.name, None)
        if history is not None and index > PROTECTED:
            tracker.resume(index, history[1])
        place.group = place.held = group.name
        place.pod = wanted.pod
        return True

    def _why_not(self, index: int, group: Cgroup) -> str:
        """Why a group cannot have a place; empty if it can."""
        if not self._zone.contains(group):
            return f"{group.name} is not below the zone {self._zone.name}"
        other = next((o for o in self._fixed if o.contains(group) or group.contains(o)), None)
        if other is not None:
            return f"{group.name} and {other.name} overlap"
        pid = None if index <= PROTECTED else self._exempt.within(group)
        return "" if pid is None else f"it holds process {pid}, which is protected"

    def pods(self, slot: int) -> tuple[str, ...]:
        """The namespaces and names of the pods that a slot has now."""
        place = self._places.get(slot)
        if place is None:
            return self._shared.pods(slot)
        return (place.pod,) if place.group else ()

    def known_pauses(
        self, histories: Sequence[PauseHistory | None]
    ) -> tuple[PauseHistory | None, ...]:
        """Return the recorded pauses of the slots; see :func:`histories_of_pods`."""
        return histories_of_pods(self._config, histories)

    @property
    def empty(self) -> tuple[str, ...]:
        """Which places have no pod."""
        waiting = [place.name for place in self._places.values() if not place.group]
        waiting += self._shared.empty
        return (f"pods: none for {', '.join(waiting)}",) if waiting else ()

    @property
    def problems(self) -> tuple[str, ...]:
        """Which pods have no place, and what may be out of date."""
        refused = [place.refused for place in self._places.values() if place.refused]
        refused += self._shared.refused
        return (*self._channel.faults, *(f"pods: {why}" for why in refused))

    def close(self) -> None:
        """Close the socket."""
        self._channel.close()


def _bounded(state: SlotState, pods: Sequence[BoundPod]) -> SlotState:
    """Bound the pauses of a slot by what its pods allow as well."""
    longest_s, own = state.longest_pause_s, None
    if longest_s is not None:
        own = PauseBudget(longest_s=longest_s, shortest_run_s=state.shortest_run_s or 0.0)
    budget = tightest((own, *(pod.pause for pod in pods)))
    if budget is None:
        return state
    return replace(state, longest_pause_s=budget.longest_s, shortest_run_s=budget.shortest_run_s)


def _wanted(report: PodsReport, index: int) -> BoundPod | None:
    if index <= PROTECTED:
        number = PROTECTED - index
        return report.protected[number] if number < len(report.protected) else None
    pods = report.slots[index] if index < len(report.slots) else ()
    return pods[0] if pods else None
