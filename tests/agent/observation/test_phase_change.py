"""Phases of locality: found where there are any, and nowhere else."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from stallward.agent.desired import MIB
from stallward.agent.observation.phase_change import (
    LEAST_BYTES,
    PhaseChanges,
    PhaseDetector,
    PhaseThresholds,
)
from stallward.agent.sample import GroupSample
from stallward.env.recording.recording import load_recording

TICK_S = 0.1
RECORDINGS = Path(__file__).parents[3] / "recordings"
SWELL, BURST, STEADY = range(3)
"""The slots of detector-phases: two that change, and one that never does."""


def follow(sizes_mib: NDArray[np.float64]) -> tuple[PhaseDetector, list[float]]:
    """Follow a size; returns the detector and the times at which phases ended."""
    detector = PhaseDetector()
    ends = [
        round(i * TICK_S, 6)
        for i, size in enumerate(sizes_mib)
        if detector.update(size * MIB, TICK_S)
    ]
    return detector, ends


def noisy(mib: float, seconds: float, seed: int, share: float = 0.03) -> NDArray[np.float64]:
    count = round(seconds / TICK_S)
    return mib * np.exp(np.random.default_rng(seed).normal(0.0, share, count))


@pytest.mark.parametrize("seed", range(5))
def test_noise_is_no_change(seed: int) -> None:
    detector, ends = follow(noisy(100, 2000, seed, share=0.015))
    assert ends == []
    assert detector.phase_bytes is not None
    assert detector.phase_bytes / MIB == pytest.approx(100, rel=0.03)


@pytest.mark.parametrize(
    ("factor", "within_s"), [(2.0, 0.6), (0.5, 0.6), (1.2, 3.0), (0.8, 3.0), (10.0, 0.3)]
)
def test_a_step_ends_a_phase_the_sooner_the_larger_it_is(factor: float, within_s: float) -> None:
    sizes = np.concatenate([noisy(100, 60, 1, 0.01), noisy(100 * factor, 60, 2, 0.01)])
    detector, ends = follow(sizes)
    assert len(ends) == 1
    assert 60.0 <= ends[0] <= 60.0 + within_s
    assert detector.changes == 1
    assert detector.since_change_s == pytest.approx(119.9 - ends[0])
    assert detector.phase_bytes is not None
    assert detector.phase_bytes / MIB == pytest.approx(100 * factor, rel=0.03)


def test_the_delay_is_what_the_documentation_says() -> None:
    numbers = PhaseThresholds()
    _, ends = follow(np.concatenate([np.full(100, 100.0), np.full(100, 150.0)]))
    said_s = numbers.threshold_s / (math.log(1.5) - numbers.allowance)
    assert ends[0] - 10.0 == pytest.approx(said_s, abs=TICK_S)


def test_a_gradual_transition_is_one_change_and_ends_when_the_size_has_settled() -> None:
    ramp = np.linspace(80, 280, 40)
    sizes = np.concatenate([np.full(100, 80.0), ramp, np.full(100, 280.0)])
    detector = PhaseDetector()
    in_transition = [
        detector.update(size * MIB, TICK_S) or detector.phase_bytes is None for size in sizes
    ]
    assert detector.changes == 1
    assert in_transition[125], "half-way"
    assert not in_transition[160], "2 s after the end"


def test_a_slow_drift_and_a_short_peak_are_no_changes() -> None:
    drift = 100 * np.exp(np.linspace(0.0, 0.7, 6000))  # it doubles in ten minutes
    assert follow(drift)[1] == []
    peak = np.full(200, 100.0)
    peak[100] = 250.0
    assert follow(peak)[1] == []


def test_a_group_that_empties_has_ended_its_phase_once() -> None:
    sizes = np.concatenate([np.full(50, 200.0), np.zeros(50), np.full(50, 200.0), np.zeros(20)])
    _, ends = follow(sizes)
    assert ends == [5.0, 15.0]
    assert follow(np.full(100, LEAST_BYTES / MIB * 0.9))[1] == []


def test_time_that_stands_still_or_leaps_is_bounded() -> None:
    detector = PhaseDetector()
    for _ in range(50):
        detector.update(100 * MIB, TICK_S)
    assert not detector.update(130 * MIB, 0.0)
    assert not detector.update(130 * MIB, -5.0)
    assert not detector.update(104 * MIB, 3600.0), "an hour at 4 % is no evidence"
    assert not detector.update(math.nan, 0.0) or detector.changes == 1


def test_a_group_that_cannot_be_read_keeps_its_phase() -> None:
    phases = PhaseChanges()
    for _ in range(30):
        phases.update((GroupSample(name="a", memory_usage_bytes=90 * MIB),), TICK_S)
    assert phases.update((GroupSample(name="a"),), TICK_S) == ()
    assert phases.detectors[0].phase_bytes is not None
    assert phases.update((), TICK_S) == ()


# ------------------------------------------------------------------ recorded phases


def recorded(name: str, slot: int) -> tuple[list[float], list[float]]:
    """Follow a slot of a recording.

    Returns:
        When its phases ended, in s; and the last mean of each phase, in MiB.
    """
    recording = load_recording(RECORDINGS / f"detector-phases-{name}-s1")
    times_s = recording.tick("time_s")
    usage = np.nan_to_num(recording.tick(f"slot{slot}_memory_usage_bytes"))
    swap = np.nan_to_num(recording.tick(f"slot{slot}_swap_bytes"))
    phases = PhaseChanges()
    ends: list[float] = []
    means: list[float] = []
    before: float | None = None
    for i, time_s in enumerate(times_s):
        group = GroupSample(
            name="group", memory_usage_bytes=int(usage[i]), swap_bytes=int(swap[i])
        )
        passed_s = time_s - times_s[i - 1] if i else 0.0
        if phases.update((group,), passed_s):
            ends.append(time_s - times_s[0])
        now = phases.detectors[0].phase_bytes
        if now is not None:
            means = [*means[:-1], now / MIB] if before is not None else [*means, now / MIB]
        before = now
    return ends, means


@pytest.mark.parametrize("name", ["ample", "background", "none"])
def test_the_phases_of_a_recorded_program_are_found(name: str) -> None:
    """It holds 80, 160, 280 and 160 MiB in turn (detector-phases.toml), and 1 MiB of its own.

    On the way up it stays at 160 MiB for 2 s, for one of which it still grows: no phase.
    """
    ends, means = recorded(name, SWELL)
    expected = [81, 281, 161] * 5
    assert len(means) >= 8
    assert means == pytest.approx(expected[: len(means)], rel=0.08)
    assert len(ends) in (len(means), len(means) - 1)


@pytest.mark.parametrize("name", ["ample", "background", "none", "static-limit-0.35"])
def test_a_recorded_program_that_never_changes_has_one_phase(name: str) -> None:
    ends, means = recorded(name, STEADY)
    assert ends == []
    assert means == pytest.approx([91], rel=0.03)


@pytest.mark.parametrize("name", ["ample", "none"])
def test_the_end_of_a_recorded_burst_is_noticed_at_once(name: str) -> None:
    """It runs from second 3 to 11 and from 15 to 19 of every 24 (detector-phases.toml)."""
    ends, means = recorded(name, BURST)
    expected = [11, 19, 35, 43, 59]
    assert ends == pytest.approx(expected[: len(ends)], abs=0.5)
    assert len(ends) >= 3
    assert means == pytest.approx([241] * len(means), rel=0.02)
