"""A runner of batches that invents response times, for tests of the experiments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from stallward.env.recording.run_info import NodeInfo
from stallward.env.sandbox.watch import GroupPeak
from stallward.env.workloads.native.subtasks import SubtaskProgram
from stallward.evaluation.arms import Arm
from stallward.papers.experiments.batch import BatchResult
from stallward.papers.experiments.machine_use import MachineUse
from stallward.papers.experiments.swap.configurations import Configuration

ALONE_S = 2.0
TOGETHER_S = {
    "none": (10.0, 9.0, 5.0),
    "MaT": (8.0, 7.0, 5.0),
    "average": (12.0, 12.0, 12.0),
    "scheduling": (6.0, 7.0, 8.0),
    "direct swap": (5.0, 6.0, 9.0),
    "both": (4.0, 5.0, 9.0),
    **{f"alpha {alpha}": (6.0, 6.0, 9.0) for alpha in ("0", "0.1", "0.2", "0.4", "0.5")},
    "alpha 0.3": (6.0, 6.0, 6.0),
}


@dataclass
class InventedRunner:
    """Response times by arm, with a little noise, and a list of what ran."""

    interrupt_at: int = -1
    ran: list[tuple[str, str, int]] = field(default_factory=list)
    specs: dict[str, str] = field(default_factory=dict)

    @property
    def node(self) -> NodeInfo:
        return NodeInfo(kind="hybrid", kernel="6.18", cpu_count=2, memory_total_bytes=8 << 30)

    def run(
        self,
        configuration: Configuration,
        programs: Mapping[int, SubtaskProgram],
        *,
        arm: Arm,
        seed: int,
    ) -> BatchResult:
        if len(self.ran) == self.interrupt_at:
            raise KeyboardInterrupt
        self.ran.append((configuration.name, arm.label, len(programs)))
        self.specs[arm.label] = arm.spec
        rng = np.random.default_rng([seed, len(arm.label)])
        base = TOGETHER_S[arm.label]
        response_s = {
            slot: float(
                (ALONE_S if len(programs) == 1 else base[slot % 3]) * np.exp(0.02 * rng.normal())
            )
            for slot in programs
        }
        peaks = tuple(
            GroupPeak(memory_bytes=(program.mib << 20), threads=program.subtasks + 1)
            for program in configuration.programs
        )
        return BatchResult(
            response_s=response_s,
            peaks=peaks,
            major_faults={slot: 1000 * (1 + slot) for slot in programs},
            oom_kills=0,
            stolen_share=0.01,
            machine=MachineUse(),
        )

    @contextmanager
    def opened(self) -> Iterator[InventedRunner]:
        yield self
