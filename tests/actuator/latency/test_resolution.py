"""The step of a source's latencies, and which targets it can tell."""

from __future__ import annotations

import math

import pytest

from stallward.actuator.latency.counts import FEW, Resolution, too_coarse
from stallward.actuator.latency.line_format import LineFormat


@pytest.mark.parametrize(
    ("latencies_ms", "step_ms"),
    [
        ([1.0, 2.0, 40.0], 1.0),
        ([10.0, 20.0, 400.0], 10.0),
        ([1000.0], 1000.0),
        ([1.0, 2.0, 2.1], 0.1),
        ([1.0, 2.0, 2.017], 0.0),
        ([1.0, 2.0, 2.0005], 0.0),
        ([2e-4, 9e-4], 0.0),
        ([0.001 * 1e3 * 3, 1e3 * 0.007], 1.0),
    ],
)
def test_the_step_is_the_largest_power_of_ten_that_all_latencies_have(
    latencies_ms: list[float], step_ms: float
) -> None:
    resolution = Resolution()
    resolution.take(latencies_ms * FEW)
    assert resolution.step_ms == step_ms


def test_the_step_of_times_of_today_is_found_although_their_difference_is_rounded() -> None:
    line_format, resolution = LineFormat(start="0", end="1"), Resolution()
    lines = [f"1700000000.{n:03d} 1700000001.{7 * n:03d}" for n in range(2 * FEW)]
    resolution.take(latency for line in lines if (latency := line_format.latency_ms(line)))
    assert resolution.step_ms == 1.0


def test_few_latencies_and_such_as_say_nothing_have_no_step() -> None:
    resolution = Resolution()
    resolution.take([0.0, -1.0, math.nan, math.inf] * FEW)
    resolution.take([1.0] * (FEW - 1))
    assert resolution.step_ms == 0.0
    resolution.take([1.0])
    assert resolution.step_ms == 1.0


def test_a_target_has_at_least_ten_steps() -> None:
    assert too_coarse(1.0, 10.0) == ("", "")
    assert too_coarse(0.0, 0.1) == ("", "")
    why, what_to_do = too_coarse(1.0, 9.9)
    assert "steps of 1 ms" in why
    assert "docs/reference/latency.md" in what_to_do
