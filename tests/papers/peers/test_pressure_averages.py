"""The averages of PSI files are those of the kernel."""

from __future__ import annotations

import pytest

from stallward.papers.peers.published import PressureAverages


def stalled(seconds: int) -> PressureAverages:
    """The averages after so long a complete stall, read every 0.1 s."""
    averages = PressureAverages()
    for tenth in range(10 * seconds + 1):
        averages.update(100_000 * tenth, tenth / 10.0)
    return averages


def test_a_complete_stall_gives_what_the_kernels_fixed_point_constants_give() -> None:
    # EXP_10s, EXP_60s and EXP_300s of kernel/sched/psi.c, of 2048.
    value = stalled(2).value
    assert value.avg10 == pytest.approx(100 * (2048 - 1677) / 2048, abs=0.05)
    assert value.avg60 == pytest.approx(100 * (2048 - 1981) / 2048, abs=0.05)
    assert value.avg300 == pytest.approx(100 * (2048 - 2034) / 2048, abs=0.05)
    assert stalled(10).value.avg10 == pytest.approx(63.2, abs=0.1)


def test_periods_that_nobody_looked_at_count_as_calm() -> None:
    averages = stalled(10)
    before = averages.value.avg10
    assert averages.update(10_000_000, 20.0).avg10 == pytest.approx(before / 2.718, rel=0.01)


def test_more_stall_than_time_counts_in_the_next_period() -> None:
    averages = PressureAverages()
    averages.update(0, 0.0)
    averages.update(3_000_000, 2.0)
    first = averages.value.avg10
    assert averages.update(3_000_000, 4.0).avg10 > first, "a second was left over"
    last = averages.value.avg10
    assert averages.update(3_000_000, 6.0).avg10 < last
    assert averages.update(None, 60.0).avg10 == averages.value.avg10
