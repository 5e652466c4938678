"""Deadlines are absolute, and a calm node is looked at less often."""

from __future__ import annotations

from typing import Any

import pytest

from stallward.actuator.config.tables import Rates
from stallward.actuator.loop.pacing import Pacer, TickRate
from stallward.agent.desired import RELEASED, DesiredState, SlotDesire
from stallward.agent.sample import GroupSample, LatencySample, NodeSample, PsiTotals, Sample
from stallward.agent.threads import ThreadSample


def test_deadlines_do_not_drift() -> None:
    pacer = Pacer(100.0, 0.1)
    for tick in range(1000):
        assert pacer.due_s == pytest.approx(100.0 + tick * 0.1, abs=1e-9)
        pacer.advance(pacer.due_s + 0.03)
    assert pacer.missed == 0


def test_a_long_tick_skips_deadlines_without_a_burst() -> None:
    pacer = Pacer(100.0, 0.1)
    pacer.advance(100.35)
    assert pacer.due_s == pytest.approx(100.4)
    assert pacer.missed == 3


def test_a_clock_that_stands_still_still_advances() -> None:
    pacer = Pacer(100.0, 0.1)
    pacer.advance(100.0)
    assert pacer.due_s == pytest.approx(100.1)


def sample(
    time_s: float,
    stalled_us: int | None,
    *,
    p95_ms: float | None = None,
    node_us: int = 0,
    threads: tuple[ThreadSample, ...] | None = None,
) -> Sample:
    return Sample(
        sequence=0,
        time_s=time_s,
        node=NodeSample(psi=PsiTotals(memory_some_us=node_us)),
        zone=GroupSample(name="z"),
        protected=GroupSample(name="app", psi=PsiTotals(memory_some_us=stalled_us)),
        latency=None if p95_ms is None else LatencySample(completed=9, p95_ms=p95_ms),
        protected_threads=threads,
    )


class Run:
    """A tick rate that gets a sample ten times a second."""

    def __init__(self) -> None:
        self.rate = TickRate(Rates(), slo_ms=100.0)
        self.time_s = 1000.0
        self.total_us = 0

    def ticks(
        self,
        seconds: float,
        *,
        share: float = 0.0,
        granted: DesiredState = RELEASED,
        held: bool = False,
        leased: bool = False,
        p95_ms: float | None = None,
        threads: tuple[ThreadSample, ...] | None = None,
    ) -> None:
        for _ in range(round(seconds / 0.1)):
            self.time_s += 0.1
            self.total_us += round(share * 1e5)
            self.rate.after_tick(
                sample(self.time_s, self.total_us, p95_ms=p95_ms, threads=threads),
                granted,
                held=held,
                leased=leased,
            )


def test_a_node_without_pressure_becomes_calm_after_a_while() -> None:
    run = Run()
    run.ticks(1.5)
    assert not run.rate.calm
    assert run.rate.tick_s == 0.1
    run.ticks(1.0)
    assert run.rate.calm
    assert run.rate.tick_s == 0.5


@pytest.mark.parametrize(
    "pressed",
    [
        {"share": 0.02},
        {"held": True},
        {"leased": True},
        {"granted": DesiredState(slots=(SlotDesire(paused=True),))},
        {"p95_ms": 90.0},
    ],
    ids=lambda value: next(iter(value)),
)
def test_any_sign_of_pressure_ends_the_calm_at_once(pressed: dict[str, Any]) -> None:
    run = Run()
    run.ticks(3.0)
    assert run.rate.calm
    run.ticks(0.1, **pressed)
    assert not run.rate.calm
    run.ticks(5.0, **pressed)
    assert not run.rate.calm
    run.ticks(2.3)
    assert run.rate.calm


def test_threads_that_a_controller_watches_are_looked_at_at_the_full_rate() -> None:
    run = Run()
    run.ticks(5.0, threads=())
    assert not run.rate.calm
    run.ticks(0.1)
    assert run.rate.calm, "there was no pressure meanwhile"


def test_desires_that_change_nothing_leave_a_node_calm() -> None:
    run = Run()
    run.ticks(3.0, granted=DesiredState(slots=(SlotDesire(), SlotDesire())))
    assert run.rate.calm


def test_a_little_stall_and_a_good_latency_leave_a_node_calm() -> None:
    run = Run()
    run.ticks(3.0, share=0.004, p95_ms=60.0)
    assert run.rate.calm


def test_a_stall_is_looked_for_more_often_after_pressure() -> None:
    run = Run()
    run.ticks(0.2, share=0.5)
    assert not run.rate.quiet
    run.ticks(0.1, p95_ms=500.0)  # requests that stalled before still complete
    assert run.rate.quiet
    assert run.rate.watch_s(run.time_s) == Rates().watch_s
    assert run.rate.watch_s(run.time_s + 11.0) == Rates().calm_watch_s


def test_the_machine_stands_in_where_the_application_has_no_psi() -> None:
    rate = TickRate(Rates(), slo_ms=100.0)
    for i in range(30):
        rate.after_tick(sample(i * 0.1, None, node_us=0), RELEASED, held=False, leased=False)
    assert rate.calm
    rate.after_tick(sample(3.1, None, node_us=50_000), RELEASED, held=False, leased=False)
    assert not rate.calm


def test_a_new_rhythm_counts_from_its_start() -> None:
    pacer = Pacer(100.0, 0.5)
    pacer.advance(100.01)
    pacer.restart(100.2, 0.1)
    assert pacer.due_s == pytest.approx(100.2)
    pacer.advance(100.21)
    assert pacer.due_s == pytest.approx(100.3)
    assert pacer.missed == 0
