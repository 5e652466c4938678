"""The number of rounds that a comparison needs is right where it can be simulated."""

from __future__ import annotations

import numpy as np
import pytest

from stallward.evaluation.measures.bootstrap import block_counts
from stallward.evaluation.measures.intervals import (
    POWER,
    Scale,
    interval,
    power_of,
    rounds_for,
    spread_per_round,
)
from stallward.evaluation.results.interval import UNKNOWN, Interval


def test_the_power_is_how_often_an_interval_leaves_out_one() -> None:
    rounds, effect, spread = 6, 0.1, 0.08
    rng = np.random.default_rng(4)
    ratios = np.log1p(effect) + spread * rng.standard_normal((400, rounds))
    counts = block_counts(rounds, 500, rng)
    seen = 0
    for row in ratios:
        draws = np.exp(counts @ row / rounds)
        found = interval(float(np.exp(row.mean())), draws, blocks=rounds, scale=Scale.LOG)
        assert found.low is not None
        assert found.high is not None
        seen += not found.low <= 1.0 <= found.high
    assert seen / 400 == pytest.approx(power_of(rounds, effect, spread), abs=0.08)


@pytest.mark.parametrize("spread", [0.02, 0.1, 0.3])
def test_one_round_less_is_too_few(spread: float) -> None:
    rounds = rounds_for(0.1, spread)
    assert rounds is not None
    assert power_of(rounds, 0.1, spread) >= POWER
    assert rounds == 2 or power_of(rounds - 1, 0.1, spread) < POWER


def test_more_spread_needs_more_rounds_and_much_too_much_needs_too_many() -> None:
    needed = [rounds_for(0.1, spread) for spread in (0.0, 0.05, 0.2, 0.5)]
    assert needed == sorted(n for n in needed if n is not None)
    assert needed[0] == 2
    assert rounds_for(0.1, 5.0) is None


def test_the_spread_of_the_rounds_is_found_again_in_the_interval() -> None:
    rounds, spread = 8, 0.15
    rng = np.random.default_rng(3)
    logs = spread * rng.standard_normal(rounds)
    draws = np.exp(block_counts(rounds, 4000, rng) @ logs / rounds)
    found = interval(float(np.exp(logs.mean())), draws, blocks=rounds, scale=Scale.LOG)
    assert spread_per_round(found, rounds) == pytest.approx(logs.std(ddof=1), rel=0.05)


@pytest.mark.parametrize(
    ("itself", "rounds"),
    [
        (UNKNOWN, 4),
        (Interval(value=1.0, low=0.0, high=2.0), 4),
        (Interval(value=1.0, low=0.9, high=1.1), 1),
    ],
)
def test_without_an_interval_nothing_is_said(itself: Interval, rounds: int) -> None:
    assert spread_per_round(itself, rounds) is None
