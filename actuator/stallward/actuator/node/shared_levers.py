"""The levers of slots that several pods share: what is granted to a slot goes to its pods."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.guard.step_aside import Aside, update_aside, without_levers
from stallward.actuator.guard.workable import WorkableMemory, lowest_workable_bytes
from stallward.actuator.levers.lever_set import LeverSet
from stallward.actuator.sensors.sampler import Sampler
from stallward.agent.control_law.water_filling import water_fill
from stallward.agent.desired import DesiredState, SlotDesire
from stallward.agent.group_names import names_in
from stallward.agent.sample import GroupSample, Sample
from stallward.agent.sharing.counter_rate import CounterRate
from stallward.agent.sharing.throttle import DiskRate

# ---------- Divides what is granted to a slot among the pods that share it.
# A pause, weights, CPUs, nice values and advice are for each pod. What is an amount is divided:
#
# * A memory limit is water-filled: no pod gets more than it holds in memory and swap while another
#   wants more, none less than its own floor or than what no limit can take from it, and what nobody
#   wants is shared equally, so that each may grow. The floors may add up to more than the limit.
# * While the slot runs, the limit of a pod falls by a quarter at most from one tick to the next, as
#   that of a slot falls level by level: a pod that comes takes nothing from the others at once.
# * A hard limit of a pod stays above its own soft limit and usage by the guard's margin, because the
#   kernel kills under it.
# * Limits of processor time and of disk rates go where they are used: a pod that uses less than its
#   part leaves the rest to those that use all of theirs.
#
# A division stays as it is while the amount and the pods are the same and no part would change much,
# so that not every tick writes limits.

PACE_RATIO: Final = 0.75
"""A limit of a running pod falls to no less than this share of the one before, in one tick."""
KEPT_RATIO: Final = 1 / 8
"""A part that would change by less than this share of itself is not changed."""
_IN_USE_RATIO: Final = 0.8
"""A pod that uses more than this share of its rate would use more."""
_LEAST_SHARE: Final = 0.25
"""Each pod may use this share of an equal part of a rate at any time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodUse:
    """What one pod holds and uses."""

    name: str
    usage_bytes: int | None = None
    """``None`` if it is not known: then the pod gets no limit."""
    swap_bytes: int = 0
    least_bytes: int = 0
    """The lowest limit that it may get."""
    cpu_cores: float | None = None
    io_bytes_per_s: float | None = None

    @property
    def held_bytes(self) -> int:
        """Its memory and swap."""
        return (self.usage_bytes or 0) + self.swap_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """One amount, and the part of each pod."""

    total: float | None = None
    """``None`` for no limit."""
    of_pod: Mapping[str, float] = field(default_factory=dict)

    def of(self, pod: PodUse) -> int | None:
        """The part of a pod in whole units; ``None`` for no limit."""
        part = self.of_pod.get(pod.name)
        return None if part is None else int(part)


_NOTHING: Final = Parts()


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """How the amounts of one slot are divided now."""

    limit: Parts = _NOTHING
    hard_limit: Parts = _NOTHING
    swap: Parts = _NOTHING
    reclaim: Parts = _NOTHING
    cpu: Parts = _NOTHING
    io: Parts = _NOTHING


UNDIVIDED: Final = Division()


def divide(
    granted: SlotDesire,
    pods: Sequence[PodUse],
    before: Division,
    *,
    margin_bytes: int,
    paced: bool,
) -> tuple[tuple[SlotDesire, ...], Division]:
    """Divide what is granted to a slot.

    Args:
        granted: What is granted to the slot.
        pods: The pods that share it.
        before: The division of the last tick.
        margin_bytes: How far a hard limit stays above a pod's usage and limit.
        paced: Whether limits fall step by step; those of a paused slot fall at once.

    Returns:
        The part of each pod, and the division to keep.
    """
    known = [pod for pod in pods if pod.usage_bytes is not None]
    held = [float(pod.held_bytes) for pod in known]
    least = [float(pod.least_bytes) for pod in known]
    limit = _fill(granted.limit_bytes, known, held, least, before.limit)
    if paced and not granted.paused:
        limit = _paced(limit, known, before.limit)
    soft = [limit.of_pod.get(pod.name, 0.0) for pod in known]
    hard_least = [
        max(pod.usage_bytes or 0, pod.least_bytes, part) + margin_bytes
        for pod, part in zip(known, soft, strict=True)
    ]
    division = Division(
        limit=limit,
        hard_limit=_fill(granted.hard_limit_bytes, known, held, hard_least, before.hard_limit),
        swap=_fill(granted.swap_max_bytes, known, held, [0.0] * len(known), before.swap),
        reclaim=_reclaim(granted.reclaim_to_bytes, known, least, before.reclaim),
        cpu=_by_use(granted.cpu_max_cores, pods, [pod.cpu_cores for pod in pods], before.cpu),
        io=_by_use(
            granted.io_max_bytes_per_s, pods, [pod.io_bytes_per_s for pod in pods], before.io
        ),
    )
    parts = tuple(
        replace(
            granted,
            limit_bytes=division.limit.of(pod),
            hard_limit_bytes=division.hard_limit.of(pod),
            swap_max_bytes=division.swap.of(pod),
            reclaim_to_bytes=division.reclaim.of(pod),
            cpu_max_cores=division.cpu.of_pod.get(pod.name),
            io_max_bytes_per_s=division.io.of(pod),
        )
        for pod in pods
    )
    return parts, division


