"""A recording of the arm ``border`` with figures that are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from stallward.env.recording.recording import Requests, Units, write_recording
from stallward.env.recording.run_info import NodeInfo, RunInfo
from stallward.env.scenario.file import load_scenario
from stallward.proto.v1 import stallward_pb2 as pb
from stallward.research.border.controller import Schedule

BEGIN_S = 100.0
BURN_IN_S = 2.0
DWELL_S = 25.0
ARGUMENTS = {"dwell_s": "25", "levels": "0+20+none"}
SEED = 1
SCENARIO = "redis-mix"
TARGET_MS = 5.0
"""What that scenario states."""
LATENCY_MS = {0: 2.0, 1: 4.0, 2: 40.0}
WORK_PER_S = {0: (10.0, 4.0), 1: (20.0, 4.0), 2: (40.0, 0.0)}
SWAP_IN_PER_S = {0: 100, 1: 300, 2: 50}
END_S = BEGIN_S + BURN_IN_S + 3 * DWELL_S


def write_border(path: Path, arm: str = "border:dwell_s=25,levels=0+20+none") -> None:
    """Write it: 50 requests a second, each with the latency of its level."""
    schedule = Schedule(ARGUMENTS, SEED)
    held = {n: schedule.at(BEGIN_S + n / 10)[0] for n in range(round((END_S - BEGIN_S) * 10) + 1)}

    def level_at(time_s: float) -> int:
        return held[int(10 * (time_s - BEGIN_S) + 1e-6)]

    ticks, swapped = [], 0.0
    for number in range(round((END_S - BEGIN_S) * 10)):
        time_s = BEGIN_S + number / 10
        tick = pb.TickRecord(sequence=number, time_s=time_s)
        tick.sample.node.swap_in_pages = round(swapped)
        swapped += SWAP_IN_PER_S[level_at(time_s)] / 10
        tick.sample.protected.memory_usage_bytes = 1000 + level_at(time_s)
        ticks.append(tick)
    scheduled_s = np.arange(BEGIN_S, END_S, 0.02)
    took_s = np.array([1e-3 * LATENCY_MS[level_at(at)] for at in scheduled_s])
    read_s = np.arange(BEGIN_S, END_S + 0.5, 0.5)
    each = [[work / 2 for work in WORK_PER_S[level_at(at)]] for at in read_s[:-1]]
    done = np.cumsum([[0.0, 0.0], *each], axis=0)
    write_recording(
        path,
        run=RunInfo(
            scenario=SCENARIO,
            scenario_parameters=load_scenario(SCENARIO).content,
            condition="together",
            arm=arm,
            seed=SEED,
            start_s=BEGIN_S,
            end_s=END_S,
            burn_in_s=BURN_IN_S,
            sandbox_bytes=1 << 29,
            slo_ms=TARGET_MS,
            node=NodeInfo(kind="none", kernel="test", cpu_count=2, memory_total_bytes=1 << 33),
            slot_names=("first", "second"),
        ),
        ticks=ticks,
        requests=Requests(
            scheduled_s=scheduled_s,
            start_s=scheduled_s,
            end_s=scheduled_s + took_s,
            ok=np.ones(scheduled_s.size, dtype=bool),
        ),
        units=Units(
            slot=np.repeat(np.arange(2, dtype=np.int32), read_s.size),
            time_s=np.tile(read_s, 2),
            units=np.concatenate([done[:, 0], done[:, 1]]),
        ),
    )
