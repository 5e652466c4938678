"""The latency baseline over minutes of ticks."""

from __future__ import annotations

from math import isnan, nan

import pytest

from stallward.agent.observation.latency_baseline import (
    AVERAGED_S,
    FORGOTTEN_S,
    LatencyBaseline,
    follow_latency,
)

TICK_S = 0.1


def after(baseline: LatencyBaseline, mean_ms: float, seconds: float) -> float:
    for _ in range(round(seconds / TICK_S)):
        follow_latency(baseline, mean_ms, TICK_S)
    return baseline.usual_ms


def started(mean_ms: float) -> LatencyBaseline:
    baseline = LatencyBaseline()
    follow_latency(baseline, mean_ms, 0.0)
    assert isnan(baseline.usual_ms)
    return baseline


def test_there_is_no_baseline_before_latencies_were_seen_for_long_enough() -> None:
    baseline = started(2.0)
    assert isnan(after(baseline, 2.0, AVERAGED_S - 0.5))
    assert isnan(after(baseline, nan, 60.0)), "seconds without requests do not count"
    assert after(baseline, 2.0, 1.0) == pytest.approx(2.0)


def test_the_baseline_is_the_lowest_latency_that_was_kept_up() -> None:
    baseline = started(5.0)
    assert after(baseline, 5.0, 10.0) == pytest.approx(5.0, rel=0.01)
    assert after(baseline, 2.0, 60.0) == pytest.approx(2.0, rel=0.01)
    assert after(baseline, 90.0, 10.0) == pytest.approx(2.0, rel=0.02)


def test_a_short_dip_does_not_lower_the_baseline() -> None:
    baseline = started(5.0)
    after(baseline, 5.0, 20.0)
    assert after(baseline, 0.1, 0.3) > 4.5


def test_a_baseline_that_is_not_reached_again_rises() -> None:
    baseline = started(2.0)
    after(baseline, 2.0, 20.0)
    assert after(baseline, nan, FORGOTTEN_S) == pytest.approx(2.0 * 2.718, rel=0.02)
    assert after(baseline, 8.0, 2.0 * FORGOTTEN_S) == pytest.approx(8.0, rel=0.01)
