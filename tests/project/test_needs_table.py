"""The table of what each controller needs fits the code, and names every controller and need."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from stallward.agent.controller import Need, NodeContext, check_node
from stallward.agent.errors import ControllerError
from stallward.agent.registry import controllers, make_controller

PAGE = Path(__file__).parents[2] / "docs/reference/controllers.md"
WORD = re.compile(r"`([^`]+)`")
NOT_MADE = {"onnx", "mpc"}
"""One needs a file, the other runs beside a daemon."""


def tables() -> tuple[list[list[str]], list[list[str]]]:
    """The cells of the rows of both tables: what each arm needs, and what each need is."""
    section = PAGE.read_text().partition("## What each needs\n")[2].partition("\n## ")[0]
    arms, _, needs = section.partition("| need | what it is")
    assert needs, "the page has both tables"
    return _rows(arms), _rows(needs)


def _rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


ROWS = [
    (spec, set(map(Need, WORD.findall(every))), set(map(Need, WORD.findall(one))))
    for specs, needed in tables()[0]
    for spec in WORD.findall(specs)
    for every, _, one in [needed.partition("one of")]
]


def refusal(spec: str, lacking: Iterable[Need]) -> str:
    """Why a controller does not run on a node that lacks something; empty where it does."""
    context = NodeContext(
        zone_limit_bytes=1, slot_names=("a", "b"), lacks=dict.fromkeys(lacking, "because")
    )
    try:
        check_node(make_controller(spec), context)
    except ControllerError as error:
        return error.cause
    return ""


@pytest.mark.parametrize(
    ("spec", "needs", "choices"), [row for row in ROWS if row[0] not in NOT_MADE]
)
def test_a_controller_is_refused_without_what_the_table_names_and_only_then(
    spec: str, needs: set[Need], choices: set[Need]
) -> None:
    assert not refusal(spec, ())
    assert {need for need in Need if f"{need} (because)" in refusal(spec, {need})} == needs
    if choices:
        assert all(f"{one} (because)" in refusal(spec, choices) for one in choices)
        assert not any(refusal(spec, choices - {one}) for one in choices)
    assert not refusal(spec, set(Need) - needs - set(list(choices)[:1]))


def test_the_table_names_every_controller() -> None:
    named = {spec.partition(":")[0] for spec, _, _ in ROWS}
    assert {entry.name for entry in controllers()} == named | {"mpc"}


def test_the_page_says_what_every_need_is() -> None:
    explained = [word for names, _ in tables()[1] for word in WORD.findall(names)]
    assert sorted(explained) == sorted(Need)
