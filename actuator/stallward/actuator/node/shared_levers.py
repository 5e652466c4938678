"""The levers of slots that several pods share: what is granted to a slot goes to its pods."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.guard.step_aside import Aside, update_aside, without_levers
from stallward.actuator.guard.workable import WorkableMemory, lowest_workable_bytes
from stallward.actuator.levers.lever_set import LeverSet
from stallward.actuator.node.division import UNDIVIDED, Division, PodUse, divide
from stallward.actuator.record.lever_result import LeverResult
from stallward.actuator.sensors.sampler import Sampler
from stallward.agent.desired import DesiredState, SlotDesire
from stallward.agent.sample import GroupSample, Sample
from stallward.agent.sharing.counter_rate import CounterRate
from stallward.agent.sharing.throttle import DiskRate

_SMOOTHING_S: Final = 2.0
_NOTHING_LEARNED: Final = WorkableMemory()


@dataclass(slots=True)
class _Rates:
    """How much a pod uses of what is limited by rate."""

    cpu_us: CounterRate = field(default_factory=lambda: CounterRate(_SMOOTHING_S))
    disk: DiskRate = field(default_factory=DiskRate)
    read_s: float | None = None

    def update(self, group: GroupSample, time_s: float) -> None:
        """Take one more sample."""
        before_s, self.read_s = self.read_s, time_s
        self.cpu_us.update(group.cpu_usage_us, 0.0 if before_s is None else time_s - before_s)
        self.disk.update(group, time_s)


@dataclass(slots=True)
class _Shared:
    """One slot that several pods may share."""

    floor_bytes: int
    """The lowest limit of each pod."""
    places: dict[str, int] = field(default_factory=dict)
    """The place of each pod, by its group."""
    division: Division = UNDIVIDED
    rates: dict[str, _Rates] = field(default_factory=dict)
    waits: int = 0
    """How often any of its pods had to wait for memory."""
    waited: dict[int, int] = field(default_factory=dict)
    """The same of each place, when it was last read."""


class SharedLevers:
    """Has the levers of all pods of a slot follow what is granted to the slot.

    Each pod has levers of its own, at a place behind those of the slots. Slots that no pods share
    are left as they are.

    Args:
        config: The daemon's configuration.
        sampler: The sensors.
        levers: The levers.
        growth_bytes: What programs may allocate until a limit follows them, where memory limits
            are hard ones; else ``None``.
    """

    def __init__(
        self, config: DaemonConfig, sampler: Sampler, levers: LeverSet, *, growth_bytes: int | None
    ) -> None:
        self._growth_bytes = growth_bytes
        self._sampler = sampler
        self._levers = levers
        self._slots = {
            slot: _Shared(floor_bytes=config.background[slot].floor_bytes)
            for slot in shared_slots(config)
        }
        self._count = len(config.background)
        self._margin_bytes = config.guard.hard_limit_margin_bytes
        self._paced = not config.guard.lift_budgets
        self._aside_s = config.control.foreign_wait_s
        self._aside: Aside = ()

    def add(self, slot: int, group: str, place: int) -> None:
        """Have a pod's levers follow a slot from now on."""
        shared = self._slots[slot]
        shared.places[group] = place
        shared.rates[group] = _Rates()
        waits = self._levers.memory_waits()
        shared.waited[place] = waits[place] if place < len(waits) else 0

    def remove(self, slot: int, group: str) -> None:
        """Release a pod at the next tick; it has left the slot."""
        shared = self._slots[slot]
        shared.waited.pop(shared.places.pop(group), None)
        del shared.rates[group]

    def apply(self, granted: DesiredState, sample: Sample) -> tuple[LeverResult, ...]:
        """Put what is granted into force, in the shared slots for each pod."""
        return self._levers.apply(self._expand(granted, sample) if self._slots else granted)

    def _expand(self, granted: DesiredState, sample: Sample) -> DesiredState:
        """Return a state with one entry for each place."""
        targets = self._levers.targets[1:]
        entries = [granted.slot(place) for place in range(len(targets))]
        for slot, shared in self._slots.items():
            entries[slot] = SlotDesire()
            parts = self._divide(slot, shared, granted.slot(slot), sample)
            for group, part in parts.items():
                entries[shared.places[group]] = part
        self._aside = update_aside(self._aside, sample, self._aside_s)
        # The guard knows slots; that another program has changed a pod is known here.
        names = [target.name for target in targets]
        return without_levers(replace(granted, slots=tuple(entries)), self._aside, names)

    def _divide(
        self, slot: int, shared: _Shared, granted: SlotDesire, sample: Sample
    ) -> dict[str, SlotDesire]:
        reader = self._sampler.pods(slot)
        known = {} if reader is None else {pod.name: pod for pod in reader.pods}
        pods = []
        for group in shared.places:
            pod, rates = known.get(group, GroupSample(name=group)), shared.rates[group]
            rates.update(pod, sample.time_s)
            least = lowest_workable_bytes(
                _NOTHING_LEARNED,
                pod,
                sample.node.swap_free_bytes,
                growth_bytes=None if granted.paused else self._growth_bytes,
            )
            pods.append(
                PodUse(
                    name=group,
                    usage_bytes=pod.memory_usage_bytes,
                    swap_bytes=pod.swap_bytes or 0,
                    least_bytes=max(shared.floor_bytes, least),
                    cpu_cores=rates.cpu_us.per_s / 1e6 if rates.cpu_us.known else None,
                    io_bytes_per_s=None if pod.io_read_bytes is None else rates.disk.bytes_per_s,
                )
            )
        parts, shared.division = divide(
            granted, pods, shared.division, margin_bytes=self._margin_bytes, paced=self._paced
        )
        return {pod.name: part for pod, part in zip(pods, parts, strict=True)}

    def paused(self, slot: int) -> bool:
        """Whether a pause of a slot is requested.

        One of which only some pods are paused by another program runs.
        """
        shared, levers = self._slots.get(slot), self._levers
        if shared is None:
            return levers.slot_paused(slot)
        places = shared.places.values()
        if self.pause_held(slot):
            return True
        return bool(places) and all(levers.slot_paused(place) for place in places)

    def pause_held(self, slot: int) -> bool:
        """Whether a lever may have paused a slot, or a pod of it, and has not let it run again."""
        shared = self._slots.get(slot)
        places = (slot,) if shared is None else tuple(shared.places.values())
        return any(self._levers.slot_pause_held(place) for place in places)

    def limit_bytes(self, slot: int) -> int | None:
        """The limit of a slot in force or being approached; ``None`` for its original.

        A pod of a limited slot that has no limit yet counts with what it holds.
        """
        shared = self._slots.get(slot)
        if shared is None:
            return self._levers.slot_limit_bytes(slot)
        limits = {
            group: self._levers.slot_limit_bytes(place) for group, place in shared.places.items()
        }
        if all(limit is None for limit in limits.values()):
            return None
        reader = self._sampler.pods(slot)
        held = {} if reader is None else {pod.name: _held_bytes(pod) for pod in reader.pods}
        return sum(
            held.get(group, 0) if limit is None else limit for group, limit in limits.items()
        )

    def memory_waits(self) -> tuple[int, ...]:
        """For each slot, how often it had to wait for memory under a limit."""
        of_place = self._levers.memory_waits()
        for shared in self._slots.values():
            for place, before in shared.waited.items():
                now = of_place[place] if place < len(of_place) else 0
                shared.waits += now - before
                shared.waited[place] = now
        return tuple(
            self._slots[slot].waits if slot in self._slots else of_place[slot]
            for slot in range(self._count)
        )


def _held_bytes(pod: GroupSample) -> int:
    return (pod.memory_usage_bytes or 0) + (pod.swap_bytes or 0)


def shared_slots(config: DaemonConfig) -> dict[int, str]:
    """Return the names of the slots that several pods may share, by their indices."""
    slots = enumerate(config.background)
    return {i: slot.name for i, slot in slots if slot.pod is not None and slot.pod.shared}
