"""What groups are called by in the names of their levers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallward.agent.group_names import meant_by, short_names

CALLED = [
    (("edge/app", "edge/hog"), ("app", "hog")),
    (("a/db", "b/db"), ("a/db", "b/db")),
    (("x/a/db", "y/b/db", "web"), ("a/db", "b/db", "web")),
    (("x/a/db", "y/a/db"), ("x/a/db", "y/a/db")),
    (("db", "x/db"), ("db", "x/db")),
    (("edge", "edge/edge"), ("edge", "edge/edge")),
    (("", "app"), ("", "app")),
]


@pytest.mark.parametrize(("names", "called"), CALLED)
def test_a_group_is_called_by_no_more_than_tells_it_apart(
    names: tuple[str, ...], called: tuple[str, ...]
) -> None:
    assert short_names(names) == called


PARTS = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map("/".join)


@given(st.lists(PARTS, min_size=1, max_size=6, unique=True))
def test_what_a_group_is_called_by_means_this_group_alone(names: list[str]) -> None:
    for name, short in zip(names, short_names(names), strict=True):
        assert meant_by(short, names) == {name}


def test_the_last_part_means_every_group_that_ends_so() -> None:
    """Daemons of earlier versions called levers by it."""
    assert meant_by("db", ("a/db", "b/db", "b/db2")) == {"a/db", "b/db"}
