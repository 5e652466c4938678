"""Deadlines are absolute: lateness does not add up, and missed ticks are not made up for."""

from __future__ import annotations

import pytest

from stallward.actuator.pacing import Pacer


def test_deadlines_do_not_drift() -> None:
    pacer = Pacer(100.0, 0.1)
    for tick in range(1000):
        assert pacer.due_s == pytest.approx(100.0 + tick * 0.1, abs=1e-9)
        pacer.advance(pacer.due_s + 0.03)
    assert pacer.missed == 0


def test_a_long_tick_skips_deadlines_without_a_burst() -> None:
    pacer = Pacer(100.0, 0.1)
    pacer.advance(100.35)
    assert pacer.due_s == pytest.approx(100.4)
    assert pacer.missed == 3


def test_a_clock_that_stands_still_still_advances() -> None:
    pacer = Pacer(100.0, 0.1)
    pacer.advance(100.0)
    assert pacer.due_s == pytest.approx(100.1)
