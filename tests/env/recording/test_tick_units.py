"""The work of a slot from its ticks: no wrong rate where a counter is started again or unknown."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from stallward.env.recording.from_frames import SlotUnits, as_units, slot_units
from stallward.proto.v1 import stallward_pb2 as pb

Counted = Callable[[float], tuple[float, float, float]]


def _ticks(counted: Counted) -> list[pb.TickRecord]:
    """100 s of ticks; ``counted(time_s)`` is the time of the reading, units and known_s."""
    ticks = []
    for at_s in np.arange(0.0, 100.5, 0.5).tolist():
        tick = pb.TickRecord(time_s=at_s)
        tick.sample.slots.add()
        read_s, units, known_s = counted(at_s)
        tick.sample.work.add(unit="steps", units=units, known_s=known_s, read_s=read_s)
        ticks.append(tick)
    return ticks


def _rates(work: SlotUnits, *spans_s: tuple[float, float]) -> list[float | None]:
    units = as_units([work])
    return [units.rate_per_s(0, *span_s) for span_s in spans_s]


def test_readings_that_come_seldom_give_the_rate_between_them() -> None:
    work = slot_units(
        _ticks(lambda s: (s // 10 * 10, 3.0 * (s // 10 * 10), s // 10 * 10)), 0, 0.0, 100.0
    )
    assert (work.unit, work.unknown_share) == ("steps", 0.0)
    assert _rates(work, (0.0, 100.0), (33.0, 47.0)) == pytest.approx([3.0, 3.0])


def test_where_work_is_unknown_the_mean_rate_is_assumed() -> None:
    """From 40 to 60 s nothing is known; before it was 2 a second, and after it is 4."""

    def counted(s: float) -> tuple[float, float, float]:
        if s < 60.0:
            read_s = min(s, 40.0)
            return read_s, 2.0 * read_s, read_s
        return s, 80.0 + 4.0 * (s - 60.0), s - 20.0

    work = slot_units(_ticks(counted), 0, 0.0, 100.0)
    assert work.unknown_share == pytest.approx(0.2)
    assert _rates(work, (0.0, 40.0), (40.0, 60.0), (60.0, 100.0)) == pytest.approx([2.0, 3.0, 4.0])


def test_a_reader_that_is_started_again_takes_nothing_back() -> None:
    def counted(s: float) -> tuple[float, float, float]:
        return (s, 5.0 * s, s) if s < 50.0 else (s, 5.0 * (s - 50.0), s - 50.0)

    work = slot_units(_ticks(counted), 0, 0.0, 100.0)
    assert (np.diff(work.units) >= 0.0).all()
    assert work.unknown_share == pytest.approx(0.005)
    assert _rates(work, (0.0, 100.0)) == pytest.approx([5.0])


def test_work_that_was_never_known_has_no_rate() -> None:
    work = slot_units(_ticks(lambda s: (0.0, 7.0, 0.0)), 0, 0.0, 100.0)
    assert (work.unknown_share, work.time_s.size) == (1.0, 0)
    assert _rates(work, (0.0, 100.0)) == [None]
    assert slot_units([], 0, 0.0, 1.0).unknown_share == 1.0


def test_a_counter_that_is_known_at_the_start_only_is_mostly_unknown() -> None:
    work = slot_units(_ticks(lambda s: (min(s, 30.0), min(s, 30.0), min(s, 30.0))), 0, 0.0, 100.0)
    assert work.unknown_share == pytest.approx(0.7)


def test_processor_time_of_a_group_that_was_made_anew_does_not_fall() -> None:
    ticks = []
    for at_s in range(101):
        tick = pb.TickRecord(time_s=float(at_s))
        tick.sample.slots.add(cpu_usage_us=500_000 * (at_s if at_s < 50 else at_s - 50))
        ticks.append(tick)
    work = slot_units(ticks, 0, 0.0, 100.0)
    assert work.unit == "cpu-s"
    assert (np.diff(work.units) >= 0.0).all()
    assert _rates(work, (0.0, 100.0)) == pytest.approx([0.5])


def test_the_processor_time_of_another_pod_is_no_work() -> None:
    """From 40 to 60 s the slot is empty; the pod that comes then has run for an hour elsewhere."""
    ticks = []
    for at_s in np.arange(0.0, 100.5, 0.5).tolist():
        tick = pb.TickRecord(time_s=at_s)
        group = tick.sample.slots.add()
        if at_s < 40.0:
            group.name, group.cpu_usage_us = "pod1", round(1e6 * at_s)
        elif at_s < 60.0:
            group.name = "stallward-unbound/batch"
        else:
            group.name, group.cpu_usage_us = "pod2", round(3600e6 + 1e6 * at_s)
        ticks.append(tick)
    work = slot_units(ticks, 0, 0.0, 100.0)
    assert _rates(work, (0.0, 39.0), (61.0, 100.0)) == pytest.approx([1.0, 1.0])
    assert work.unknown_share == pytest.approx(0.2, abs=0.01)
