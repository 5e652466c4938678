"""An application whose latency depends on whether there are limits, for tests of what lifts them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Final

from stallward.agent.applications import joint_latency
from stallward.agent.sample import (
    ApplicationSample,
    GroupSample,
    LatencySample,
    NodeSample,
    Sample,
)

TICK_S: Final = 0.1
SLO_MS: Final = 10.0


def answered(ratio: float) -> LatencySample:
    return LatencySample(
        completed=10, completed_total=10, p95_ms=ratio * SLO_MS, last_completion_age_s=0.05
    )


NODE: Final = NodeSample()
GROUP: Final = GroupSample(name="app", memory_usage_bytes=1 << 20)
SILENT: Final = LatencySample(completed_total=10)
"""No answer since this began."""


@dataclass
class LimitedNode(ABC):
    """A node on which something decides whether there are limits."""

    limited: float | LatencySample | None
    """The p95 over the target with limits, or all that is known of its latencies."""
    free: float | LatencySample | None
    """The same without."""
    other_free: LatencySample | None = None
    """The latencies of a second application without limits."""
    other_limited: LatencySample | None = None
    """The same with limits; there is no second application if it is ``None``."""
    other_group: GroupSample = GROUP
    limits: bool = True
    time_s: float = 100.0
    trials_s: list[float] = field(default_factory=list)
    answered_s: dict[str, float] = field(default_factory=dict)
    """When each application answered last."""

    @property
    @abstractmethod
    def is_free(self) -> bool:
        """Whether there are no limits."""

    @abstractmethod
    def decide(self, sample: Sample) -> bool:
        """Let one tick pass, and say the same after it."""

    def sample(self, latency: LatencySample | None) -> Sample:
        """What is seen while these are the latencies of the application, or of the first."""
        applications: tuple[ApplicationSample, ...] = ()
        latency = self._aged("a", latency)
        if self.other_limited is not None:
            other = self._aged("b", self.other_free if self.is_free else self.other_limited)
            applications = (
                ApplicationSample(name="a", slo_ms=SLO_MS, group=GROUP, latency=latency),
                ApplicationSample(name="b", slo_ms=SLO_MS, group=self.other_group, latency=other),
            )
            latency = joint_latency(applications, SLO_MS)
        return Sample(
            sequence=0,
            time_s=self.time_s,
            node=NODE,
            zone=GROUP,
            protected=GROUP,
            latency=latency,
            applications=applications,
        )

    def _aged(self, name: str, latency: LatencySample | None) -> LatencySample | None:
        if latency is SILENT:
            return replace(
                SILENT, last_completion_age_s=self.time_s - self.answered_s.get(name, 0.0)
            )
        self.answered_s[name] = self.time_s
        return latency

    def run(self, seconds: float) -> float:
        """Run on; returns for how long there were no limits."""
        free_s = 0.0
        for _ in range(round(seconds / TICK_S)):
            self.time_s += TICK_S
            before = self.is_free
            now = self.free if before else self.limited
            latency = answered(now) if isinstance(now, float) else now
            after = self.decide(self.sample(latency))
            if after and not before:
                self.trials_s.append(self.time_s)
            free_s += TICK_S * after
        return free_s
