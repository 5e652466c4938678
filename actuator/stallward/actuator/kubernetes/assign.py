"""Which pod is the protected application, and which slot each other pod has. Pure.

A pod keeps its slot for as long as it runs, so that a rollout moves no other pod. Where more pods
match than there are slots, those that may be held back first have them: the best effort before
the burstable before the guaranteed, and of these the oldest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from stallward.actuator.kubernetes.config import PodConfig
from stallward.actuator.kubernetes.groups import Qos
from stallward.actuator.kubernetes.pod import Pod

_ORDER: Final = (Qos.BEST_EFFORT, Qos.BURSTABLE, Qos.GUARANTEED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A pod at its place."""

    pod: Pod
    group: str
    """Its cgroup."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The pods at their places."""

    protected: Placed | None = None
    slots: tuple[Placed | None, ...] = ()
    surplus: int = 0
    """How many pods match a slot and have none."""
    beside: int = 0
    """How many more pods are protected than the one whose latency and stalls count."""


def assign(
    pods: Sequence[Pod],
    group_of: Callable[[Pod], str | None],
    protected: PodConfig | None,
    slots: Sequence[PodConfig | None],
    before: Assignment,
) -> Assignment:
    """Assign pods to places.

    Args:
        pods: All pods of the node.
        group_of: Returns the cgroup of a pod; ``None`` while there is none that can be used.
        protected: The protected application; ``None`` if it is no pod.
        slots: Each slot in order; ``None`` for one that is no pod.
        before: The last assignment.
    """
    # A protected pod is never a slot, also while it starts or ends.
    guarded = {pod.uid for pod in pods if protected is not None and protected.matches(pod)}
    there: dict[str, Placed] = {}
    for pod in sorted(pods, key=_order):
        wanted = pod.uid in guarded or any(one is not None and one.matches(pod) for one in slots)
        group = group_of(pod) if wanted and not pod.leaving else None
        if group is not None:
            there[pod.uid] = Placed(pod=pod, group=group)
    application = [placed for uid, placed in there.items() if uid in guarded]
    kept = None if before.protected is None else there.get(before.protected.pod.uid)
    if kept is None or kept not in application:
        kept = application[0] if application else None
    places: list[Placed | None] = []
    for index, wanted_of in enumerate(slots):
        last = before.slots[index] if index < len(before.slots) else None
        placed = None if last is None else there.get(last.pod.uid)
        fits = placed is not None and wanted_of is not None and wanted_of.matches(placed.pod)
        places.append(placed if fits and placed and placed.pod.uid not in guarded else None)
    taken = {placed.pod.uid for placed in places if placed is not None}
    surplus = 0
    for uid, placed in there.items():
        if uid in guarded or uid in taken:
            continue
        free = [
            index
            for index, wanted_of in enumerate(slots)
            if places[index] is None and wanted_of is not None and wanted_of.matches(placed.pod)
        ]
        if free:
            places[free[0]] = placed
        else:
            surplus += 1
    return Assignment(
        protected=kept,
        slots=tuple(places),
        surplus=surplus,
        beside=max(len(application) - 1, 0),
    )


def _order(pod: Pod) -> tuple[int, str, str]:
    return _ORDER.index(pod.qos), pod.created, pod.uid
