"""Contrasts of arms: the luck that two arms share cancels, and what they do not share stays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stallward.evaluation.measures.bootstrap import Array
from stallward.evaluation.measures.estimates import Estimate, Estimates, contrasts
from stallward.evaluation.results.comparison import Contrast

UNITS = 50
WINDOWS = 3000
LUCK = np.random.default_rng(1).normal(0.0, 0.1, 2000)


def arm(scale: float, luck: Array) -> Estimates:
    """Make an arm whose latencies are ``scale`` times those of another with the same luck."""
    ms = Estimate(value=scale, draws=scale * np.exp(luck))
    met = Estimate(value=1.0 - 0.1 * scale, draws=1.0 - 0.1 * scale + luck, trials=WINDOWS)
    return Estimates(
        p50_ms=ms, p95_ms=ms, p99_ms=ms, mean_ms=ms, background_work=ms, slo_attainment=met
    )


def contrast(other_luck: Array, *, jointly: bool) -> Contrast:
    arms = {"slow": arm(3.0, LUCK), "fast": arm(2.0, other_luck)}
    (only,) = contrasts(arms, UNITS, UNITS, jointly=jointly)
    assert (only.arm, only.against) == ("slow", "fast")
    return only


def test_the_luck_of_the_same_rounds_cancels() -> None:
    paired = contrast(LUCK, jointly=True)
    for ratio in (paired.mean_ratio, paired.p99_ratio, paired.background_work_ratio):
        assert (ratio.low, ratio.value, ratio.high) == pytest.approx((1.5, 1.5, 1.5))
    difference = paired.slo_attainment_difference
    ends = (difference.low, difference.value, difference.high)
    assert ends == pytest.approx((-0.1,) * 3, abs=5.0 / WINDOWS)


def test_a_target_that_both_arms_always_met_is_not_certainly_met_as_often() -> None:
    met = Estimate(value=1.0, draws=np.ones(9), trials=60)
    always = replace(arm(1.0, LUCK), slo_attainment=met)
    arms = {"one": always, "other": always}
    (only,) = contrasts(arms, 2, 2, jointly=True)
    difference = only.slo_attainment_difference
    assert (difference.low, difference.value, difference.high) == pytest.approx((-0.05, 0.0, 0.05))


def test_independent_resamples_have_the_spread_of_both_arms() -> None:
    """Equal draws in equal rows are chance there, and must not cancel."""
    alone = contrast(np.zeros_like(LUCK), jointly=True).p99_ratio
    both = contrast(LUCK, jointly=False).p99_ratio
    assert both.low is not None
    assert both.high is not None
    assert alone.low is not None
    assert alone.high is not None
    widths = np.log(both.high / both.low), np.log(alone.high / alone.low)
    assert widths[0] == pytest.approx(np.sqrt(2.0) * widths[1], rel=0.1)


def test_each_pair_of_arms_has_one_contrast() -> None:
    arms = {name: arm(scale, LUCK) for name, scale in (("a", 1.0), ("b", 2.0), ("c", 4.0))}
    pairs = {(c.arm, c.against): c.mean_ratio.value for c in contrasts(arms, 5, 5, jointly=True)}
    assert pairs == {("a", "b"): 0.5, ("a", "c"): 0.25, ("b", "c"): 0.5}
