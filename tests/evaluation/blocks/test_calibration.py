"""The target of a scenario that does not state one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from stallward.evaluation.blocks.calibration import auto_target_ms
from stallward.evaluation.measures.block_measures import BlockMeasures


def _ample(latency_ms: NDArray[np.float64]) -> BlockMeasures:
    """A block of 100 s in which these requests were answered, at equal intervals."""
    count = len(latency_ms)
    return BlockMeasures(
        duration_s=100.0,
        scheduled_s=np.linspace(0.0, 99.9, count),
        latency_ms=latency_ms,
        ok=np.ones(count, dtype=bool),
        units=np.zeros((100, 1)),
        psi_some_s=np.zeros(100),
        paused_s=np.zeros(100),
    )


def _steady() -> NDArray[np.float64]:
    """Latencies of 1 to 12 ms in the same order again and again, with a p99 of 11.89 ms."""
    return np.tile(np.linspace(1.0, 12.0, 101), 20)


def test_the_target_is_one_and_a_half_times_the_p99_with_ample_memory() -> None:
    assert auto_target_ms(_ample(_steady())) == pytest.approx(1.5 * 11.89, rel=0.01)


def test_a_burst_does_not_set_the_target() -> None:
    latency_ms = _steady()
    latency_ms[700:800] = 80.0  # 5 % of all requests, in one tenth of the time

    assert auto_target_ms(_ample(latency_ms)) == pytest.approx(1.5 * 11.89, rel=0.01)


def test_what_is_slow_all_the_time_does() -> None:
    latency_ms = _steady()
    latency_ms[::50] = 80.0

    assert auto_target_ms(_ample(latency_ms)) == pytest.approx(1.5 * 80.0, rel=0.01)


def test_few_requests_are_not_cut_into_parts() -> None:
    latency_ms = np.linspace(1.0, 12.0, 101)

    assert auto_target_ms(_ample(latency_ms)) == pytest.approx(1.5 * 11.89)


def test_failures_with_ample_memory_do_not_make_the_target_easier() -> None:
    ample = _ample(_steady())
    failed = np.arange(len(ample.ok)) % 10 == 0
    assert auto_target_ms(
        replace(ample, ok=~failed, latency_ms=np.where(failed, 1e4, ample.latency_ms))
    ) == pytest.approx(1.5 * 11.89, rel=0.02)


def test_without_an_answer_there_is_no_target() -> None:
    ample = _ample(_steady())

    assert auto_target_ms(replace(ample, ok=np.zeros_like(ample.ok))) is None
