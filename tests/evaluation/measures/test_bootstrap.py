"""Statistics agree with closed forms, and intervals have the coverage that they promise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import stdtrit

from stallward.evaluation.measures.block_measures import (
    slo_windows,
    slo_windows_met,
)
from stallward.evaluation.measures.bootstrap import (
    block_counts,
    bootstrap_quantiles,
    bootstrap_ratio,
    moving_block_counts,
    pooled_quantiles,
)
from stallward.evaluation.measures.intervals import (
    Scale,
    half_width,
    impact_interval,
    interval,
    share_difference_interval,
    share_interval,
    student_975,
)
from stallward.evaluation.results.interval import UNKNOWN


def test_pooled_quantiles_pool_requests_not_block_quantiles() -> None:
    pools = [np.array([1.0, 2.0, 3.0]), np.array([100.0])]
    assert pooled_quantiles(pools, [0.5])[0] == 2.5  # the mean of block medians would be 51
    assert np.isnan(pooled_quantiles([np.array([])], [0.5])[0])


@pytest.mark.parametrize("size", [7, 500])
def test_bootstrap_quantiles_equal_quantiles_of_the_resampled_values(size: int) -> None:
    rng = np.random.default_rng(1)
    pools = [rng.exponential(size=size + k) for k in range(4)]
    counts = block_counts(4, 50, rng)
    quantiles = bootstrap_quantiles(pools, [0.5, 0.95, 0.99], counts)
    for row, count in zip(quantiles, counts, strict=True):
        values = np.concatenate([np.tile(p, c) for p, c in zip(pools, count, strict=True)])
        np.testing.assert_allclose(row, np.quantile(values, [0.5, 0.95, 0.99]))


def test_bootstrap_quantiles_of_many_requests_stay_exact_in_the_tail() -> None:
    rng = np.random.default_rng(2)
    pools = [rng.lognormal(size=30_000) for _ in range(5)]
    counts = block_counts(5, 20, rng)
    quantiles = bootstrap_quantiles(pools, [0.5, 0.99], counts)
    for row, count in zip(quantiles, counts, strict=True):
        values = np.concatenate([np.tile(p, c) for p, c in zip(pools, count, strict=True)])
        np.testing.assert_allclose(row, np.quantile(values, [0.5, 0.99]), rtol=2e-3)


def test_resample_counts_always_hold_as_many_blocks() -> None:
    rng = np.random.default_rng(3)
    assert (block_counts(5, 100, rng).sum(axis=1) == 5).all()
    counts = moving_block_counts(20, 6, 100, rng)
    assert (counts.sum(axis=1) == 20).all()


def test_moving_blocks_keep_neighbours_together() -> None:
    rng = np.random.default_rng(4)
    counts = moving_block_counts(40, 10, 4000, rng).astype(float)
    neighbours = np.corrcoef(counts[:, 10], counts[:, 11])[0, 1]
    distant = np.corrcoef(counts[:, 10], counts[:, 30])[0, 1]
    assert neighbours > 0.7
    assert distant < 0.1


def test_bootstrap_ratio_is_a_ratio_of_sums() -> None:
    counts = np.array([[1, 1], [2, 0], [0, 2]])
    ratios = bootstrap_ratio(np.array([1.0, 9.0]), np.array([1.0, 3.0]), counts)
    np.testing.assert_allclose(ratios, [10 / 4, 1.0, 3.0])


@pytest.mark.parametrize("degrees", [*range(1, 40), 199, 1000, 20_001])
def test_student_quantiles_are_those_of_scipy(degrees: int) -> None:
    assert student_975(degrees) == pytest.approx(stdtrit(degrees, 0.975), rel=1e-9), (
        "older ones of scipy are off by 2e-11"
    )


def test_intervals_are_wider_with_fewer_blocks() -> None:
    assert half_width(3) > half_width(6) > half_width(20) > half_width(200)
    assert half_width(200) == pytest.approx(1.96, abs=0.02)


def test_mean_interval_of_a_normal_is_students() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(10.0, 1.0, size=12)
    draws = bootstrap_ratio(x, np.ones(12), block_counts(12, 20_000, rng))
    bounds = interval(float(x.mean()), draws, blocks=12, scale=Scale.LINEAR)
    half = student_975(11) * x.std(ddof=1) / np.sqrt(12)
    assert bounds.low == pytest.approx(x.mean() - half, abs=0.03)
    assert bounds.high == pytest.approx(x.mean() + half, abs=0.03)


@pytest.mark.parametrize(("blocks", "at_least"), [(2, 0.93), (3, 0.92), (6, 0.91), (12, 0.91)])
def test_intervals_of_p95_cover(blocks: int, at_least: float) -> None:
    """Blocks vary by 20 %. About 95 % of the intervals must contain the true p95."""
    rng = np.random.default_rng(blocks)
    luck = np.exp(0.2 * rng.normal(size=20_000))
    truth = float(np.quantile(luck * rng.exponential(size=20_000), 0.95))
    hits = 0
    for _ in range(300):
        pools = [np.exp(0.2 * rng.normal()) * rng.exponential(size=300) for _ in range(blocks)]
        draws = bootstrap_quantiles(pools, [0.95], block_counts(blocks, 300, rng))[:, 0]
        value = float(pooled_quantiles(pools, [0.95])[0])
        bounds = interval(value, draws, blocks=blocks, scale=Scale.LOG)
        assert bounds.low is not None
        assert bounds.high is not None
        hits += bounds.low <= truth <= bounds.high
    assert at_least <= hits / 300 <= 0.995


def test_one_block_has_a_value_and_no_interval() -> None:
    bounds = interval(3.0, np.array([3.0, 3.0]), blocks=1, scale=Scale.LOG)
    assert (bounds.value, bounds.low, bounds.high) == (3.0, None, None)


def test_a_ratio_to_values_of_which_some_are_zero_has_no_interval() -> None:
    draws = np.array([1.0, 1.1, 0.9, 1.0] * 20)
    assert interval(1.0, draws, blocks=4, scale=Scale.LOG).high is not None
    draws[:20] = np.inf
    bounds = interval(1.0, draws, blocks=4, scale=Scale.LOG)
    assert (bounds.value, bounds.low, bounds.high) == (1.0, None, None)


def test_a_measure_without_values_is_absent_and_not_zero() -> None:
    bounds = interval(float("nan"), np.array([1.0]), blocks=5, scale=Scale.LOG)
    assert bounds == UNKNOWN


def test_shares_stay_between_zero_and_one() -> None:
    draws = np.array([0.8, 0.9, 0.95, 1.0])
    bounds = interval(0.9, draws, blocks=3, scale=Scale.SHARE)
    assert bounds.high == 1.0
    assert bounds.low is not None
    assert 0.0 <= bounds.low < 0.7


def test_impact_is_the_ratio_minus_one_and_never_below_minus_one() -> None:
    impact = impact_interval(0.5, np.array([0.1, 0.5, 2.0]), blocks=2)
    assert impact.value == -0.5
    assert impact.low is not None
    assert impact.low > -1.0


def _requests(per_s: list[int]) -> np.ndarray:
    return np.concatenate([s + np.linspace(0, 0.99, n) for s, n in enumerate(per_s)])


def test_windows_are_one_second_where_requests_are_dense() -> None:
    windows = slo_windows(_requests([20, 30, 25]), 0.0, 3.0)[0]
    assert np.bincount(windows).tolist() == [20, 30, 25]


def test_windows_grow_until_twenty_requests_and_the_rest_joins_the_last() -> None:
    windows = slo_windows(_requests([15, 15, 15, 15, 15]), 0.0, 5.0)[0]
    assert np.bincount(windows).tolist() == [30, 45]


def test_a_quiet_block_is_one_window() -> None:
    assert np.bincount(slo_windows(_requests([3, 3]), 0.0, 2.0)[0]).tolist() == [6]


@pytest.mark.parametrize(
    ("slow", "failed", "met"), [(0, 0, 2), (1, 0, 2), (2, 0, 1), (0, 2, 1), (1, 1, 1)]
)
def test_attainment_counts_slow_and_unfinished_requests(slow: int, failed: int, met: int) -> None:
    scheduled = _requests([20, 20])
    latency = np.full(40, 10.0)
    latency[:slow] = 1000.0
    ok = np.ones(40, dtype=bool)
    ok[slow : slow + failed] = False
    windows_met = slo_windows_met(scheduled, latency, ok, start_s=0.0, end_s=2.0, slo_ms=100.0)
    assert (int(windows_met.sum()), windows_met.size) == (met, 2)


def test_a_window_of_p99_holds_a_hundred_requests_and_allows_one_slow_one() -> None:
    scheduled = _requests([50] * 4)
    assert np.bincount(slo_windows(scheduled, 0.0, 4.0, quantile=0.99)[0]).tolist() == [100, 100]
    latency = np.full(200, 10.0)
    latency[[0, 100, 101]] = 1000.0
    ok = np.ones(200, dtype=bool)
    judged = {
        q: slo_windows_met(
            scheduled, latency, ok, start_s=0.0, end_s=4.0, slo_ms=100.0, quantile=q
        ).tolist()
        for q in (0.95, 0.99)
    }
    assert judged == {0.95: [True] * 4, 0.99: [True, False]}


def test_seconds_take_the_verdict_of_their_window() -> None:
    scheduled = _requests([15, 15, 30, 20])
    latency = np.full(80, 10.0)
    latency[:2] = 1000.0  # 2 of the 30 in the first window, of two seconds
    latency[60] = 1000.0  # 1 of 20 in the last one
    ok = np.ones(80, dtype=bool)
    met = slo_windows_met(
        scheduled, latency, ok, start_s=0.0, end_s=4.0, slo_ms=100.0, by_second=True
    )
    assert met.tolist() == [False, False, True, True]


def test_no_second_without_requests_is_met() -> None:
    empty = np.array([])
    met = slo_windows_met(
        empty, empty, empty.astype(bool), start_s=0.0, end_s=3.0, slo_ms=1.0, by_second=True
    )
    assert met.tolist() == [False] * 3


def test_no_requests_is_unknown_not_perfect_attainment() -> None:
    empty = np.array([])
    met = slo_windows_met(empty, empty, empty.astype(bool), start_s=0.0, end_s=2.0, slo_ms=1.0)
    assert share_interval(int(met.sum()), met.size, np.array([1.0]), units=3).value is None


def test_the_interval_of_an_event_that_was_never_seen_is_not_empty() -> None:
    always = share_interval(60, 60, np.ones(10), units=3)
    assert (always.value, always.low, always.high) == (1.0, 0.95, 1.0)
    never = share_interval(0, 60, np.zeros(10), units=3)
    assert (never.value, never.low, never.high) == (0.0, 0.0, 0.05)


def test_the_interval_of_a_share_that_is_the_same_in_every_block_is_not_empty() -> None:
    draws = 87 / 90 + 1e-16 * np.arange(10.0)
    tied = share_interval(87, 90, draws, units=3)
    assert (tied.low, tied.high) == pytest.approx((84 / 90, 1.0))


def test_the_interval_of_a_difference_that_is_the_same_in_every_block_is_not_empty() -> None:
    both = share_difference_interval((1.0, 60), (1.0, 30), np.zeros(10), units=2)
    assert (both.low, both.value, both.high) == pytest.approx((-0.05, 0.0, 0.1))
    rounded = 0.25 + 1e-16 * np.arange(10.0)
    between = share_difference_interval((0.75, 300), (0.5, 300), rounded, units=2)
    margin = np.sqrt(2.0) * 0.01
    assert (between.low, between.high) == pytest.approx((0.25 - margin, 0.25 + margin))
    apart = share_difference_interval((1.0, 60), (0.0, 60), np.ones(10), units=2)
    assert apart.high == 1.0, "a difference of shares is never more"


def test_a_difference_of_shares_that_varies_has_the_interval_of_its_draws() -> None:
    draws = np.linspace(-0.2, 0.4, 50)
    varies = share_difference_interval((0.6, 60), (0.5, 60), draws, units=4)
    assert varies == interval(0.6 - 0.5, draws, blocks=4, scale=Scale.LINEAR)
    assert share_difference_interval((1.0, 60), (1.0, 60), np.zeros(9), units=1).low is None


def test_a_difference_of_shares_that_varies_much_ends_at_100_points_as_well() -> None:
    draws = np.tile([0.4, 1.0], 50)
    wide = share_difference_interval((0.9, 60), (0.1, 60), draws, units=3)
    reach = 0.3 * half_width(3)
    assert (wide.low, wide.high) == pytest.approx((0.8 - reach, 1.0))
    other = share_difference_interval((0.1, 60), (0.9, 60), -draws, units=3)
    assert (other.low, other.high) == pytest.approx((-1.0, reach - 0.8))