def _fill(
    total: float | None,
    pods: Sequence[PodUse],
    wants: Sequence[float],
    least: Sequence[float],
    before: Parts,
) -> Parts:
    """Water-fill an amount, and share what nobody wants equally."""
    if total is None or not pods:
        return _NOTHING
    shares, left = water_fill(total, wants, least)
    parts = {pod.name: share + left / len(pods) for pod, share in zip(pods, shares, strict=True)}
    kept = _kept(total, parts, before)
    enough = all(kept.of_pod[p.name] >= low for p, low in zip(pods, least, strict=True))
    return kept if enough else Parts(total=total, of_pod=parts)


def _kept(total: float, parts: Mapping[str, float], before: Parts) -> Parts:
    """The division before, where the new one is nearly the same."""
    same = before.total == total and before.of_pod.keys() == parts.keys()
    if same and all(
        abs(part - before.of_pod[name]) <= KEPT_RATIO * before.of_pod[name]
        for name, part in parts.items()
    ):
        return before
    return Parts(total=total, of_pod=parts)


def _paced(limit: Parts, pods: Sequence[PodUse], before: Parts) -> Parts:
    """Let no part fall too far below the one before; that of a new pod, below what it holds."""
    if limit is before or limit.total is None:
        return limit
    lowest = {
        pod.name: PACE_RATIO * before.of_pod.get(pod.name, float(pod.held_bytes)) for pod in pods
    }
    slowed = {name: max(part, lowest[name]) for name, part in limit.of_pod.items()}
    if slowed == limit.of_pod:
        return limit
    return Parts(total=math.nan, of_pod=slowed)  # no amount equals it: the next tick goes on


def _reclaim(
    total: float | None, pods: Sequence[PodUse], least: Sequence[float], before: Parts
) -> Parts:
    """Divide what the pods may hold after they are reclaimed once; a part is not changed again."""
    if total is None or not pods:
        return _NOTHING
    shares, _ = water_fill(total, [float(pod.usage_bytes or 0) for pod in pods], least)
    parts = {pod.name: share for pod, share in zip(pods, shares, strict=True)}
    if before.total == total:
        parts |= {name: part for name, part in before.of_pod.items() if name in parts}
    return Parts(total=total, of_pod=parts)


def _by_use(
    total: float | None, pods: Sequence[PodUse], uses: Sequence[float | None], before: Parts
) -> Parts:
    """Divide a rate among those that use it."""
    if total is None or not pods:
        return _NOTHING
    wants = []
    for pod, use in zip(pods, uses, strict=True):
        part = before.of_pod.get(pod.name)
        spare = use is not None and part is not None and use <= _IN_USE_RATIO * part
        wants.append((use or 0.0) / _IN_USE_RATIO if spare else total)
    least = _LEAST_SHARE * total / len(pods)
    return _fill(total, pods, wants, [least] * len(pods), before)


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
    waited: dict[int, int | None] = field(default_factory=dict)
    """The same of each place, when it was last read; ``None`` for a place that is new."""


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
            for slot in config.shared_slots
        }
        self._count = len(config.background)
        self.reconfigure(config.guard)
        self._aside_s = config.control.foreign_wait_s
        self._aside: Aside = ()

    def reconfigure(self, budgets: Budgets) -> None:
        """Keep to other bounds from now on."""
        self._margin_bytes = budgets.hard_limit_margin_bytes
        self._paced = not budgets.lift_budgets

    def add(self, slot: int, group: str, place: int) -> None:
        """Have a pod's levers follow a slot from now on."""
        shared = self._slots[slot]
        shared.places[group] = place
        shared.rates[group] = _Rates()
        shared.waited[place] = None

    def remove(self, slot: int, group: str) -> None:
        """Release a pod at the next tick; it has left the slot."""
        shared = self._slots[slot]
        shared.waited.pop(shared.places.pop(group), None)
        del shared.rates[group]

    def for_places(self, granted: DesiredState, sample: Sample) -> DesiredState:
        """Return the state with one entry for each place: in the shared slots, for each pod."""
        if not self._slots:
            return granted
        targets = self._levers.targets
        entries = [granted.slot(place) for place in range(len(targets))]
        for slot, shared in self._slots.items():
            entries[slot] = SlotDesire()
            parts = self._divide(slot, shared, granted.slot(slot), sample)
            for group, part in parts.items():
                entries[shared.places[group]] = part
        self._aside = update_aside(self._aside, sample, self._aside_s)
        # The guard knows slots; that another program has changed a pod is known here.
        names = [target.name for target in targets]
        state, every = replace(granted, slots=tuple(entries)), (*names, *names_in(sample))
        return without_levers(state, self._aside, names, every)

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

    def slot_paused(self, slot: int) -> bool:
        """Whether a pause of a slot is requested.

        One of which only some pods are paused by another program runs.
        """
        shared, levers = self._slots.get(slot), self._levers
        if shared is None:
            return levers.slot_paused(slot)
        places = shared.places.values()
        if self.slot_pause_held(slot):
            return True
        return bool(places) and all(levers.slot_paused(place) for place in places)

    def slot_pause_held(self, slot: int) -> bool:
        """Whether a lever may have paused a slot, or a pod of it, and has not let it run again."""
        shared = self._slots.get(slot)
        places = (slot,) if shared is None else tuple(shared.places.values())
        return any(self._levers.slot_pause_held(place) for place in places)

    def slot_limit_bytes(self, slot: int) -> int | None:
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
                shared.waits += 0 if before is None else now - before
                shared.waited[place] = now
        return tuple(
            self._slots[slot].waits if slot in self._slots else of_place[slot]
            for slot in range(self._count)
        )


def _held_bytes(pod: GroupSample) -> int:
    return (pod.memory_usage_bytes or 0) + (pod.swap_bytes or 0)
