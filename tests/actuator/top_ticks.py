"""Tick records of an invented node with one background group."""

from __future__ import annotations

from pathlib import Path

from stallward.actuator.record.frames import FRAMES_NAME, FrameWriter
from stallward.actuator.record.tick_record import NamedDecision, TickRecord
from stallward.actuator.record.wire import TICK_RECORD
from stallward.agent.controller import Decision
from stallward.agent.desired import MIB, DesiredState, SlotDesire
from stallward.agent.sample import (
    GroupSample,
    LatencySample,
    LeverState,
    NodeSample,
    PsiTotals,
    Sample,
    SlotState,
)

PERIOD_S = 0.5


def tick(
    number: int,
    *,
    p95_ms: float | None = 20.0,
    limit_mib: int | None = None,
    paused: bool = False,
    stalled_us: int = 0,
) -> TickRecord:
    """The tick after ``number`` periods."""
    slot = SlotDesire(paused=paused, limit_bytes=None if limit_mib is None else limit_mib * MIB)
    sample = Sample(
        sequence=number,
        time_s=1000.0 + PERIOD_S * number,
        node=NodeSample(),
        zone=GroupSample(name="z", memory_usage_bytes=500 * MIB, memory_limit_bytes=600 * MIB),
        protected=GroupSample(
            name="z/app",
            psi=PsiTotals(memory_some_us=stalled_us, io_some_us=0),
            memory_usage_bytes=200 * MIB,
            cpu_usage_us=250_000 * number,
            refault_file_pages=50 * number,
        ),
        slots=(GroupSample(name="z/hog", memory_usage_bytes=300 * MIB, swap_bytes=10 * MIB),),
        slot_states=(SlotState(paused=paused, paused_share=0.25, limit_bytes=slot.limit_bytes),),
        latency=LatencySample(completed=15, p95_ms=p95_ms),
        levers=(LeverState(lever="cpu_weight:hog", value="10"),),
    )
    return TickRecord(
        sequence=number,
        time_s=sample.time_s,
        wall_time_s=1.7e9 + PERIOD_S * number,
        sample=sample,
        observation=(),
        decision=NamedDecision(
            controller="partition", decision=Decision(desired=DesiredState(), reason="room 300")
        ),
        granted=DesiredState(slots=(slot,)),
    )


def write_recording(folder: Path, *, seconds: int) -> None:
    """What a daemon recorded; after four minutes the group is limited."""
    writer = FrameWriter(folder / FRAMES_NAME)
    for number in range(2 * seconds):
        record = tick(number, limit_mib=100 if number >= 480 else None, p95_ms=float(number))
        writer.append(TICK_RECORD.to_wire(record).SerializeToString())
    writer.close()
