"""What latency counts as usual, over minutes of ticks."""

from __future__ import annotations

from math import isnan, nan

import pytest

from stallward.agent.observation.latency_baseline import AVERAGED_S, FORGOTTEN_S, LatencyBaseline

TICK_S = 0.1


def after(usual: LatencyBaseline, mean_ms: float, seconds: float) -> float:
    found = nan
    for _ in range(round(seconds / TICK_S)):
        found = usual.follow(mean_ms, TICK_S)
    return found


def begun(mean_ms: float) -> LatencyBaseline:
    usual = LatencyBaseline()
    assert isnan(usual.follow(mean_ms, None))
    return usual


def test_nothing_is_usual_before_latencies_were_seen_for_long_enough() -> None:
    usual = begun(2.0)
    assert isnan(after(usual, 2.0, AVERAGED_S - 0.5))
    assert isnan(after(usual, nan, 60.0)), "seconds without requests count for nothing"
    assert after(usual, 2.0, 1.0) == pytest.approx(2.0)


def test_the_least_that_was_kept_up_is_usual() -> None:
    usual = begun(5.0)
    assert after(usual, 5.0, 10.0) == pytest.approx(5.0, rel=0.01)
    assert after(usual, 2.0, 60.0) == pytest.approx(2.0, rel=0.01)
    assert after(usual, 90.0, 10.0) == pytest.approx(2.0, rel=0.02)


def test_a_lucky_moment_is_not_usual() -> None:
    usual = begun(5.0)
    after(usual, 5.0, 20.0)
    assert after(usual, 0.1, 0.3) > 4.5


def test_what_is_not_reached_again_is_forgotten() -> None:
    usual = begun(2.0)
    after(usual, 2.0, 20.0)
    assert after(usual, nan, FORGOTTEN_S) == pytest.approx(2.0 * 2.718, rel=0.02)
    assert after(usual, 8.0, 2.0 * FORGOTTEN_S) == pytest.approx(8.0, rel=0.01)


def test_it_starts_again_where_there_is_no_tick_before() -> None:
    usual = begun(2.0)
    after(usual, 2.0, 20.0)
    assert isnan(usual.follow(6.0, None))
    assert after(usual, 6.0, 10.0) == pytest.approx(6.0)
