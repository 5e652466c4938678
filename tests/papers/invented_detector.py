"""A runner of the detector that invents latencies, for tests of the latd experiments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from stallward.env.recording.run_info import NodeInfo
from stallward.papers.experiments.latd.result import LatdRun, Lookups, MemorySeries
from stallward.papers.experiments.latd.steps import Setting
from stallward.papers.experiments.latd.workload import DETECTOR_MIB, MIB, USUAL

ALONE_MS = 20.0
IMAGES = 200
TIMES = {"anon-once": 5.0, "anon-again": 20.0, "file-once": 1.0, "file-again": 10.0}
"""How much longer every image takes beside each hog, without control."""
NODE = NodeInfo(kind="hybrid", kernel="6.18", cpu_count=2, memory_total_bytes=8 << 30)


def invented_times(setting: Setting) -> float:
    """How much longer every image takes than alone."""
    if setting.hog is None or setting.utilisation < 0.99:
        return 1.0
    return 2.0 if setting.controller.startswith("latd") else TIMES[setting.hog]


@dataclass
class InventedDetector:
    """Latencies by setting, with a little noise, and a list of what ran."""

    interrupt_at: int = -1
    counts: bool = True
    """Whether page-cache lookups are counted."""
    ran: list[Setting] = field(default_factory=list)

    def run(self, setting: Setting, seed: int) -> LatdRun:
        if len(self.ran) == self.interrupt_at:
            raise KeyboardInterrupt
        self.ran.append(setting)
        rng = np.random.default_rng([seed, len(setting.name)])
        times = invented_times(setting)
        latency_ms = ALONE_MS * times * np.exp(0.05 * rng.normal(size=IMAGES))
        beside = setting.hog is not None
        hog = USUAL.hog_mib(setting.hog, setting.utilisation) * MIB if setting.hog else 0
        detector = DETECTOR_MIB * MIB
        lookups = Lookups(hits=900, misses=round(100 * times)) if self.counts else None
        return LatdRun(
            request_s=tuple(np.linspace(0.0, 20.0, IMAGES).tolist()),
            latency_ms=tuple(latency_ms.tolist()),
            unfinished=0,
            detector_lookups=lookups,
            zone_lookups=lookups,
            memory=MemorySeries(
                images=(50, 100, 150, 200),
                detector_bytes=(detector, detector, detector // 2, detector),
                hog_bytes=(0, 0, hog, hog // 2),
                cache_bytes=(300 * MIB, 300 * MIB, 200 * MIB, 250 * MIB),
                used_bytes=(400 * MIB, 400 * MIB, 630 * MIB, 630 * MIB),
            ),
            work_mib_per_s=500.0 / times if beside else None,
            stopped_share=0.5 if setting.controller.startswith("latd") else 0.0,
            terminated=int(setting.controller == "latd"),
            stolen_share=0.01,
            node=NODE,
            not_counted="" if self.counts else "page cache by eBPF: not permitted",
        )

    @contextmanager
    def opened(self) -> Iterator[InventedDetector]:
        yield self
