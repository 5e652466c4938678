"""Shipped scenarios state the target that follows from what was measured, and no other."""

from __future__ import annotations

import csv
from itertools import count
from pathlib import Path

import pytest

from stallward.env.scenario.file import find_scenarios

MEASURED = Path(__file__).parents[3] / "docs/lab/stated-targets/p95.csv"


def next_round(value: float) -> float:
    """The next of 1, 2, 5, 10, ... above a value."""
    steps = (step * 10.0**power for power in count() for step in (1, 2, 5))
    return next(step for step in steps if step > value)


@pytest.mark.parametrize(("value", "above"), [(0.3, 1), (1.0, 2), (1.9, 2), (2.3, 5), (7.2, 10)])
def test_round_numbers(value: float, above: float) -> None:
    assert next_round(value) == above


def test_every_stated_target_is_the_next_round_number_above_twice_the_p95() -> None:
    with MEASURED.open(newline="") as file:
        measured = {row["scenario"]: float(row["p95_ms"]) for row in csv.DictReader(file)}
    stated = {one.name: one.protected.slo.latency_ms for one in find_scenarios() if not one.others}
    expected = {name: next_round(2 * p95_ms) for name, p95_ms in measured.items()}
    assert {name: target for name, target in stated.items() if target is not None} == expected
