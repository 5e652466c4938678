"""A kernel whose reclaim of file pages hardly stalls, so that memory ``full`` stays at 0.

An application can then suffer while its memory pressure stays low: its pages come back from a
disk so fast that hardly anybody waits. The controllers that ship act by latency or refaults.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from stallward.agent.desired import MIB
from stallward.agent.observation.encoder import ObservationEncoder
from stallward.agent.observation.raw import to_raw
from stallward.agent.registry import make_controller
from stallward.agent.sample import GroupSample, LatencySample, PsiTotals, Sample
from stallward.agent.testing import CONTEXT, make_sample

SLO_MS = 60.0
NODE_CONTEXT = replace(CONTEXT, slo_ms=SLO_MS)
TICKS = 60


def samples(
    *, p95_ms: float | None = None, refaults_per_tick: int = 0, some_us_per_tick: int = 0
) -> Iterator[Sample]:
    """Samples of a zone that is nearly full, 0.1 s apart, never with any ``full`` stall."""
    for k in range(TICKS):
        some_us = some_us_per_tick * k
        sample = make_sample(k, some_us=2 * some_us, available_bytes=6 * MIB)
        psi = PsiTotals(memory_some_us=some_us, memory_full_us=0, io_some_us=0, io_full_us=0)
        app = GroupSample(
            name="app",
            psi=psi,
            memory_usage_bytes=250 * MIB,
            file_bytes=150 * MIB,
            refault_file_pages=refaults_per_tick * k,
        )
        latency = None
        if p95_ms is not None:
            latency = LatencySample(completed=20, mean_ms=p95_ms / 2, p95_ms=p95_ms, max_ms=p95_ms)
        yield replace(sample, protected=app, latency=latency)


def withheld(name: str, given: Iterator[Sample]) -> float:
    """The share of the slots' memory that the controller withholds at the end; 1 for a pause."""
    controller, encoder = make_controller(name), ObservationEncoder(SLO_MS)
    controller.reset(NODE_CONTEXT)
    for sample in given:
        decision = controller.decide(sample, encoder.encode(to_raw(sample)))
    slots, states = decision.desired.slots, sample.slot_states
    shares = [
        1.0
        if slot.paused
        else 1.0 - (slot.limit_bytes or state.reference_bytes) / state.reference_bytes
        for slot, state in zip(slots, states, strict=False)
        if state.reference_bytes is not None
    ]
    return sum(shares) / len(states)


def test_the_default_rule_acts_by_latency_alone() -> None:
    calm = withheld("rule", samples(p95_ms=10.0))
    assert withheld("rule", samples(p95_ms=3 * SLO_MS)) == 1.0 > calm


def test_the_default_rule_acts_by_refaults_alone() -> None:
    calm = withheld("rule", samples())
    assert withheld("rule", samples(refaults_per_tick=500)) == 1.0 > calm


@pytest.mark.parametrize("name", ["rule", "pi", "psi-hold"])
def test_a_stall_of_some_tasks_is_enough(name: str) -> None:
    assert withheld(name, samples(some_us_per_tick=40_000)) == 1.0


@pytest.mark.parametrize("name", ["pi", "psi-hold"])
def test_rules_that_look_at_stalls_only_do_not_see_anything_else(name: str) -> None:
    given = samples(p95_ms=3 * SLO_MS, refaults_per_tick=500)
    assert withheld(name, given) == 0.0, "as the page of controllers says"


@pytest.mark.parametrize("name", ["partition", "ppo"])
def test_what_shares_the_memory_needs_no_stall(name: str) -> None:
    """It divides what the application leaves, whether anybody waits or not."""
    assert 0.3 < withheld(name, samples(p95_ms=3 * SLO_MS, refaults_per_tick=500)) < 1.0
