"""Contention degrees, the order that they give, and the file that holds them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stallward.agent.errors import ControllerError
from stallward.papers.controllers.contention import (
    contention_degree,
    priority_order,
    read_contention,
)

APPLICATION = {
    "name": "a", "alone_s": 2.0, "together_s": 5.0, "subtasks": 3, "memory_bytes": 80 << 20,
}  # fmt: skip


def test_the_degree_is_the_relative_growth_for_each_subtask() -> None:
    # The document gives no response times alone. Its first table has T1 at 23.39 s when all
    # thrash and 13.44 s when it does not wait for memory: these two stand for c(3) and c(1).
    assert contention_degree(alone_s=13.44, together_s=23.39, subtasks=1) == pytest.approx(
        0.7403, abs=1e-4
    )
    assert contention_degree(alone_s=13.44, together_s=23.39, subtasks=5) == pytest.approx(
        0.1481, abs=1e-4
    )
    assert contention_degree(alone_s=12.0, together_s=11.4, subtasks=2) == pytest.approx(-0.025)


@pytest.mark.parametrize(
    ("alone_s", "together_s", "subtasks"), [(0.0, 1.0, 1), (1.0, float("nan"), 1), (1.0, 1.0, 0)]
)
def test_no_degree_follows_from_numbers_that_no_run_gives(
    alone_s: float, together_s: float, subtasks: int
) -> None:
    with pytest.raises(ControllerError, match="No contention degree"):
        contention_degree(alone_s=alone_s, together_s=together_s, subtasks=subtasks)


def test_the_higher_degree_has_the_higher_priority() -> None:
    # The document's three applications, each with its growth from 13.44, 14.31 and (as if it had
    # never waited) 12.44 s: T1 suffers most, T3 not at all.
    degrees = [
        contention_degree(alone_s=13.44, together_s=23.39, subtasks=1),
        contention_degree(alone_s=14.31, together_s=22.97, subtasks=1),
        contention_degree(alone_s=12.44, together_s=12.44, subtasks=1),
    ]
    assert priority_order(degrees) == (0, 1, 2)
    assert priority_order(degrees[::-1]) == (2, 1, 0)


def test_equal_degrees_keep_their_order() -> None:
    assert priority_order([0.5, 0.7, 0.5]) == (1, 0, 2)


def test_a_file_of_degrees_is_read_by_name(tmp_path: Path) -> None:
    path = tmp_path / "contention.json"
    path.write_text(json.dumps({"schema": 1, "applications": [APPLICATION]}))
    measured = read_contention(path)
    one = measured.of("a")
    assert one is not None
    assert one.degree == pytest.approx(0.5)
    assert measured.of("b") is None


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "cannot be read"),
        ("{}", "applications is missing"),
        (json.dumps({"applications": [{**APPLICATION, "subtasks": 0}]}), "subtasks"),
        (json.dumps({"applications": [{**APPLICATION, "alone_s": 0}]}), "No contention degree"),
    ],
)
def test_a_file_with_a_mistake_is_refused(tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "contention.json"
    path.write_text(content)
    with pytest.raises(ControllerError, match=complaint):
        read_contention(path)


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ControllerError, match=r"absent\.json cannot be read: No such file"):
        read_contention(tmp_path / "absent.json")
