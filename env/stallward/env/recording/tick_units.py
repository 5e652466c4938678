"""The work of the background in a piece of a trace, from its ticks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stallward.actuator.work.config import CPU_UNIT
from stallward.env.recording.recording import Units
from stallward.proto.v1 import stallward_pb2 as pb

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotUnits:
    """The work of one slot."""

    unit: str
    time_s: Array
    units: Array
    """Cumulative."""
    unknown_share: float
    """The share of the time in which it is not known: 1 if it never is."""


def slot_units(
    ticks: Sequence[pb.TickRecord], slot: int, start_s: float, end_s: float
) -> SlotUnits:
    """The work of a slot: by its own counter, or else its processor time.

    Where it is not known, the slot is taken to have worked at the mean rate of the rest.

    Args:
        ticks: The ticks of the piece.
        slot: The slot.
        start_s: When the piece begins, CLOCK_MONOTONIC.
        end_s: When it ends.
    """
    unit, groups, (read_s, units, known_s) = _readings(ticks, slot)
    span_s, grown, known = np.diff(read_s), np.diff(units), np.diff(known_s)
    # The counter, or what reads it, was started again, or the slot has another pod.
    anew = (grown < 0.0) | (known < 0.0) | (groups[1:] != groups[:-1])
    grown, known = np.where(anew, 0.0, grown), np.where(anew, 0.0, np.minimum(known, span_s))
    if known.sum() <= 0.0:
        return SlotUnits(unit=unit, time_s=np.zeros(0), units=np.zeros(0), unknown_share=1.0)
    rate_per_s = grown.sum() / known.sum()
    done = np.cumsum(grown + rate_per_s * (span_s - known), dtype=np.float64)
    before_s, after_s = max(read_s[0] - start_s, 0.0), max(end_s - read_s[-1], 0.0)
    usual_s = 1.5 * float(np.median(span_s))  # between two readings nothing is missing
    missing_s = (span_s - known).sum() + sum(
        gap_s for gap_s in (before_s, after_s) if gap_s > usual_s
    )
    first = rate_per_s * before_s
    last = first + done[-1]
    return SlotUnits(
        unit=unit,
        time_s=np.concatenate([[read_s[0] - before_s], read_s, [read_s[-1] + after_s]]),
        units=np.concatenate([[0.0, first], first + done, [last + rate_per_s * after_s]]),
        unknown_share=float(missing_s / max(end_s - start_s, 1e-9)),
    )


def _readings(
    ticks: Sequence[pb.TickRecord], slot: int
) -> tuple[str, NDArray[np.object_], tuple[Array, Array, Array]]:
    """The unit, and of each reading the group that it is of, its time, units and known seconds.

    A counter of the work goes on when its slot gets another pod; processor time is the pod's.
    """
    unit, rows, groups = CPU_UNIT, dict[float, tuple[float, float]](), dict[float, str]()
    for tick in ticks:
        work = next((one for one in tick.sample.work if one.slot == slot), None)
        if work is not None:
            unit = work.unit
            if work.HasField("read_s"):
                rows[work.read_s], groups[work.read_s] = (work.units, work.known_s), ""
        elif slot < len(tick.sample.slots):
            group = tick.sample.slots[slot]
            if group.HasField("cpu_usage_us"):
                rows[tick.time_s] = (group.cpu_usage_us * 1e-6, tick.time_s)
                groups[tick.time_s] = group.name
    read_s = np.array(list(rows), dtype=np.float64)
    table = np.array(list(rows.values()), dtype=np.float64).reshape(-1, 2)
    names = np.array(list(groups.values()), dtype=object)
    return unit, names, (read_s, table[:, 0], table[:, 1])


def as_units(slots: Sequence[SlotUnits]) -> Units:
    """The table of the work of all slots, in slot order."""
    counts = [one.time_s.size for one in slots]
    return Units(
        slot=np.repeat(np.arange(len(slots), dtype=np.int32), counts),
        time_s=np.concatenate([np.zeros(0), *(one.time_s for one in slots)]),
        units=np.concatenate([np.zeros(0), *(one.units for one in slots)]),
    )
