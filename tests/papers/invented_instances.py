"""A runner of several instances that invents latencies, for tests of the DASEC experiment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from invented_detector import NODE

from stallward.evaluation.arms import Arm
from stallward.papers.experiments.dasec.applications import Application
from stallward.papers.experiments.dasec.instances.result import (
    CpuUse,
    InstanceRun,
    InstancesRun,
    RequestCost,
)

COSTS = {
    "memcached": RequestCost(service_us=30.0, generator_us=20.0),
    "ordered": RequestCost(service_us=170.0, generator_us=30.0),
}
TIMES = {"bvt": 0.8, "dasec": 0.5, "dasec:answers=latency": 0.6}
"""A controller -> the latency under it, as a multiple of that without control."""
CPUS = 2


@dataclass
class InventedInstances:
    """Latencies by what runs, with noise that all runs of a round share, and what ran."""

    interrupt_at: int = -1
    ran: list[tuple[tuple[Application, ...], tuple[float, ...], str, int]] = field(
        default_factory=list
    )
    prepared: list[Application] = field(default_factory=list)
    measured: list[Application] = field(default_factory=list)

    def prepare(self, applications: Sequence[Application]) -> None:
        self.prepared += applications

    def measure_cost(self, application: Application, seed: int) -> RequestCost:
        assert application in self.prepared
        self.measured.append(application)
        return COSTS[application]

    def run(
        self,
        applications: Sequence[Application],
        rates_per_s: Sequence[float],
        arm: Arm,
        seed: int,
    ) -> InstancesRun:
        if len(self.ran) == self.interrupt_at:
            raise KeyboardInterrupt
        self.ran.append((tuple(applications), tuple(rates_per_s), arm.spec, seed))
        noise = float(np.exp(0.3 * np.random.default_rng(seed).normal()))
        mean_ms = noise * TIMES.get(arm.spec, 1.0)
        services, generators = (
            sum(
                rate_per_s * getattr(COSTS[one], part) / (CPUS * 1e6)
                for one, rate_per_s in zip(applications, rates_per_s, strict=True)
            )
            for part in ("service_us", "generator_us")
        )
        return InstancesRun(
            instances=tuple(
                InstanceRun(
                    application=application,
                    requests=100,
                    answered_share=0.98,
                    mean_ms=mean_ms * (1 + number),
                    p50_ms=mean_ms,
                    p99_ms=10 * mean_ms * (1 + number),
                )
                for number, application in enumerate(applications)
            ),
            cpu=CpuUse(
                services=services, generators=generators, machine=services + generators + 0.01
            ),
            stolen_share=0.01,
            node=NODE,
        )

    @contextmanager
    def opened(self) -> Iterator[InventedInstances]:
        yield self
