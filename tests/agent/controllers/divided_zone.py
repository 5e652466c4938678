"""A zone for tests of ``partition``: groups hold what they want as far as limits let them."""

from __future__ import annotations

import numpy as np

from stallward.agent.controller import Controller, Decision, NodeContext
from stallward.agent.controllers.partition import PartitionController, PartitionThresholds
from stallward.agent.desired import MIB
from stallward.agent.observation.encoder import OBSERVATION_SIZE
from stallward.agent.sample import (
    GroupSample,
    LatencySample,
    NodeSample,
    PsiTotals,
    Sample,
    SlotState,
)

OBSERVATION = np.zeros(OBSERVATION_SIZE, dtype=np.float32)
ZONE_MIB = 600
MARGIN_MIB = 36
FLOOR = 16 * MIB
NUMBERS = PartitionThresholds(
    margin_share=0.06, turn_s=15.0, keep_anon_share=0.5, most_lent_share=0.6, far_ratio=0.0
)
"""Numbers that do not change when those of the rule are tuned; limits are never left out."""
CONTEXT = NodeContext(
    zone_limit_bytes=ZONE_MIB * MIB,
    slot_names=("a", "b"),
    floors_bytes=(FLOOR, FLOOR),
    slo_ms=10.0,
)


class Zone:
    """A zone whose application and groups hold what they want as far as their limits let them."""

    def __init__(
        self,
        app_mib: float,
        *groups_mib: float,
        controller: Controller | None = None,
        context: NodeContext = CONTEXT,
    ) -> None:
        self.controller = controller or PartitionController(NUMBERS)
        self.controller.reset(context)
        self.app_mib = app_mib
        self.app_anon_mib = 0.0
        self.app_swap_mib = 0.0
        self.other_mib = 0.0
        """Memory of the zone that belongs to no group that is known."""
        self.other_file_mib = 0.0
        """Page cache of the zone, likewise: it is not free, but can be dropped."""
        self.groups_mib = list(groups_mib)
        self.states = [SlotState() for _ in groups_mib]
        self.least_limit_mib: float | None = None
        """The least limit that the guard grants to any group."""
        self.thrashing: set[int] = set()
        self.stalled_us = [0 for _ in groups_mib]
        self.refaults = [0 for _ in groups_mib]
        self.swap_us: float | None = None
        """How long a page takes to come back from swap; ``None`` if that is not known."""
        self.app_refaults: int | None = None
        self.app_stalls: float | None = None
        """Share of the time in which the application waits for memory; ``None`` if not known."""
        self.app_stalled_us = 0
        self.reads_mib_per_s = [0.0 for _ in groups_mib]
        self.read_bytes = [0 for _ in groups_mib]
        self.p95_ms: float | None = 6.5
        """So near to the target that nothing is lent, and so far that nothing is returned."""
        self.time_s = 0.0

    def run(self, seconds: float) -> Decision:
        for _ in range(round(seconds / 0.1)):
            decision = self.tick()
        return decision

    def tick(self) -> Decision:
        self.time_s += 0.1
        self.app_stalled_us += round(0.1e6 * (self.app_stalls or 0.0))
        decision = self.controller.decide(self.sample(), OBSERVATION)
        self.states = [
            SlotState(
                paused=decision.desired.slot(i).paused,
                limit_bytes=decision.desired.slot(i).limit_bytes,
                reference_bytes=int(size * MIB),
                least_limit_bytes=None
                if self.least_limit_mib is None
                else int(self.least_limit_mib * MIB),
            )
            for i, size in enumerate(self.groups_mib)
        ]
        return decision

    def sample(self) -> Sample:
        groups = tuple(self.group(i) for i in range(len(self.groups_mib)))
        used = (self.app_mib + self.other_mib + self.other_file_mib) * MIB + sum(
            g.memory_usage_bytes or 0 for g in groups
        )
        return Sample(
            sequence=round(self.time_s * 10),
            time_s=self.time_s,
            node=NodeSample(),
            zone=GroupSample(
                name="zone",
                memory_usage_bytes=int(min(used, ZONE_MIB * MIB)),
                memory_limit_bytes=ZONE_MIB * MIB,
                file_bytes=int(self.other_file_mib * MIB),
            ),
            protected=GroupSample(
                name="app",
                memory_usage_bytes=int(self.app_mib * MIB),
                anon_bytes=int(self.app_anon_mib * MIB),
                swap_bytes=int(self.app_swap_mib * MIB),
                refault_file_pages=self.app_refaults,
                psi=PsiTotals(
                    memory_some_us=None if self.app_stalls is None else self.app_stalled_us
                ),
            ),
            slots=groups,
            slot_states=tuple(self.states),
            latency=LatencySample(completed=50, p95_ms=self.p95_ms, last_completion_age_s=0.0),
        )

    def group(self, index: int) -> GroupSample:
        wanted = int(self.groups_mib[index] * MIB)
        state = self.states[index]
        held = wanted if state.limit_bytes is None else min(wanted, state.limit_bytes)
        if index in self.thrashing and held < 0.97 * wanted and not state.paused:
            self.stalled_us[index] += 60_000
            self.refaults[index] += 1_000
        self.read_bytes[index] += int(0.1 * self.reads_mib_per_s[index] * MIB)
        return GroupSample(
            name=f"group{index}",
            io_read_bytes=self.read_bytes[index],
            psi=PsiTotals(
                memory_full_us=self.stalled_us[index],
                io_full_us=0,
                io_some_us=None
                if self.swap_us is None
                else int(self.swap_us * self.refaults[index]),
            ),
            memory_usage_bytes=held,
            swap_bytes=wanted - held,
            refault_anon_pages=self.refaults[index],
        )


def limits_mib(decision: Decision) -> list[float | None]:
    return [
        None if slot.limit_bytes is None else slot.limit_bytes / MIB
        for slot in decision.desired.slots
    ]


def sum_mib(decision: Decision) -> float:
    return sum(limit or 0.0 for limit in limits_mib(decision))
