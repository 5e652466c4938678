"""What only long traces reach: new stamps, long intervals, large regions, sampled pages."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from stallward.lens.errors import TraceError
from stallward.lens.workingset.lru.stack_distances import LruCurve, StackDistances
from stallward.lens.workingset.pages import Touches
from stallward.lens.workingset.reference_map import AddressRange, ReferenceMapper
from stallward.lens.workingset.working_set import EXACT_BELOW, IntervalCounts


def numbered(pages: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.uint64]]:
    """Pages by the order of their first touches, and the numbers of all."""
    numbers, first, inverse = np.unique(pages, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(order.size, dtype=np.int32)
    rank[order] = np.arange(order.size)
    return rank[inverse], numbers[order].astype(np.uint64)


def lru_curve(
    pages: NDArray[np.int64],
    *,
    rate: float = 1.0,
    most_pages: int | None = None,
    at_once: int = 1000,
) -> LruCurve:
    indices, numbers = numbered(pages)
    distances = StackDistances(rate=rate, most_pages=most_pages)
    known = 0
    for begin in range(0, pages.size, at_once):
        some = indices[begin : begin + at_once]
        known = max(known, int(some.max()) + 1)
        times = np.arange(begin + 1, begin + 1 + some.size)
        distances.feed(Touches(some, times, np.zeros(some.size, dtype=np.uint8)), numbers[:known])
    return distances.curve(pages.size)


def faults_by_stack(pages: NDArray[np.int64]) -> list[int]:
    """Faults for every size of memory, from a list of pages in the order of their last use."""
    stack: list[int] = []
    distances = []
    for page in pages.tolist():
        if page in stack:
            distances.append(stack.index(page) + 1)
            stack.remove(page)
        stack.insert(0, page)
    cold = len(stack)
    return [cold + sum(d > size for d in distances) for size in range(1, cold + 1)]


def zipf_pages(count: int, touches: int) -> NDArray[np.int64]:
    rng = np.random.default_rng(1)
    weights = 1.0 / np.arange(1, count + 1)
    shuffled = rng.permutation(count)
    return np.asarray(shuffled[rng.choice(count, touches, p=weights / weights.sum())])


@pytest.mark.parametrize("kind", ["random", "loop", "growing"])
def test_distances_stay_right_when_stamps_are_given_again(kind: str) -> None:
    rng = np.random.default_rng(2)
    pages = {
        "random": rng.integers(0, 90, 9000),
        "loop": np.arange(9000) % 50,
        "growing": rng.integers(0, 10 + np.arange(9000) // 20),
    }[kind]
    assert lru_curve(pages).faults.tolist() == faults_by_stack(pages)


def test_a_loop_over_one_page_more_than_memory_always_faults() -> None:
    """The textbook's worst case for LRU."""
    curve = lru_curve(np.arange(5000) % 40)
    assert curve.faults[38] == 5000
    assert curve.faults[39] == 40


def test_the_textbook_example_of_stack_distances() -> None:
    """Belady's string: under LRU 10 faults in three frames and 8 in four."""
    curve = lru_curve(np.array([1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5]))
    assert curve.faults.tolist() == [12, 12, 10, 8, 5]


def test_a_sample_of_pages_is_as_far_off_as_it_says() -> None:
    pages = zipf_pages(20_000, 400_000)
    exact, sampled = lru_curve(pages, at_once=50_000), lru_curve(pages, rate=0.1, at_once=50_000)
    assert sampled.pages == exact.pages
    assert sampled.faults[-1] == exact.faults[-1]
    off = np.abs(sampled.faults - exact.faults[sampled.sizes - 1])[:-1]
    errors = sampled.standard_errors[:-1]
    beyond = sampled.sizes[:-1] > 200
    assert np.mean(off[beyond] <= 3.0 * errors[beyond]) > 0.9
    assert np.max(errors[beyond]) < 0.07 * pages.size
    assert sampled.mean_pages == pytest.approx(exact.mean_pages[sampled.sizes - 1])


@pytest.mark.parametrize("at_once", [997, 50_000])
def test_a_sample_of_fixed_size_is_as_far_off_as_it_says(at_once: int) -> None:
    pages = zipf_pages(20_000, 400_000)
    exact = lru_curve(pages, at_once=50_000)
    sampled = lru_curve(pages, most_pages=2000, at_once=at_once)
    assert 1000 <= sampled.rate * sampled.pages <= 2200
    assert sampled.faults[-1] == exact.faults[-1] == sampled.pages
    off = np.abs(sampled.faults - exact.faults[sampled.sizes - 1])[:-1]
    errors = sampled.standard_errors[:-1]
    beyond = sampled.sizes[:-1] > 200
    assert np.mean(off[beyond] <= 3.0 * errors[beyond]) > 0.9
    assert np.max(errors[beyond]) < 0.09 * pages.size


