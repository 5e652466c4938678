"""Functions that nodes call give the same for eight nodes at once, compiled."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
import pytest
from numba import njit
from numpy.typing import NDArray

from stallward.agent.controllers.partition import PartitionThresholds
from stallward.agent.observation.demand import followed_demand
from stallward.agent.sharing.lending import Loan, follow_loan
from stallward.env.simulation.sharing.state import Numbers, numbers_of
from stallward.env.twin.simd.backend import WIDTH
from stallward.env.twin.simd.laws import law
from stallward.env.twin.simd.layout import Arrays, Layout, Rows
from stallward.env.twin.simd.records import reader
from stallward.env.twin.simd.values import where

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


class Example(Loan):
    x: float
    y: float
    results: Annotated[Rows, 3]


LAYOUT = Layout(Example)
example_at = reader(Example, LAYOUT)
for _function in (chosen, followed_demand, follow_loan):
    law(_function)


@njit(error_model="numpy")  # type: ignore[untyped-decorator]
def _compute(state: NDArray[np.float64], numbers: Numbers) -> None:
    for at in range(0, state.shape[0] * WIDTH, WIDTH):
        node = example_at(state, at)
        x, y = node.x, node.y
        node.results[0] = chosen(x, y)
        node.results[1] = followed_demand(x, y, x, y, 10.0, 0.5)
        grows = follow_loan(node, numbers, 0.5, y, x > 0.0, x, x > 3.0, y)
        node.results[2] = where(grows, 1.0, 0.0)


@pytest.mark.slow
def test_compiled_code_gives_what_a_node_gets() -> None:
    rng = np.random.default_rng(1)
    state = LAYOUT.empty(NODES)
    example = Arrays(LAYOUT, state, np.arange(NODES))
    numbers = numbers_of(PartitionThresholds())
    example.lent_share, example.lent_ceiling = rng.uniform(0.0, 0.4, (2, NODES))
    example.since_cut_s = rng.uniform(0.0, 4.0, NODES)
    loans = [
        Loan(lent_share=share, lent_ceiling=ceiling, since_cut_s=since_s)
        for share, ceiling, since_s in zip(
            example.lent_share.tolist(),
            example.lent_ceiling.tolist(),
            example.since_cut_s.tolist(),
            strict=True,
        )
    ]
    x, y = rng.uniform(-5.0, 5.0, NODES), rng.uniform(-1.9, 5.0, NODES)
    x[rng.random(NODES) < 0.3], y[rng.random(NODES) < 0.1] = math.nan, math.nan
    example.x, example.y = x, y
    _compute(state, numbers)
    expected = [
        (
            chosen(one, other),
            followed_demand(one, other, one, other, 10.0, 0.5),
            follow_loan(loan, numbers, 0.5, other, one > 0.0, one, one > 3.0, other),
        )
        for one, other, loan in zip(x.tolist(), y.tolist(), loans, strict=True)
    ]
    np.testing.assert_allclose(
        example.results, np.array(expected, dtype=float).T, rtol=1e-12, atol=1e-13
    )
    for name in ("lent_share", "lent_ceiling", "since_cut_s"):
        values = [getattr(loan, name) for loan in loans]
        np.testing.assert_allclose(getattr(example, name), values, rtol=1e-14, err_msg=name)
    assert 0.1 < example.results[2].mean() < 0.9
    assert (example.since_cut_s == 0.0).any(), "no loan was cut"
