"""Knees, inflections, distributions and phases, on curves whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from stallward.lens.workingset.lifetime import (
    Lifetime,
    inflection,
    least,
    mean_space_time,
    primary_knee,
)
from stallward.lens.workingset.phases import find_phases
from stallward.lens.workingset.size_distribution import size_distribution
from stallward.lens.workingset.sizes import SizeSeries


def s_shaped() -> Lifetime:
    """A lifetime that rises most steeply at 50 pages and then hardly any more."""
    sizes = np.arange(1.0, 201.0)
    return Lifetime(
        np.arange(1, 201), sizes, 10.0 + 1000.0 / (1.0 + np.exp(-(sizes - 50.0) / 8.0))
    )


def test_the_knee_is_where_a_ray_from_the_origin_touches() -> None:
    function = s_shaped()
    knee = primary_knee(function)
    ratios = function.lifetime / function.mean_pages
    assert knee.lifetime / knee.mean_pages == ratios.max()
    assert 60 < knee.mean_pages < 80


def test_the_inflection_is_where_the_lifetime_rises_most_steeply() -> None:
    bend = inflection(s_shaped())
    assert bend is not None
    assert bend.mean_pages == pytest.approx(50.0, abs=4.0)


def test_a_function_that_begins_with_its_knee_has_no_inflection() -> None:
    sizes = np.arange(1.0, 21.0)
    function = Lifetime(np.arange(1, 21), sizes, np.sqrt(sizes))
    assert primary_knee(function).parameter == 1
    assert inflection(function) is None


def test_faults_that_take_long_are_cheapest_near_the_knee() -> None:
    """Denning's argument: with D large the space-time product is least where g / x is greatest."""
    function = s_shaped()
    cheap = least(function, mean_space_time(function, 1e9))
    assert cheap == primary_knee(function)
    free = least(function, mean_space_time(function, 0.0))
    assert free.parameter == 1


def test_the_space_time_product_is_that_of_the_formula() -> None:
    function = Lifetime(np.array([4]), np.array([3.0]), np.array([50.0]))
    assert mean_space_time(function, 200.0).tolist() == [3.0 + 3.0 * 200.0 / 50.0]


def series(sizes: np.typing.NDArray[np.int64], *, theta: int = 16) -> SizeSeries:
    faults = np.abs(np.diff(sizes, prepend=sizes[0]))
    return SizeSeries(theta, np.arange(1, sizes.size + 1), sizes, faults)


def test_each_size_that_the_working_set_gathers_around_is_a_mode() -> None:
    rng = np.random.default_rng(3)
    parts = [rng.normal(middle, 5.0, 3000) for middle in (100, 300, 420)]
    found = size_distribution(np.concatenate(parts).astype(np.int64))
    assert [mode.pages for mode in found.modes] == pytest.approx([100, 300, 420], abs=4.0)
    assert [mode.share for mode in found.modes] == pytest.approx([1 / 3] * 3, abs=0.01)
    assert found.shares.sum() == pytest.approx(1.0)


def test_one_size_is_one_mode() -> None:
    (mode,) = size_distribution(np.full(50, 7)).modes
    assert (mode.pages, mode.share) == (7.0, 1.0)


def test_a_normal_distribution_has_one_mode() -> None:
    rng = np.random.default_rng(4)
    assert len(size_distribution(rng.normal(500, 40, 9000).astype(np.int64)).modes) == 1


def test_phases_are_found_between_abrupt_transitions() -> None:
    sizes = np.concatenate([np.full(400, 100), np.full(400, 300), np.full(400, 80)])
    found = find_phases(series(sizes))
    assert [phase.mean_pages for phase in found.phases] == pytest.approx([100, 300, 80], rel=0.05)
    for phase, begin in zip(found.phases, (0, 400, 800), strict=True):
        assert begin <= phase.begin <= begin + 32
        assert begin + 400 <= phase.end + 1 <= begin + 432
    assert found.share > 0.9


def test_a_working_set_that_always_moves_has_no_phase() -> None:
    found = find_phases(series((200 + 150 * np.sin(np.arange(2000) / 8.0)).astype(np.int64)))
    assert found.phases == ()
    assert found.share == 0.0
    assert found.transition_faults_per_million is not None


def test_series_too_short_for_phases_have_none() -> None:
    assert find_phases(series(np.array([3]))).phases == ()
