"""Divides what is granted to a slot among the pods that share it. Pure.

A pause, weights, CPUs, nice values and advice are for each pod. What is an amount is divided:

* A memory limit is water-filled: no pod gets more than it holds in memory and swap while another
  wants more, none less than its own floor or than what no limit can take from it, and what nobody
  wants is shared equally, so that each may grow. The floors may add up to more than the limit.
* While the slot runs, the limit of a pod falls by a quarter at most from one tick to the next, as
  that of a slot falls level by level: a pod that comes takes nothing from the others at once.
* A hard limit of a pod stays above its own soft limit and usage by the guard's margin, because the
  kernel kills under it.
* Limits of processor time and of disk rates go where they are used: a pod that uses less than its
  part leaves the rest to those that use all of theirs.

A division stays as it is while the amount and the pods are the same and no part would change much,
so that not every tick writes limits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from stallward.agent.desired import SlotDesire
from stallward.agent.sharing.water_filling import water_fill

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
