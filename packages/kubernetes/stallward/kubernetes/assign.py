"""Which pods are the protected applications, and which slot each other pod has. Pure.

A slot has the pods of one group (:mod:`stallward.actuator.targets.config`), by default a
single pod. It stays with that group for as long as any pod of it runs, so that a rollout moves no
other pod. Where there are more groups than slots, those whose pods may be held back first have
them: the best effort before the burstable before the guaranteed, and of these the oldest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from stallward.actuator.targets.config import PodConfig
from stallward.actuator.targets.qos import Qos
from stallward.kubernetes.pod import Pod

MOST_PODS: Final = 64
"""The most pods of one slot: each is read at every tick."""
_ORDER: Final = (Qos.BEST_EFFORT, Qos.BURSTABLE, Qos.GUARANTEED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A pod at its place."""

    pod: Pod
    group: str
    """Its cgroup."""
    value: str = ""
    """What it has in common with the other pods of its slot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The pods at their places."""

    protected: tuple[Placed | None, ...] = ()
    """The pod of each protected application; ``None`` for one without."""
    slots: tuple[tuple[Placed, ...], ...] = ()
    """The pods of each slot, those that came first at the front."""
    surplus: int = 0
    """How many pods match a slot and have none."""
    beside: int = 0
    """How many more pods are protected than those whose latencies and stalls count."""


def assign(
    pods: Sequence[Pod],
    group_of: Callable[[Pod], str | None],
    protected: Sequence[PodConfig | None],
    slots: Sequence[PodConfig | None],
    before: Assignment,
) -> Assignment:
    """Assign pods to places, each to one at most.

    Args:
        pods: The pods of the node, no two of which have one group.
        group_of: Returns the cgroup of a pod; ``None`` while there is none that can be used.
        protected: Each protected application; ``None`` for one that is no pod.
        slots: Each slot in order; ``None`` for one that is no pod.
        before: The last assignment.
    """
    # A protected pod is never a slot, also while it starts or ends.
    guarded = {pod.key for pod in pods if any(one and one.matches(pod) for one in protected)}
    there: dict[str, Placed] = {}
    for pod in sorted(pods, key=_order):
        wanted = pod.key in guarded or any(one is not None and one.matches(pod) for one in slots)
        group = group_of(pod) if wanted and not pod.leaving else None
        if group is not None:
            there[pod.key] = Placed(pod=pod, group=group)
    application = {key: placed for key, placed in there.items() if key in guarded}
    chosen = _choose(protected, before.protected, application)
    background = {key: placed for key, placed in there.items() if key not in guarded}
    places = [
        _stay(wanted_of, before.slots[index] if index < len(before.slots) else (), background)
        for index, wanted_of in enumerate(slots)
    ]
    taken = {placed.pod.key for place in places for placed in place}
    surplus = 0
    for key, placed in background.items():
        if key not in taken and not _add(placed, slots, places):
            surplus += 1
    return Assignment(
        protected=chosen,
        slots=tuple(map(tuple, places)),
        surplus=surplus,
        beside=len(application) - sum(placed is not None for placed in chosen),
    )


def _choose(
    protected: Sequence[PodConfig | None],
    before: Sequence[Placed | None],
    there: Mapping[str, Placed],
) -> tuple[Placed | None, ...]:
    """The pod of each application: the one that it had before, or else the first that is free."""
    left = dict(there)
    kept: list[Placed | None] = []
    for index, wanted in enumerate(protected):
        last = before[index] if index < len(before) else None
        placed = None if last is None else left.get(last.pod.key)
        stays = placed is not None and wanted is not None and wanted.matches(placed.pod)
        kept.append(left.pop(placed.pod.key) if placed is not None and stays else None)
    for index, wanted in enumerate(protected):
        if kept[index] is None and wanted is not None:
            fitting = (key for key, placed in left.items() if wanted.matches(placed.pod))
            key = next(fitting, None)
            kept[index] = None if key is None else left.pop(key)
    return tuple(kept)


def _stay(
    wanted: PodConfig | None, before: Iterable[Placed], there: Mapping[str, Placed]
) -> list[Placed]:
    """The pods of a slot that keep it."""
    stay: list[Placed] = []
    for last in before:
        placed = there.get(last.pod.key)
        if placed is None or wanted is None or not wanted.matches(placed.pod):
            continue
        if wanted.grouping.value_of(placed.pod) == last.value:
            stay.append(replace(placed, value=last.value))
    return stay


def _add(
    placed: Placed, slots: Sequence[PodConfig | None], places: Sequence[list[Placed]]
) -> bool:
    """Give a pod the slot of its group, else a free one; return whether there is one."""
    for wanted in dict.fromkeys(slots):
        if wanted is None or not wanted.matches(placed.pod):
            continue
        value = wanted.grouping.value_of(placed.pod)
        of_table = [place for one, place in zip(slots, places, strict=True) if one == wanted]
        own = next((place for place in of_table if place and place[0].value == value), None)
        place = own if own is not None else next((p for p in of_table if not p), None)
        if place is not None and len(place) < MOST_PODS:
            place.append(replace(placed, value=value))
            return True
    return False


def _order(pod: Pod) -> tuple[int, str, str]:
    return _ORDER.index(pod.qos), pod.created, pod.key
