"""The target of a scenario that does not state one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stallward.evaluation.blocks.calibration import auto_target_ms
from stallward.evaluation.measures.block_measures import BlockMeasures


def _ample() -> BlockMeasures:
    latency_ms = np.linspace(1.0, 12.0, 1001)
    return BlockMeasures(
        duration_s=100.1,
        scheduled_s=np.linspace(0.0, 100.0, 1001),
        latency_ms=latency_ms,
        ok=np.ones(1001, dtype=bool),
        units=np.zeros((100, 1)),
        psi_some_s=np.zeros(100),
        paused_s=np.zeros(100),
    )


def test_the_target_is_one_and_a_half_times_the_p99_with_ample_memory() -> None:
    assert auto_target_ms(_ample()) == pytest.approx(1.5 * 11.89)


def test_failures_with_ample_memory_do_not_make_the_target_easier() -> None:
    ample = _ample()
    failed = np.arange(1001) % 10 == 0
    assert auto_target_ms(
        replace(ample, ok=~failed, latency_ms=np.where(failed, 1e4, ample.latency_ms))
    ) == pytest.approx(1.5 * 11.89, rel=0.01)


def test_without_an_answer_there_is_no_target() -> None:
    assert auto_target_ms(replace(_ample(), ok=np.zeros(1001, dtype=bool))) is None
