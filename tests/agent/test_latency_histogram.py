"""Percentiles from counts: within their error, and the same from parts as from the whole."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stallward.agent.errors import SchemaError
from stallward.agent.latency_histogram import (
    BUCKETS,
    ERROR_RATIO,
    LOG_WIDTH,
    LOWEST_MS,
    LatencyHistogram,
    merged,
    middle_ms,
)

histograms = st.dictionaries(st.integers(0, BUCKETS - 1), st.integers(1, 10**12), max_size=20).map(
    LatencyHistogram.of
)


@given(st.integers(1, BUCKETS - 1))
def test_the_ends_of_a_bucket_are_as_far_from_its_middle_as_is_promised(bucket: int) -> None:
    low_ms, high_ms = (LOWEST_MS * math.exp(k * LOG_WIDTH) for k in (bucket - 1, bucket))
    middle = middle_ms(bucket)
    assert middle / low_ms == pytest.approx(1.0 + ERROR_RATIO)
    assert middle / high_ms == pytest.approx(1.0 - ERROR_RATIO)


def test_the_buckets_reach_as_far_as_any_source_does() -> None:
    assert middle_ms(0) == LOWEST_MS
    assert LOWEST_MS * math.exp((BUCKETS - 2) * LOG_WIDTH) < 1e9
    assert LOWEST_MS * math.exp((BUCKETS - 1) * LOG_WIDTH) > 1e9
    assert middle_ms(1 << 32) == middle_ms(BUCKETS - 1), "a number of another version"


def test_a_percentile_is_that_of_the_nearest_rank() -> None:
    hundred = LatencyHistogram(buckets=(100, 200, 300), counts=(94, 5, 1))
    assert hundred.requests == 100
    assert hundred.percentile_ms(0.0) == middle_ms(100)
    assert hundred.percentile_ms(94.0) == middle_ms(100)
    assert hundred.percentile_ms(95.0) == middle_ms(200)
    assert hundred.percentile_ms(99.0) == middle_ms(200)
    assert hundred.percentile_ms(99.1) == middle_ms(300)
    assert hundred.percentile_ms(100.0) == middle_ms(300)
    assert LatencyHistogram().percentile_ms(99.0) is None


@settings(max_examples=50)
@given(st.lists(histograms, max_size=6), st.randoms())
def test_merging_adds_up_in_any_order_and_grouping(
    parts: list[LatencyHistogram], random: object
) -> None:
    whole = merged(parts)
    assert whole.requests == sum(part.requests for part in parts)
    assert whole.buckets == tuple(sorted(whole.buckets))
    for bucket, count in whole.as_counts().items():
        assert count == sum(part.as_counts().get(bucket, 0) for part in parts)
    random.shuffle(parts)  # type: ignore[attr-defined]
    middle = len(parts) // 2
    assert merged((merged(parts[:middle]), merged(parts[middle:]))) == whole


def test_a_histogram_has_a_count_for_each_bucket() -> None:
    with pytest.raises(SchemaError, match="counts has 1 numbers for 2 buckets"):
        LatencyHistogram(buckets=(1, 2), counts=(3,))
