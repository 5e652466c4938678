"""Requests wait for a CPU that background work takes; a small CPU weight shortens that."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from stallward.agent.desired import DesiredState, SlotDesire
from stallward.env.testing import small_twin
from stallward.env.twin.batch import TwinBatch
from stallward.env.twin.inputs.exogenous import Exogenous, SlotProgram
from stallward.env.twin.inputs.parameters import (
    RANGES,
    TwinParameters,
    as_mapping,
    from_mapping,
    to_array,
)
from stallward.env.twin.node import TwinNode
from stallward.env.twin.physics.latency import pooled_quantiles

LONGEST_S = 8e-3
NO_HICCUPS = TwinParameters(cpu_slowdown=0.0, hiccup_factor=1.0)
WAITS = replace(NO_HICCUPS, cpu_wait_share=0.1, cpu_wait_s=LONGEST_S, cpu_light_share=0.05)
BUSY = SlotProgram(name="busy", units_per_s=10.0, anon_pages=(2_000.0,), cores=2.0)


def scenario() -> Exogenous:
    """A node with ample memory whose two CPUs the background keeps busy."""
    small = replace(small_twin(BUSY).scenario, zone_bytes=4 << 30, cores=2.0)
    protected = replace(small.protected, request_rate_per_s=200.0, service_s=1e-3)
    return replace(small, protected=protected)


def latencies_ms(
    parameters: TwinParameters, weight: int = 100, *, paused: bool = False
) -> NDArray[np.float64]:
    """The median and p99 of a minute."""
    twin = TwinBatch([scenario()], 1, seed=5)
    rows, index = np.ones(1, dtype=bool), np.zeros(1, dtype=np.int64)
    twin.reset(rows, index, to_array([parameters]))
    pause = np.full((4, 1), paused)
    for tick in range(700):
        if tick == 100:
            before = twin.pooled
        twin.set_levers(pause, np.full((4, 1), np.inf), cpu_weight=weight)
        twin.advance()
    return pooled_quantiles(twin.pooled - before, (0.5, 0.99))[:, 0]


def test_a_part_of_the_requests_waits_for_a_busy_cpu() -> None:
    calm, busy = latencies_ms(WAITS, paused=True), latencies_ms(WAITS)
    assert busy[0] == pytest.approx(calm[0], rel=0.05), "most requests do not wait"
    waited_ms = busy[1] - calm[1]
    assert 0.5 * 1e3 * LONGEST_S < waited_ms <= 1e3 * LONGEST_S, "one in a hundred waits long"


def test_a_twin_that_was_fitted_without_cpu_waits_has_none() -> None:
    paused = latencies_ms(NO_HICCUPS, paused=True)
    assert latencies_ms(NO_HICCUPS)[1] == pytest.approx(paused[1], rel=0.05)


def test_a_small_weight_of_the_background_shortens_the_tail() -> None:
    equal, light = latencies_ms(WAITS, 100), latencies_ms(WAITS, 1)
    between = latencies_ms(WAITS, 10)
    assert light[1] < between[1] < equal[1]
    assert light[1] == pytest.approx(latencies_ms(WAITS, paused=True)[1], rel=0.15)


def test_a_node_sets_the_weights_that_were_granted() -> None:
    node = TwinNode(scenario(), WAITS, seed=1)
    node.step(DesiredState(slots=(SlotDesire(cpu_weight=1),)))
    assert node._nodes.cpu_weight[:, 0].tolist() == [1.0, 100.0, 100.0, 100.0]
    node.step(DesiredState())
    assert node._nodes.cpu_weight[:, 0].tolist() == [100.0] * 4


def test_a_twin_at_the_end_of_a_range_below_0_is_read_again() -> None:
    at_the_end = replace(WAITS, cpu_slowdown=RANGES["cpu_slowdown"].low)
    assert from_mapping(as_mapping(at_the_end)) == at_the_end
