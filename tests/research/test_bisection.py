"""The search for the smallest zone finds it, and does not believe a single lucky block."""

from __future__ import annotations

import pytest

from stallward.research.capacity import Bisection


def search(smallest: int, lucky: tuple[int, ...] = ()) -> tuple[int, list[int]]:
    """The size that is found where ``smallest`` serves, and those that were measured.

    The sizes in ``lucky`` serve once although they are too small.
    """
    bisection, sizes, left = Bisection(4, 20), [], list(lucky)
    while (size := bisection.next_size) is not None:
        sizes.append(size)
        once = size in left
        if once:
            left.remove(size)
        bisection.note(serves=size >= smallest or once)
    return bisection.found, sizes


@pytest.mark.parametrize("smallest", range(5, 21))
def test_the_smallest_size_that_serves_is_found(smallest: int) -> None:
    found, sizes = search(smallest)
    assert found == smallest
    assert len(sizes) <= 5
    assert smallest == 20 or sizes.count(smallest) == 2, "it is measured once more"


def test_a_size_that_served_by_chance_is_not_the_result() -> None:
    found, sizes = search(15, lucky=(12,))
    assert found == 15
    assert sizes.count(12) == 2


def test_nothing_serves_but_the_size_at_which_nobody_lacks_memory() -> None:
    found, sizes = search(99)
    assert found == 20
    assert 20 not in sizes


def test_a_search_that_is_over_stays_over() -> None:
    bisection = Bisection(1, 2)
    bisection.note(serves=True)
    bisection.note(serves=True)
    assert bisection.next_size is None
    bisection.note(serves=False)
    assert bisection.found == 2
