"""The trace of a node that served, in minutes instead of a day: a twin under the real engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.load import config_toml
from stallward.actuator.config.tables import (
    ControlConfig,
    JournalConfig,
    ProtectedConfig,
    RecordConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.latency.config import LinesLatency
from stallward.actuator.record.frames import FRAMES_NAME, FrameWriter
from stallward.actuator.work.config import FileWork
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.env.twin.node import TwinNode
from stallward.evaluation.arms import make_arms
from stallward.evaluation.blocks.request import RunRequest
from stallward.evaluation.blocks.twin import run_ticks
from stallward.proto.v1 import stallward_pb2 as pb

BOOTED_S = 1.7e9
"""CLOCK_REALTIME at CLOCK_MONOTONIC 0."""
STARTED_S = 5000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDay:
    """The files that a node has after a day."""

    config: Path
    record: Path
    log: Path


def make_day(
    folder: Path,
    twin: FittedTwin,
    blocks: Sequence[tuple[str, float]],
    *,
    unit: str = "steps",
    shadow: str = "",
) -> NodeDay:
    """Let a node serve for some minutes, and leave what a daemon and an application leave.

    Args:
        folder: Where.
        twin: The node.
        blocks: The controllers that decide one after the other, and for how many seconds.
        unit: The unit in which the slots count their work.
        shadow: A policy in shadow mode, which would pause the first slot; empty for none.
    """
    day = NodeDay(
        config=folder / "stallward.toml",
        record=folder / "recording",
        log=folder / "requests.log",
    )
    names = [slot.name for slot in twin.scenario.slots]
    work = FileWork(path=folder / "steps", unit=unit)
    config = DaemonConfig(
        protected=ProtectedConfig(group="app"),
        background=tuple(SlotConfig(name=name, group=name, work=work) for name in names),
        service=ServiceConfig(socket=folder / "s.sock"),
        journal=JournalConfig(path=folder / "journal"),
        record=RecordConfig(dir=day.record),
        control=ControlConfig(controller="excite:table=set-points", slo_ms=twin.scenario.slo_ms),
        latency=LinesLatency(path=day.log, start="0", end="1", ok="2"),
    )
    day.config.write_text(config_toml(config))
    node = TwinNode(twin.scenario, twin.draws[0], seed=1)
    day.record.mkdir()
    writer = FrameWriter(day.record / FRAMES_NAME)
    ticks = []
    for arm, seconds in blocks:
        request = RunRequest(
            condition="together",
            arm=make_arms([arm])[0],
            policy=None,
            slo_ms=twin.scenario.slo_ms,
            duration_s=seconds,
            burn_in_s=0.0,
            seed=1,
        )
        ticks += list(run_ticks(node, request, seconds))
    units = node.units()
    for tick in ticks:
        now_s = tick.sample.time_s
        for slot in range(len(names)):
            mine = units.slot == slot
            done = float(np.interp(now_s, units.time_s[mine], units.units[mine], left=0.0))
            tick.sample.work.add(
                slot=slot, source=pb.WORK_SOURCE_FILE, unit=unit, units=done,
                known_s=now_s, read_s=STARTED_S + now_s,
            )  # fmt: skip
        tick.time_s = tick.sample.time_s = STARTED_S + now_s
        tick.wall_time_s = BOOTED_S + tick.time_s
        tick.slo_ms = twin.scenario.slo_ms
        if shadow:
            tick.mode, tick.shadow.controller = pb.MODE_SHADOW, shadow
            tick.shadow.desired.slots.add(paused=True)
        writer.append(tick.SerializeToString())
    writer.close()
    requests, offset_s = node.requests(), BOOTED_S + STARTED_S
    with day.log.open("w") as log:
        for start_s, end_s, ok in zip(
            requests.scheduled_s, requests.end_s, requests.ok, strict=True
        ):
            log.write(f"{start_s + offset_s:.6f} {end_s + offset_s:.6f} {int(ok)}\n")
    return day
