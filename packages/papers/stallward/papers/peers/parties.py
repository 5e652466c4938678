"""``parties``: gives the application another unit of a resource until it keeps its target.

Source: Chen, Delimitrou, Martinez, "PARTIES: QoS-Aware Resource Partitioning for Multiple
Interactive Services", ASPLOS 2019, and its code, sc2682cornell/PARTIES, manager/PARTIES.py
(22e0a51f). Where they differ, the code's steps with the paper's numbers: a decision every 500 ms,
which is five readings of the tail latency, and a lock-out of 30 s.

*Slack* is (target - latency) / target, of the last reading and of the mean of the last second.

* Both below 5 %: upsize. The application gets a unit of a resource from the background, drawn at
  random at first. After five readings: where most of them were not below the latency before, the
  next resource is tried next time; the unit stays. Then it decides anew.
* Both above 20 %, and no lock-out: downsize. The background gets a unit. After five readings:
  where most had less than 5 % of slack, the unit is taken back, the next resource is tried next
  time, the lock-out begins, and it looks on for five readings more, and five again if most of
  those were short, too.
* In the beginning the application and each group of the background have equal parts. The
  application, and each group, keeps a unit of each resource.

What differs on this node:

* There is one application with a target. The background's groups have none: they hold what the
  application does not, as in the paper, and share it equally.
* Of the resources (cores, cache ways, frequency; memory capacity, disk and network bandwidth),
  CPU time and memory are moved here, in sixteenths (``shared_units``). There is no lever for cache
  ways and frequency. The published code moves neither memory nor disk.
* Memory is never taken from the application below its anonymous pages, because of the code's
  warning that memory given away at random ends in the OOM killer.
* The tail is the p95 of the last second, which is what samples have.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from stallward.agent.control_law.thresholds import tuned
from stallward.agent.controller import Decision, Need, NodeContext
from stallward.agent.desired import RELEASED, DesiredState
from stallward.agent.sample import Sample
from stallward.papers.peers.published import Every, PublishedController, published_entry
from stallward.papers.peers.shared_units import (
    RESOURCES,
    UNITS,
    Resource,
    limits_of,
    zone_bytes,
)

_READING_S: Final = 0.1
_MEAN_READINGS: Final = 10
_TOLERANCE: Final = 5
"""The readings after an action by which it is judged."""
Phase = Literal["watch", "upsized", "downsized", "settle", "settle again"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartiesNumbers:
    """The numbers of the paper."""

    upsize_slack: float = tuned(0.05, "slack below which the application gets more", -1.0, 1.0)
    downsize_slack: float = tuned(0.2, "slack above which the background gets more", -1.0, 1.0)
    lockout_s: float = tuned(30, "no downsizing so long after one was taken back, s", 0, 3600)


class PartiesController(PublishedController[PartiesNumbers]):
    """The manager for one application."""

    name = "parties"

    def _needs(self) -> tuple[Need, ...]:
        return (Need.CPU_MAX, Need.LIMIT, Need.LATENCY, Need.CPU_COUNT)

    def reset(self, context: NodeContext) -> None:
        """Begin with equal parts."""
        super().reset(context)
        self._rng = np.random.default_rng(context.seed)
        self._reading = Every(_READING_S)
        groups = len(context.slot_names)
        own = max(UNITS // (groups + 1), 1)
        self._background: dict[Resource, int] = dict.fromkeys(RESOURCES, UNITS - own)
        self._latency_ms: float | None = None
        self._recent_ms: deque[float] = deque(maxlen=_MEAN_READINGS)
        self._phase: Phase = "watch"
        self._resource: Resource | None = None
        """The resource that is tried next, for as long as the direction stays."""
        self._growing = True
        """Whether the application was given something last."""
        self._before_ms = 0.0
        self._left, self._votes = 0, 0
        self._locked_until_s = -math.inf

    @property
    def background_units(self) -> dict[Resource, int]:
        """The units of each resource that the background has."""
        return dict(self._background)

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        """One reading, and what follows from it."""
        memory = zone_bytes(sample, self._context)
        if not sample.slots or self._context.cpus <= 0 or memory <= 0:
            return Decision(desired=RELEASED, reason="the CPUs of the node are not known")
        reason = self._read(sample) if self._reading.due(sample.time_s) else ""
        slots = limits_of(self._context, len(sample.slots), memory, self._background)
        units = ", ".join(f"{self._background[one]}/{UNITS} {one}" for one in RESOURCES)
        text = f"{reason or self._phase}: background {units}"
        return Decision(desired=DesiredState(slots=tuple(slots)), reason=text)

    def _read(self, sample: Sample) -> str:
        p95_ms = None if sample.latency is None else sample.latency.p95_ms
        if p95_ms is not None:
            self._latency_ms = p95_ms
            self._recent_ms.append(p95_ms)
        if self._latency_ms is None:
            return "no latency yet"
        if self._phase == "watch":
            return self._choose(sample)
        self._left -= 1
        self._votes += 1 if self._vote(self._latency_ms) else -1
        return self._judge(sample) if self._left == 0 else ""

    def _vote(self, latency_ms: float) -> bool:
        """Whether a reading speaks for the last action."""
        if self._phase == "upsized":
            return latency_ms < self._before_ms
        return self._slack(latency_ms) >= self._numbers.upsize_slack

    def _judge(self, sample: Sample) -> str:
        """Decide whether the last action was good."""
        good, phase = self._votes > 0, self._phase
        if phase == "upsized" and not good:
            self._next_resource()
        if phase == "downsized" and not good:
            self._take()
            self._next_resource()
            self._locked_until_s = sample.time_s + self._numbers.lockout_s
            self._begin("settle")
            return "taken back"
        if phase == "settle" and not good:
            self._begin("settle again")
            return ""
        self._phase = "watch"
        return self._choose(sample)

    def _choose(self, sample: Sample) -> str:
        """Upsize, downsize, or leave everything as it is."""
        numbers, latency_ms = self._numbers, self._latency_ms or 0.0
        mean = self._slack(sum(self._recent_ms) / len(self._recent_ms))
        slack = self._slack(latency_ms)
        if slack < numbers.upsize_slack and mean < numbers.upsize_slack:
            return self._resize(sample, growing=True)
        may = sample.time_s >= self._locked_until_s
        if may and slack > numbers.downsize_slack and mean > numbers.downsize_slack:
            return self._resize(sample, growing=False)
        return ""

    def _resize(self, sample: Sample, *, growing: bool) -> str:
        """Move a unit, of the first resource of which one can be moved."""
        if self._resource is None or growing != self._growing:
            self._resource = RESOURCES[int(self._rng.integers(len(RESOURCES)))]
        self._growing = growing
        self._before_ms = self._latency_ms or 0.0
        for _ in RESOURCES:
            if self._may_take(sample) if growing else self._may_give(sample):
                moved = self._resource
                if growing:
                    self._take()
                else:
                    self._background[moved] += 1
                self._begin("upsized" if growing else "downsized")
                return f"{self._phase} by {moved}"
            self._next_resource()
        return "nothing left to give" if growing else "nothing left to take"

    def _may_take(self, sample: Sample) -> bool:
        """Whether the background has more than a unit for each of its groups."""
        return self._background[self._resource or "cpu"] > len(sample.slots)

    def _may_give(self, sample: Sample) -> bool:
        """Whether the application has more than a unit, and does not need it."""
        resource = self._resource or "cpu"
        left = UNITS - self._background[resource] - 1
        if resource == "memory":
            anon = sample.protected.anon_bytes or 0
            return left >= 1 and anon <= zone_bytes(sample, self._context) * left / UNITS
        return left >= 1

    def _take(self) -> None:
        self._background[self._resource or "cpu"] -= 1

    def _next_resource(self) -> None:
        at = RESOURCES.index(self._resource or "cpu")
        self._resource = RESOURCES[(at + 1) % len(RESOURCES)]

    def _begin(self, phase: Phase) -> None:
        self._phase, self._left, self._votes = phase, _TOLERANCE, 0

    def _slack(self, latency_ms: float) -> float:
        return 1.0 - latency_ms / self._context.slo_ms


ENTRY = published_entry(
    PartiesController,
    PartiesNumbers,
    "PARTIES: moves a unit of CPU or memory at a time, by the slack of the tail latency",
)
