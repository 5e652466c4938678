"""An application whose latency depends on whether there are limits, for tests of what lifts them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
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
GROUP: Final = GroupSample(name="app")
SILENT: Final = LatencySample(completed_total=10, last_completion_age_s=40.0)


@dataclass
class LimitedNode(ABC):
    """A node on which something decides whether there are limits."""

    limited: float | LatencySample | None
    """The p95 over the target with limits, or all that is known of its latencies."""
    free: float | LatencySample | None
    """The same without."""
    other_free: LatencySample | None = None
    """The latencies of a second application without limits; there is none if it is ``None``."""
    limits: bool = True
    time_s: float = 100.0
    trials_s: list[float] = field(default_factory=list)

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
        if self.other_free is not None:
            each = (latency, self.other_free if self.is_free else answered(0.05))
            applications = tuple(
                ApplicationSample(name=name, slo_ms=SLO_MS, group=GROUP, latency=one)
                for name, one in zip("ab", each, strict=True)
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
