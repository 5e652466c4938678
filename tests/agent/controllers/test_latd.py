"""What the latd thesis says, decision by decision."""

from __future__ import annotations

import numpy as np
import pytest

from stallward.agent.controller import NodeContext
from stallward.agent.desired import MIB, DesiredState
from stallward.agent.observation.encoder import OBSERVATION_SIZE
from stallward.agent.registry import make_controller
from stallward.agent.sample import (
    GroupSample,
    NodeSample,
    ProcessSample,
    PsiTotals,
    Sample,
    SlotState,
)

OBSERVATION = np.zeros(OBSERVATION_SIZE, dtype=np.float32)
ZONE = 1_000 * MIB
RULES = ("latd", "latd-cgroup", "latd-grow")
HOG = 101


class Machine:
    """A zone of 1,000 MiB with a hog, and one of the rules at work."""

    def __init__(self, rule: str = "latd") -> None:
        self.controller = make_controller(rule)
        self.controller.reset(NodeContext(zone_limit_bytes=ZONE, slot_names=("hog",)))
        self.ticks = self.some_us = self.full_us = 0
        self.used_mib, self.file_mib = 900, 0
        self.available_mib: int | None = None
        """What /proc/meminfo says is available; ``None`` where the zone has a limit of its own."""

    def tick(self, *, some: bool = False, full: bool = False) -> DesiredState:
        self.ticks += 1
        self.some_us += 1_000 * some
        self.full_us += 1_000 * full
        machine = self.available_mib is not None
        sample = Sample(
            sequence=self.ticks,
            time_s=0.1 * self.ticks,
            node=NodeSample(
                memory_total_bytes=ZONE if machine else 16 * ZONE,
                memory_available_bytes=(self.available_mib or 0) * MIB,
            ),
            zone=GroupSample(
                name="zone",
                psi=PsiTotals(memory_some_us=self.some_us, memory_full_us=self.full_us),
                memory_usage_bytes=self.used_mib * MIB,
                file_bytes=self.file_mib * MIB,
                inactive_file_bytes=0,
            ),
            protected=GroupSample(name="app"),
            slots=(GroupSample(name="hog", psi=PsiTotals(memory_some_us=self.some_us)),),
            slot_states=(SlotState(),),
            processes=tuple(
                ProcessSample(pid=pid, start_time_ticks=1, slot=slot, oom_score=s, stopped=False)
                for pid, slot, s in ((100, 0, 10), (HOG, 0, 50), (1, -1, 999))
            ),
        )
        return self.controller.decide(sample, OBSERVATION).desired


def stopped(desired: DesiredState) -> list[int]:
    return [process.pid for process in desired.stopped]


@pytest.mark.parametrize("rule", RULES)
def test_page_cache_in_use_is_available(rule: str) -> None:
    """The thesis reads MemAvailable, which counts all page cache that can be dropped."""
    machine = Machine(rule)
    machine.tick()
    machine.used_mib, machine.file_mib = 1_000, 300
    assert machine.tick(some=True, full=True).terminate is None
    machine.file_mib = 0
    victim = machine.tick(some=True, full=True).terminate
    assert victim is not None
    assert victim.pid == HOG


@pytest.mark.parametrize("rule", RULES)
def test_what_a_whole_machine_has_available_is_what_it_says(rule: str) -> None:
    machine = Machine(rule)
    machine.used_mib, machine.file_mib, machine.available_mib = 990, 0, 200
    assert machine.tick(some=True, full=True).terminate is None
    machine.available_mib = 1
    assert machine.tick(some=True, full=True).terminate is not None


def test_latd_resumes_when_both_stalls_are_stable() -> None:
    """Lines 13 to 15 of Algorithm 1."""
    machine = Machine()
    machine.tick()
    assert stopped(machine.tick(some=True, full=True)) == [HOG]
    assert stopped(machine.tick(some=True)) == [HOG], "some rises"
    assert stopped(machine.tick(full=True)) == [HOG], "full rises"
    machine.tick(some=True)
    assert stopped(machine.tick()) == []


def test_latd_flushes_while_some_rises_and_stops_only_for_full() -> None:
    machine = Machine()
    calm = machine.tick().tuning
    flushing = machine.tick(some=True)
    assert (flushing.tuning.dirty_background_ratio, flushing.tuning.dirty_ratio) == (2, 100)
    assert stopped(flushing) == []
    assert machine.tick().tuning == calm