def test_as_long_as_all_pages_fit_a_sample_of_fixed_size_is_exact() -> None:
    pages = zipf_pages(400, 20_000)
    exact, sampled = lru_curve(pages), lru_curve(pages, most_pages=500)
    assert sampled.rate == 1.0
    assert sampled.faults.tolist() == exact.faults.tolist()
    assert not sampled.standard_errors.any()


@pytest.mark.parametrize("kind", ["loop", "random"])
def test_pages_that_stay_in_a_sample_of_fixed_size_are_counted_as_if_alone(kind: str) -> None:
    """A program that changes to other pages: the sample is halved in the middle of its run."""
    rng = np.random.default_rng(4)
    first, second = rng.integers(0, 5000, 60_000), rng.integers(5000, 25_000, 400_000)
    if kind == "loop":
        second = 5000 + np.arange(400_000) % 20_000
    pages = np.concatenate([first, second])
    exact = lru_curve(pages, at_once=10_000)
    sampled = lru_curve(pages, most_pages=1024, at_once=10_000)
    for size in (1000, 4000, 15_000, 22_000):
        place = int(np.searchsorted(sampled.sizes, size))
        off = abs(sampled.faults[place] - exact.faults[sampled.sizes[place] - 1])
        assert off <= 4.0 * sampled.standard_errors[place] + 0.01 * pages.size


def test_a_handful_of_pages_is_no_sample() -> None:
    with pytest.raises(TraceError, match="at least 256"):
        StackDistances(most_pages=100)


def test_a_rate_that_leaves_a_handful_of_pages_is_no_sample_either() -> None:
    pages = zipf_pages(1000, 20_000)
    assert lru_curve(pages, rate=0.5).rate == 0.5
    with pytest.raises(TraceError, match=r"\d+ of \d+ pages are no sample.*at least 256"):
        lru_curve(pages, rate=0.05)


@pytest.mark.parametrize("rate", [0.0, 1e-9, 1.5, np.nan])
def test_no_page_can_be_sampled_at_a_rate_of_nothing(rate: float) -> None:
    with pytest.raises(TraceError, match="must be in 6e-08 to 1"):
        StackDistances(rate=rate)


def test_long_intervals_are_counted_within_a_thousandth() -> None:
    """Two pages: one touched all the time, one after ever longer intervals."""
    intervals = [
        EXACT_BELOW - 1,
        EXACT_BELOW + 9999,
        3 * EXACT_BELOW + 12345,
        100 * EXACT_BELOW + 7,
    ]
    times = np.concatenate([[1], 1 + np.cumsum(intervals)])
    counts = IntervalCounts()
    counts.feed(Touches(np.zeros(5, dtype=np.int32), times, np.zeros(5, dtype=np.uint8)), pages=1)
    end = int(times[-1])
    curve = counts.curve(end)
    for i, interval in enumerate(intervals):
        assert curve.at(interval - (interval >> 9) - 1)[0] == 5 - i
        assert curve.at(interval + (interval >> 9) + 1)[0] == 4 - i
    assert (curve.faults[-1], curve.mean_pages[-1]) == (1, 1.0)
    theta = 2 * EXACT_BELOW
    resident = sum(min(x, theta) for x in [*intervals, 1])
    assert curve.at(theta)[1] == pytest.approx(resident / end, rel=1e-4)


def mapped(pages: NDArray[np.int64], times: NDArray[np.int64], mapper: ReferenceMapper) -> None:
    indices, numbers = numbered(pages)
    mapper.feed(Touches(indices, times, np.ones(pages.size, dtype=np.uint8)), numbers)


def test_regions_of_a_map_become_larger_where_there_are_too_many() -> None:
    mapper = ReferenceMapper(4096, rows=16, columns=8)
    mapped(np.arange(100, 164), np.arange(1, 65), mapper)
    drawn = mapper.map(64)
    assert (drawn.region_bytes, drawn.step, drawn.cells.shape) == (16384, 8, (16, 8))
    assert drawn.addresses.tolist() == [4096 * page for page in range(100, 164, 4)]
    assert [np.flatnonzero(row).tolist() for row in drawn.of_class(1)] == [
        [row // 2] for row in range(16)
    ]
    assert not drawn.of_class(0).any()


def test_a_zoomed_map_shows_its_range_only() -> None:
    mapper = ReferenceMapper(4096, AddressRange(4096 * 7, 4096 * 9 + 1))
    mapped(np.array([6, 7, 8, 9, 10]), np.arange(1, 6), mapper)
    drawn = mapper.map(5)
    assert (drawn.addresses // 4096).tolist() == [7, 8, 9]
    assert np.argwhere(drawn.cells).tolist() == [[0, 1], [1, 2], [2, 3]]


def test_a_range_without_addresses_is_refused() -> None:
    with pytest.raises(TraceError, match="no range"):
        AddressRange(5, 5)
