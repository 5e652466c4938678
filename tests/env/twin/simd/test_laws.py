"""Functions that nodes call give the same for eight nodes at once, compiled."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
import pytest
from numba import njit
from numpy.typing import NDArray

from stallward.agent.observation.demand import followed_demand
from stallward.env.twin.simd.backend import WIDTH
from stallward.env.twin.simd.laws import law
from stallward.env.twin.simd.layout import Arrays, Layout, Rows
from stallward.env.twin.simd.records import reader

NODES = 1000
LIMIT = 0.3


def chosen(x: float, y: float) -> float:
    """A function with every kind of expression that differs between Python and vectors."""
    far = abs_of(x) > 2.0 or not x <= y
    between = -1.0 < x < y < 4.0
    if_known = 0.0 if math.isnan(x) else math.exp(x) if between else math.log(2.0 + y)
    return if_known + max(min(x, y, LIMIT), -y, x) if far and not math.isnan(y) else min(x, y)


def abs_of(x: float) -> float:
    return max(x, -x)


class Example:
    x: float
    y: float
    results: Annotated[Rows, 2]


LAYOUT = Layout(Example)
example_at = reader(Example, LAYOUT)
for _function in (chosen, followed_demand):
    law(_function)


@njit(error_model="numpy")  # type: ignore[untyped-decorator]
def _compute(state: NDArray[np.float64]) -> None:
    for at in range(0, state.shape[0] * WIDTH, WIDTH):
        node = example_at(state, at)
        x, y = node.x, node.y
        node.results[0] = chosen(x, y)
        node.results[1] = followed_demand(x, y, x, y, 10.0, 0.5)


@pytest.mark.slow
def test_compiled_code_gives_what_a_node_gets() -> None:
    rng = np.random.default_rng(1)
    state = LAYOUT.empty(NODES)
    example = Arrays(LAYOUT, state, np.arange(NODES))
    x, y = rng.uniform(-5.0, 5.0, NODES), rng.uniform(-1.9, 5.0, NODES)
    x[rng.random(NODES) < 0.3], y[rng.random(NODES) < 0.1] = math.nan, math.nan
    example.x, example.y = x, y
    _compute(state)
    expected = [
        (chosen(one, other), followed_demand(one, other, one, other, 10.0, 0.5))
        for one, other in zip(x.tolist(), y.tolist(), strict=True)
    ]
    np.testing.assert_allclose(
        example.results, np.array(expected, dtype=float).T, rtol=1e-12, atol=1e-13
    )
