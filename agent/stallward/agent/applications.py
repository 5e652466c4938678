"""Several protected applications on one node. Pure.

Controllers, guard and policies see them as one: a group that needs what all of them need together,
and the latencies of the one that is farthest from its target. So what protects one application
protects several, and the one that suffers most decides. What the node guarantees them together is
divided among them afterwards (:class:`Shares`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from stallward.agent.control_law.water_filling import water_fill
from stallward.agent.desired import ApplicationDesire, DesiredState, steady_limit
from stallward.agent.observation.demand import FORGET_S, Demand, held_bytes
from stallward.agent.sample import ApplicationSample, GroupSample, LatencySample, Sample

MAX_ELAPSED_S: Final = 1.0
"""A longer time between two samples or decisions counts as this long."""
ANON_SHARE: Final = 0.75
"""From this share of anonymous memory on an application lives on it: its pages are kept."""
ANON_BAND: Final = 0.05
"""How far the share must be from the threshold to change that."""
SMOOTHING_S: Final = 10.0
"""The time constant with which distances are followed: a guarantee that moves makes swap traffic."""
LEAST_PART: Final = 0.5
"""The least that an application gets, as a share of its part by demand."""
LEAST_DISTANCE: Final = 0.05
"""The p95 over the target that an application has at least when a loan is divided, so that one
that is idle does not give everything."""
MOST_DISTANCE: Final = 20.0
UNHEARD_S: Final = 60.0
"""The time constant with which an application of which nothing is heard comes to count as one that
just meets its target. It is long, because one that stands still is not heard of either."""


def distance(application: ApplicationSample) -> float | None:
    """The p95 of an application over its target; ``None`` where it is not known."""
    latency = application.latency
    if latency is None or latency.p95_ms is None:
        return None
    return latency.p95_ms / application.slo_ms


def farthest(applications: Sequence[ApplicationSample]) -> ApplicationSample | None:
    """The application that is farthest from its target; ``None`` where no latency is known."""
    known = [(far, one) for one in applications if (far := distance(one)) is not None]
    return max(known, key=lambda pair: pair[0])[1] if known else None


def joint_latency(
    applications: Sequence[ApplicationSample], slo_ms: float
) -> LatencySample | None:
    """The latencies that stand for those of several applications.

    They are those of the application that is farthest from its target, times ``slo_ms`` over that
    target, so that their ratio to ``slo_ms`` is its distance. Requests are counted of all.

    Args:
        applications: The applications.
        slo_ms: The target of the node, to which controllers compare latencies.

    Returns:
        ``None`` if no application's latencies are known.
    """
    known = [one.latency for one in applications if one.latency is not None]
    if not known:
        return None
    worst = farthest(applications)
    chosen = known[0] if worst is None or worst.latency is None else worst.latency
    scale = 1.0 if worst is None else slo_ms / worst.slo_ms
    return replace(
        chosen,
        completed=sum(latency.completed for latency in known),
        completed_total=sum(latency.completed_total for latency in known),
        mean_ms=_scaled(chosen.mean_ms, scale),
        p95_ms=_scaled(chosen.p95_ms, scale),
        max_ms=_scaled(chosen.max_ms, scale),
        new_requests=None,
    )


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale


class Shares:
    """Divides what is guaranteed to several applications together.

    Each gets its own demand while the guarantee suffices. Where it does not, because a part of it
    is lent or because they do not fit at all, those that are far from their targets come first:
    the weight of an application is its demand times its p95 over its target. None gets less than
    half of its part by demand.
    """

    def __init__(self) -> None:
        self._demands: list[Demand] = []
        self._distances: list[float] = []
        self._keeps_anon: list[bool] = []
        self._lows: tuple[int | None, ...] = ()
        self._time_s = math.nan

    def divide(self, sample: Sample, granted: DesiredState) -> DesiredState:
        """Return ``granted`` with the part of each application; itself where there is one.

        Args:
            sample: The sample of this tick.
            granted: What the guard allows.
        """
        applications = sample.applications
        if granted.applications:  # a client's: who gets what is decided here
            granted = replace(granted, applications=())
        if not applications:
            return granted
        self._take(applications, sample.time_s)
        lows = self._divide_low(granted.protected_low_bytes)
        swappiness = granted.tuning.protected_swappiness
        if granted.protected_low_bytes is None and swappiness is None:
            return granted
        parts = tuple(
            ApplicationDesire(
                low_bytes=low,
                # A swappiness for anonymous pages would cost one that lives on files those.
                swappiness=swappiness if keeps or not granted.tuning.keeps_anon else None,
            )
            if one.group.bound
            else ApplicationDesire()
            for one, low, keeps in zip(applications, lows, self._keeps_anon, strict=True)
        )
        return replace(granted, applications=parts)

    def _take(self, applications: Sequence[ApplicationSample], time_s: float) -> None:
        """Follow the demands and distances of the applications."""
        if len(self._demands) != len(applications):
            self._demands = [Demand(FORGET_S) for _ in applications]
            self._distances = [1.0] * len(applications)
            self._keeps_anon = [True] * len(applications)
            self._lows = (None,) * len(applications)
        elapsed_s = time_s - self._time_s
        elapsed_s = min(max(elapsed_s, 0.0), MAX_ELAPSED_S) if math.isfinite(elapsed_s) else 0.0
        self._time_s = time_s
        for index, one in enumerate(applications):
            if not one.group.runs:
                self._demands[index] = Demand(FORGET_S)  # what is not there needs nothing
            self._demands[index].update(one.group, elapsed_s)
            far = distance(one)
            heard = far is not None and math.isfinite(far)
            far = min(max(far or 0.0, LEAST_DISTANCE), MOST_DISTANCE) if heard else 1.0
            weight = 1.0 - math.exp(-elapsed_s / (SMOOTHING_S if heard else UNHEARD_S))
            self._distances[index] += weight * (far - self._distances[index])
            share = anon_share(one.group)
            if share is not None and abs(share - ANON_SHARE) > ANON_BAND:
                self._keeps_anon[index] = share > ANON_SHARE

    def _divide_low(self, low_bytes: int | None) -> tuple[int | None, ...]:
        if low_bytes is None:
            self._lows = (None,) * len(self._demands)
            return self._lows
        wants = [demand.bytes for demand in self._demands]
        total = sum(wants)
        if total <= 0.0:
            even = low_bytes // max(len(wants), 1)
            return (even,) * len(wants)
        parts = [low_bytes * want / total for want in wants]
        shares, _ = water_fill(
            low_bytes,
            wants,
            [min(LEAST_PART * part, want) for part, want in zip(parts, wants, strict=True)],
            [max(w, 1.0) * d for w, d in zip(wants, self._distances, strict=True)],
        )
        # The floors may exceed the room, but together they get no more than was granted.
        factor = low_bytes / max(sum(shares), float(low_bytes), 1.0)
        lows = tuple(int(share * factor) for share in shares)
        steady = tuple(map(steady_limit, lows, self._lows))
        # What is nearly the same is not written again, unless that were more than was granted.
        self._lows = lows if sum(steady) > low_bytes else steady
        return self._lows


def without_shares(sample: Sample, granted: DesiredState) -> DesiredState:
    """``granted`` with nothing for any of several applications; itself where there is one."""
    return replace(granted, applications=(ApplicationDesire(),) * len(sample.applications))


def anon_share(group: GroupSample) -> float | None:
    """The share of anonymous memory, in swap or not, of what a group holds; ``None`` if unknown."""
    held = held_bytes(group)
    if group.anon_bytes is None or held <= 0:
        return None
    return min((group.anon_bytes + (group.swap_bytes or 0)) / held, 1.0)


def lives_on_anon(sample: Sample, share: float, threshold: float) -> float:
    """The anonymous share that decides whether an application's pages are kept.

    Args:
        sample: The sample.
        share: That of all applications together, which is returned where there is one.
        threshold: The share from which on an application lives on anonymous memory.

    Returns:
        The largest share of a single application, where one lives on anonymous memory.
    """
    shares = [anon_share(one.group) or 0.0 for one in sample.applications]
    most = max(shares, default=share)
    return most if most > threshold else share
