"""A runner of applications that invents latencies, for tests of the DASEC experiment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from invented_detector import NODE

from stallward.papers.experiments.dasec.applications import APPLICATIONS, Application
from stallward.papers.experiments.dasec.result import DasecRun, ThreadFigures
from stallward.papers.experiments.dasec.steps import Setting

RATE_PER_S = 1000.0
TIMES = {"bvt": 0.8, "dasec": 0.5, "dasec:answers=latency": 0.6}
"""A controller -> the latency under it, as a multiple of that without control."""


def invented_mean_ms(setting: Setting) -> float:
    """The mean latency, before noise: it grows with the batch threads."""
    times = TIMES.get(setting.controller, 1.0) if setting.ratio else 1.0
    return (1.0 + APPLICATIONS.index(setting.application)) * (1.0 + setting.ratio) * times


@dataclass
class InventedApplications:
    """Latencies by setting, with noise that all settings of a repeat share, and what ran."""

    interrupt_at: int = -1
    watched: bool = True
    """Whether the application's threads were seen."""
    ran: list[Setting] = field(default_factory=list)
    prepared: list[Application] = field(default_factory=list)

    def prepare(self, application: Application) -> None:
        self.prepared.append(application)

    def run(self, setting: Setting, seed: int) -> DasecRun:
        if len(self.ran) == self.interrupt_at:
            raise KeyboardInterrupt
        self.ran.append(setting)
        noise = float(np.exp(0.3 * np.random.default_rng(seed).normal()))
        own = float(np.exp(0.02 * np.random.default_rng([seed, setting.ratio]).normal()))
        mean_ms = invented_mean_ms(setting) * noise * own
        threads = ThreadFigures(
            threads=4.0,
            running=0.1,
            waiting=0.2 * setting.ratio,
            critical=1.0,
            delayed_share=0.1 * setting.ratio,
            interrupted_share=0.0,
            lacking_share=0.05,
        )
        return DasecRun(
            requests=5000,
            answered_per_s=RATE_PER_S / (2.0 if setting.ratio == 4 else 1.0),
            mean_ms=mean_ms,
            quantiles_ms=tuple(mean_ms * times for times in (0.8, 2.0, 3.0, 10.0, 20.0)),
            batch_per_s=1.8 if setting.ratio else None,
            threads=threads if self.watched else None,
            stolen_share=0.01,
            node=NODE,
        )

    @contextmanager
    def opened(self) -> Iterator[InventedApplications]:
        yield self
