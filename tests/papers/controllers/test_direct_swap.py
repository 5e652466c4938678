"""Required swap, and who has it: the document's two settings and its rule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallward.papers.controllers.direct_swap import assign_swap, average_swap, required_swap

SIZES = st.lists(st.floats(0.0, 1e9), min_size=1, max_size=6)


def test_the_case_study_needs_one_gigabyte_of_swap() -> None:
    # Three applications that need 9 GB on a machine of 8 GB; T3 has the lowest priority.
    memory = [3.0, 3.0, 3.0]
    required = required_swap(memory, 8.0)
    assert required == 1.0
    assert assign_swap(memory, (0, 1, 2), required) == pytest.approx((0.0, 0.0, 1 / 3))


@pytest.mark.parametrize(("each", "system"), [(6.0, 18.0), (80.0, 240.0)])
def test_of_four_applications_the_lowest_lives_in_swap(each: float, system: float) -> None:
    # 24 GB needed of 18 GB, and 320 MB of 240 MB.
    memory = [each] * 4
    required = required_swap(memory, system)
    assert required == each
    assert assign_swap(memory, (2, 0, 3, 1), required) == (0.0, 1.0, 0.0, 0.0)


def test_what_the_lowest_is_too_small_for_goes_to_the_next() -> None:
    assert assign_swap([10.0, 4.0, 4.0], (0, 1, 2), 6.0) == (0.0, 0.5, 1.0)


def test_nothing_is_in_swap_where_everything_fits() -> None:
    assert required_swap([3.0, 4.0], 8.0) == 0.0
    assert assign_swap([3.0, 4.0], (0, 1), 0.0) == (0.0, 0.0)


def test_an_application_that_needs_nothing_gets_nothing() -> None:
    assert assign_swap([4.0, 0.0], (0, 1), 1.0) == (0.25, 0.0)
    assert average_swap([4.0, 0.0], 1.0) == (0.25, 0.0)
    assert average_swap([], 1.0) == ()


def test_an_application_outside_of_the_order_keeps_its_memory() -> None:
    assert assign_swap([10.0, 4.0], (1,), 6.0) == (0.0, 1.0)


def test_on_average_all_have_the_same_amount_in_swap() -> None:
    assert average_swap([80.0, 80.0, 80.0, 80.0], 80.0) == (0.25, 0.25, 0.25, 0.25)
    # What the small one has no room for is spread over the others.
    assert average_swap([10.0, 50.0, 100.0], 90.0) == (1.0, 0.8, 0.4)


@given(SIZES, st.floats(0.0, 1e9))
def test_all_that_is_required_is_assigned_as_far_as_there_is_memory(
    memory: list[float], required: float
) -> None:
    for ratios in (
        assign_swap(memory, range(len(memory)), required),
        average_swap(memory, required),
    ):
        assert all(0.0 <= ratio <= 1.0 + 1e-9 for ratio in ratios)
        assigned = sum(ratio * size for ratio, size in zip(ratios, memory, strict=True))
        assert assigned == pytest.approx(min(required, sum(memory)), rel=1e-6, abs=1e-3)
