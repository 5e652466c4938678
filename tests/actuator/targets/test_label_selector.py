"""Label selectors mean what they mean to the API."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallward.actuator.targets.selection import Operator, parse_selector
from stallward.agent.errors import SchemaError

LABELS = {"app": "batch", "tier": "b", "example.com/team": "ml", "size": "12", "empty": ""}


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("", True),
        ("app=batch", True),
        ("app==batch", True),
        (" app = batch , tier=b ", True),
        ("app=web", False),
        ("app!=web", True),
        ("app!=batch", False),
        ("absent!=x", True),  # the API selects what lacks the label, too
        ("absent=x", False),
        ("app", True),
        ("absent", False),
        ("!absent", True),
        ("! absent,!app", False),
        ("tier in (a,b)", True),
        ("tier in (a, c)", False),
        ("tier in(b)", True),
        ("absent in (a)", False),
        ("tier notin (a,c)", True),
        ("tier notin (b)", False),
        ("absent notin (a)", True),
        ("example.com/team=ml", True),
        ("size>11", True),
        ("size>12", False),
        ("size<13", True),
        ("tier>1", False),
        ("absent<1", False),
        ("empty=", True),
        ("app=", False),
        ("tier in (,b)", True),
        ("empty in ()", True),
        ("app=batch,tier in (b),!absent,example.com/team notin (web)", True),
        ("in in (in)", False),
    ],
)
def test_a_selector_selects(text: str, selected: bool) -> None:
    assert parse_selector(text).matches(LABELS) is selected


@pytest.mark.parametrize(
    "text",
    [
        ",",
        "app,",
        ",app",
        "app=batch tier=b",
        "=x",
        "app in",
        "app in (a",
        "app in a",
        "app in (a b)",
        "!",
        "!app=x",
        "app=a=b",
        "app>x",
        "-app=x",
        "a//b=x",
        "UPPER.com/Team!x",
        f"app={'x' * 64}",
        f"{'a' * 254}/app=x",
        "app=b@d",
        "app ~ x",
        "app=é",
    ],
)
def test_what_the_api_would_refuse_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(SchemaError, match="selector is "):
        parse_selector(text)


KEYS = st.sampled_from(["app", "tier", "example.com/team", "x"])
VALUES = st.sampled_from(["a", "b", "long-er_value.1", ""])


@given(
    st.lists(st.tuples(KEYS, st.sampled_from(["in", "notin"]), st.sets(VALUES, min_size=1))),
    st.dictionaries(KEYS, VALUES),
)
def test_all_requirements_must_hold(
    requirements: list[tuple[str, str, set[str]]], labels: dict[str, str]
) -> None:
    text = ",".join(
        f"{key} {word} ({','.join(sorted(values))})" for key, word, values in requirements
    )
    expected = all(
        (labels.get(key) in values) == (word == "in") for key, word, values in requirements
    )
    selector = parse_selector(text)
    assert selector.matches(labels) is expected
    assert all(r.operator in {Operator.IN, Operator.NOT_IN} for r in selector.requirements)


@given(st.text(max_size=40))
def test_no_text_breaks_the_parser(text: str) -> None:
    try:
        selector = parse_selector(text)
    except SchemaError:
        return
    selector.matches(LABELS)
