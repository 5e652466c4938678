"""The reserve that is kept for the application in danger."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stallward.agent.sample import LatencySample, PsiTotals, Sample
from stallward.agent.sharing.caution import Caution, CautionThresholds
from stallward.agent.testing import make_sample

SLO_MS = 10.0
THRESHOLDS = CautionThresholds(
    latency_high=0.9,
    stall_high_share=0.1,
    reserve_per_s=0.04,
    most_reserve_share=0.2,
    reserve_release_s=20.0,
)
STEP_S = 0.1


def caution() -> Caution:
    return Caution(THRESHOLDS, SLO_MS)


def sample(p95_ms: float | None, *, stalled_us: int | None = None) -> Sample:
    made = make_sample()
    latency = LatencySample(
        completed=0 if p95_ms is None else 50, p95_ms=p95_ms, last_completion_age_s=0.01
    )
    protected = replace(made.protected, psi=PsiTotals(memory_some_us=stalled_us))
    return replace(made, latency=latency, protected=protected)


def run(caution: Caution, seconds: float, p95_ms: float | None, *, short: bool = True) -> float:
    for _ in range(round(seconds / STEP_S)):
        caution.update(sample(p95_ms), STEP_S, short=short)
    return caution.reserve_share


def test_it_grows_in_danger_up_to_its_bound_and_falls_afterwards() -> None:
    keeper = caution()
    assert run(keeper, 5.0, 5.0) == 0.0
    assert run(keeper, 4.0, 20.0) == pytest.approx(0.16, abs=0.02)
    assert run(keeper, 10.0, 20.0) == 0.2
    assert 0.0 < run(keeper, 40.0, 2.0) < 0.05


def test_it_does_not_grow_while_memory_is_free() -> None:
    """Then memory is not what the application lacks."""
    assert run(caution(), 10.0, 50.0, short=False) == 0.0


def reserve_after(*, stalled_us_per_s: float, refaults_per_s: float) -> float:
    keeper = caution()
    for tick in range(100):
        slow = sample(20.0, stalled_us=round(tick * STEP_S * stalled_us_per_s))
        refaulted = round(tick * STEP_S * refaults_per_s)
        protected = replace(slow.protected, refault_file_pages=refaulted, refault_anon_pages=0)
        keeper.update(replace(slow, protected=protected), STEP_S, short=True)
    return keeper.reserve_share


def test_it_grows_only_for_an_application_that_lacks_memory() -> None:
    """Otherwise it waits for something else, and more memory would not help it."""
    assert reserve_after(stalled_us_per_s=0.0, refaults_per_s=0.0) == 0.0
    assert reserve_after(stalled_us_per_s=2_000.0, refaults_per_s=20.0) == 0.0
    assert reserve_after(stalled_us_per_s=20_000.0, refaults_per_s=0.0) > 0.1
    assert reserve_after(stalled_us_per_s=0.0, refaults_per_s=100.0) > 0.1


@pytest.mark.parametrize(
    ("p95_ms", "waited", "refaults", "suffers"),
    [
        (20.0, 0.05, 0, True),
        (20.0, None, 0, True),
        (20.0, 0.005, 0, False),
        (20.0, 0.05, 20, False),
        (5.0, 0.05, 0, False),
    ],
    ids=["waits", "not counted", "hardly waits", "lacks memory", "no danger"],
)
def test_the_disk_is_blamed_only_for_waiting_in_danger_with_memory_enough(
    p95_ms: float, waited: float | None, refaults: int, *, suffers: bool
) -> None:
    keeper = caution()
    for tick in range(100):
        made = sample(p95_ms, stalled_us=0)
        waited_us = None if waited is None else round(tick * STEP_S * waited * 1e6)
        protected = replace(
            made.protected,
            psi=replace(made.protected.psi, io_some_us=waited_us),
            refault_file_pages=refaults * tick,
            refault_anon_pages=0,
        )
        keeper.update(replace(made, protected=protected), STEP_S, short=True)
    assert keeper.suffers_from_disk is suffers


def test_one_slow_second_of_few_requests_hardly_counts() -> None:
    keeper = caution()
    run(keeper, 10.0, 4.0)
    assert run(keeper, 0.5, 10.0) == 0.0


def test_a_second_far_beyond_the_target_counts_at_once() -> None:
    keeper = caution()
    run(keeper, 10.0, 4.0)
    assert run(keeper, 0.1, 30.0) > 0.0


def test_the_stall_counts_where_no_latency_is_known() -> None:
    keeper = caution()
    for tick in range(50):
        stalled = replace(sample(None, stalled_us=tick * 40_000), latency=None)
        keeper.update(stalled, STEP_S, short=True)
    assert keeper.reserve_share > 0.05


def test_a_latency_is_kept_through_seconds_without_answers_and_then_forgotten() -> None:
    keeper = caution()
    run(keeper, 5.0, 20.0)
    before = keeper.danger
    silent = sample(None)
    keeper.update(silent, STEP_S, short=True)
    assert keeper.danger == pytest.approx(before, rel=0.2)
    assert silent.latency is not None
    gone = replace(silent, latency=replace(silent.latency, last_completion_age_s=11.0))
    keeper.update(gone, STEP_S, short=True)
    assert keeper.danger == 0.0


def test_an_application_that_ends_while_it_stalls_is_in_danger_no_longer() -> None:
    """Nothing is counted for a group that is gone, and what was counted last says nothing of it."""
    keeper = caution()
    for tick in range(100):
        keeper.update(sample(None, stalled_us=round(tick * STEP_S * 5e5)), STEP_S, short=True)
    assert keeper.danger > 1.0
    assert keeper.reserve_share > 0.1
    run(keeper, 100.0, None)
    assert keeper.danger < 0.1
    assert keeper.reserve_share < 0.01
