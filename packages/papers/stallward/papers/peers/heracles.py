"""``heracles``: lets the background grow while the application has slack, and stops it otherwise.

Source: Lo et al., "Heracles: Improving Resource Efficiency at Scale", ISCA 2015, Algorithms 1
(top-level controller) and 2 (core and memory sub-controller). Its code is not public. This rule is
*like* Heracles: what it controls is not there on these nodes, see below.

Top level, every 15 s, with the slack (target - latency) / target:

* slack below 0: the background is disabled, and stays so for 5 minutes;
* load above 85 %: disabled; below 80 %: enabled;
* slack below 10 %: it may not grow; below 5 % it keeps two cores;
* else it may grow.

(As printed, Algorithm 1 looks at the slack only where the load is between 80 and 85 %. The text
says whenever neither safeguard is active, and that is done here.)

Sub-controller, every 2 s, one dimension at a time, beginning with one core and a tenth of the
memory: while memory traffic is above its limit, the background loses the cores that cause the
excess. Else, if it may grow, it gets a unit of memory. Where traffic did not fall then, the unit
is taken back, and cores are next; so they are where the background gains nothing. It gets a core
if traffic and one core's part of it stay below the limit and the slack is above 10 %; else memory
is next.

What differs on this node:

* Cache ways are memory capacity here, and DRAM bandwidth is the share of time in which somebody in
  the zone waits for a disk (I/O ``some``), with the same limit of 90 %: with too little memory a
  group reads from disk what with too little cache it reads from memory. A core is a sixteenth of
  the node's CPU time (``shared_units``).
* Load is the application's share of the node's CPU time, because its peak is not known.
* Disabled means paused and squeezed: what was given to the background is the application's again.
* The latency is the mean of the p95s of the last 15 s. The background gains if it gets more CPU
  time done than before.
* The sub-controllers for power (RAPL, frequency) and network (HTB) have no lever here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from stallward.agent.control_law.thresholds import tuned
from stallward.agent.controller import Decision, Need, NodeContext
from stallward.agent.desired import RELEASED, DesiredState
from stallward.agent.sample import Sample
from stallward.papers.peers.published import Every, PublishedController, published_entry
from stallward.papers.peers.shared_units import (
    UNITS,
    Resource,
    limits_of,
    zone_bytes,
)

_POLL_S: Final = 15.0
_STEP_S: Final = 2.0
_FIRST_CORES: Final = 1
_FIRST_MEMORY: Final = 2
"""A tenth of the memory, in whole units."""
_KEPT_CORES: Final = 2
Growth = Literal["memory", "cores"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeraclesNumbers:
    """The numbers of its algorithms."""

    disable_load: float = tuned(0.85, "load above which the background is disabled", 0.0, 1.0)
    enable_load: float = tuned(0.80, "load below which it is enabled", 0.0, 1.0)
    grow_slack: float = tuned(0.10, "slack above which the background may grow", -1.0, 1.0)
    shrink_slack: float = tuned(0.05, "slack below which it keeps two cores", -1.0, 1.0)
    cooldown_s: float = tuned(300, "how long it stays disabled without slack, s", 0, 3600)
    traffic_limit: float = tuned(0.9, "share of time with somebody waiting for a disk", 0.0, 1.0)


@dataclass(slots=True, kw_only=True)
class _Window:
    """What is summed up between two polls of the top level."""

    latencies_ms: float = 0.0
    readings: int = 0
    began_s: float | None = None
    cpu_us: int | None = None


class HeraclesController(PublishedController[HeraclesNumbers]):
    """The top-level controller and its core and memory sub-controller."""

    name = "heracles"

    def _needs(self) -> tuple[Need, ...]:
        levers = (Need.CPU_MAX, Need.LIMIT, Need.PAUSE)
        signals = (Need.LATENCY, Need.IO_STALL, Need.CPU_COUNT)
        return (*levers, *signals)

    def reset(self, context: NodeContext) -> None:
        """Begin with the background disabled until the first poll."""
        super().reset(context)
        self._poll, self._step = Every(_POLL_S), Every(_STEP_S)
        self._window = _Window()
        self._slack: float | None = None
        self._enabled, self._may_grow = False, False
        self._cool_until_s = -math.inf
        self._disable()
        self._stalls: tuple[float, int] | None = None
        """The time and the total of the zone's I/O stall at the last step."""
        self._traffic = self._derivative = 0.0
        self._work: tuple[float, int] | None = None
        self._rate = self._rate_before = 0.0
        """CPU time of the background per second, in the last two steps."""
        self._grown = False
        """Whether memory was given at the last step, which is judged now."""
        self._reason = "not polled yet"

    @property
    def background_units(self) -> dict[Resource, int]:
        """The units of each resource that the background has."""
        return dict(self._units)

    @property
    def enabled(self) -> bool:
        """Whether the background may run."""
        return self._enabled

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        """Run the controllers that are due."""
        memory = zone_bytes(sample, self._context)
        if not sample.slots or self._context.cpus <= 0 or memory <= 0:
            return Decision(desired=RELEASED, reason="the CPUs of the node are not known")
        self._gather(sample)
        if self._window.readings and self._poll.due(sample.time_s):
            self._top_level(sample)
        if self._step.due(sample.time_s):
            self._measure(sample)
            if self._enabled:
                self._cores_and_memory()
        slots = limits_of(self._context, len(sample.slots), memory, self._units)
        if not self._enabled:
            slots = [
                replace(slot, paused=True, limit_bytes=self._context.floor(i))
                for i, slot in enumerate(slots)
            ]
        units = f"{self._units['cpu']}/{UNITS} cpu, {self._units['memory']}/{UNITS} memory"
        text = f"{self._reason}: background {units if self._enabled else 'disabled'}"
        return Decision(desired=DesiredState(slots=tuple(slots)), reason=text)

    def _gather(self, sample: Sample) -> None:
        window, latency = self._window, sample.latency
        if latency is not None and latency.p95_ms is not None:
            window.latencies_ms += latency.p95_ms
            window.readings += 1
        if window.began_s is None and sample.protected.cpu_usage_us is not None:
            window.began_s, window.cpu_us = sample.time_s, sample.protected.cpu_usage_us

    def _top_level(self, sample: Sample) -> None:
        """Algorithm 1."""
        numbers, window = self._numbers, self._window
        slack = 1.0 - window.latencies_ms / window.readings / self._context.slo_ms
        load = self._load(sample)
        self._slack, self._window = slack, _Window()
        self._reason = f"slack {slack:.2f}, load {load:.2f}"
        if slack < 0.0:
            self._disable()
            self._cool_until_s = sample.time_s + numbers.cooldown_s
            return
        if load > numbers.disable_load:
            self._disable()
            return
        if load < numbers.enable_load and sample.time_s >= self._cool_until_s:
            self._enabled = True
        self._may_grow = slack >= numbers.grow_slack
        if slack < numbers.shrink_slack:
            self._units["cpu"] = min(self._units["cpu"], _KEPT_CORES)

    def _load(self, sample: Sample) -> float:
        """The application's share of all CPU time since the last poll; 0 where it is not known."""
        window, used = self._window, sample.protected.cpu_usage_us
        if window.began_s is None or window.cpu_us is None or used is None:
            return 0.0
        if used < window.cpu_us:  # its group was made anew
            return 0.0
        passed_us = 1e6 * (sample.time_s - window.began_s) * self._context.cpus
        return (used - window.cpu_us) / passed_us if passed_us > 0 else 0.0

    def _disable(self) -> None:
        self._enabled = self._may_grow = False
        self._units: dict[Resource, int] = {"cpu": _FIRST_CORES, "memory": _FIRST_MEMORY}
        self._growth: Growth = "memory"
        self._grown = False

    def _measure(self, sample: Sample) -> None:
        """Measure traffic, how it changed, and what the background gets done."""
        stalled_us = sample.zone.psi.io_some_us
        if stalled_us is not None:
            if self._stalls is not None and sample.time_s > self._stalls[0]:
                passed_us = 1e6 * (sample.time_s - self._stalls[0])
                traffic = min(max((stalled_us - self._stalls[1]) / passed_us, 0.0), 1.0)
                self._derivative, self._traffic = traffic - self._traffic, traffic
            self._stalls = (sample.time_s, stalled_us)
        used_us = sum(group.cpu_usage_us or 0 for group in sample.slots)
        if self._work is not None and sample.time_s > self._work[0] and used_us >= self._work[1]:
            self._rate_before = self._rate
            self._rate = (used_us - self._work[1]) / (sample.time_s - self._work[0])
        self._work = (sample.time_s, used_us)

    def _cores_and_memory(self) -> None:
        """Algorithm 2."""
        limit, units = self._numbers.traffic_limit, self._units
        of_a_core = self._traffic / max(units["cpu"], 1)
        grown, self._grown = self._grown, False
        if self._traffic > limit:
            excess = math.ceil((self._traffic - limit) / max(of_a_core, 1e-9))
            units["cpu"] = max(units["cpu"] - excess, 1)
            return
        if grown:
            if self._derivative >= 0.0:
                units["memory"] = max(units["memory"] - 1, 1)
                self._growth = "cores"
            elif self._rate <= self._rate_before:
                self._growth = "cores"
        if not self._may_grow:
            return
        if self._growth == "memory":
            predicted = self._traffic + max(self._derivative, 0.0)
            if predicted > limit or units["memory"] >= UNITS - 1:
                self._growth = "cores"
            else:
                units["memory"] += 1
                self._grown = True
        elif self._traffic + of_a_core > limit:
            self._growth = "memory"
        elif (self._slack or 0.0) > self._numbers.grow_slack and units["cpu"] < UNITS - 1:
            units["cpu"] += 1


ENTRY = published_entry(
    HeraclesController,
    HeraclesNumbers,
    "like Heracles: the background grows while there is slack, else it stops",
)
