"""Converts what a daemon recorded on a node into a recording.

The daemon writes frames of tick records only (``stallward.actuator.record.frames``). The requests
come from the application's own log, which is read as the daemon's configuration says, or else from
the histograms in the ticks. The recording has no background work, because nothing on the node
measures it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

import numpy as np

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.load import load_config
from stallward.actuator.latency.config import LatencyConfig, LinesLatency
from stallward.actuator.record.frames import extent
from stallward.actuator.record.reading import frames_file, read_ticks
from stallward.agent.errors import UsageError
from stallward.env.errors import RecordingError
from stallward.env.recording.node_facts import node_info, versions
from stallward.env.recording.program_lines import parse_requests
from stallward.env.recording.recording import Requests, Units, write_recording
from stallward.env.recording.run_info import NodeInfo, RunInfo
from stallward.env.recording.tick_requests import requests_in
from stallward.env.scenario.scenario import LatencyLines
from stallward.proto.v1 import stallward_pb2 as pb

_CLOCKS_APART_S: Final = 1e6
"""Times later than the end of the run by more are Unix times and not monotonic ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """The result of a conversion."""

    ticks: int
    requests: int
    length_s: float
    left_out_ticks: int
    """Ticks from before the last boot, whose monotonic clock was another one."""
    torn_bytes: int
    """Bytes at the end that a crash left incomplete."""

    @property
    def summary(self) -> str:
        """The result in one line."""
        parts = [f"{self.ticks} ticks of {self.length_s:.0f} s", f"{self.requests} requests"]
        if self.left_out_ticks:
            parts.append(f"{self.left_out_ticks} ticks from before the last boot left out")
        if self.torn_bytes:
            parts.append(f"the last {self.torn_bytes} bytes were torn")
        return ", ".join(parts)


def convert_frames(
    source: Path, out: Path, *, config: Path, name: str, requests: Path | None = None
) -> Converted:
    """Write the recording ``out`` from the frames that a daemon left in ``source``.

    Args:
        source: The daemon's ``record.dir``, or the frames file in it.
        out: The recording's directory, which must not exist yet.
        config: The daemon's configuration: the target, the slots, and how to read the log.
        name: The name of the scenario in the recording.
        requests: The application's log; ``None`` takes the one that the configuration names.

    Raises:
        UsageError: If there are no frames in ``source`` or ``out`` exists.
        StallwardError: If a file cannot be read or has the wrong content.
    """
    if out.exists():
        raise UsageError(f"{out} exists already.", next_step="Name a new directory with --out.")
    file = frames_file(source)
    settings = load_config(config)
    all_ticks = list(read_ticks(file))
    ticks = since_boot(all_ticks)
    if len(ticks) < 2:
        raise RecordingError(
            f"{file} holds {len(ticks)} ticks.", next_step="Let the daemon run a little longer."
        )
    run = _run_info(ticks, settings, name)
    logged = _requests(settings.latency, requests, ticks, run)
    write_recording(out, run=run, ticks=ticks, requests=logged, units=Units.empty())
    return Converted(
        ticks=len(ticks),
        requests=logged.scheduled_s.size,
        length_s=run.end_s - run.start_s,
        left_out_ticks=len(all_ticks) - len(ticks),
        torn_bytes=extent(file).torn_bytes,
    )


def since_boot(ticks: Sequence[pb.TickRecord]) -> Sequence[pb.TickRecord]:
    """The ticks after the last boot, which sets CLOCK_MONOTONIC back to 0."""
    times_s = np.array([tick.time_s for tick in ticks])
    back = np.flatnonzero(np.diff(times_s) < 0)
    return ticks[int(back[-1]) + 1 :] if back.size else ticks


def _run_info(ticks: Sequence[pb.TickRecord], settings: DaemonConfig, name: str) -> RunInfo:
    first, last = ticks[0], ticks[-1]
    makers = Counter(tick.decision.controller for tick in ticks)
    limits = [t.sample.zone.memory_limit_bytes for t in ticks if t.sample.zone.memory_limit_bytes]
    node = _node(first.sample.node.memory_total_bytes)
    return RunInfo(
        scenario=name,
        condition="together",
        arm=makers.most_common(1)[0][0],
        seed=settings.control.seed,
        start_s=first.time_s,
        end_s=last.time_s + settings.control.tick_period_s,
        burn_in_s=0.0,
        sandbox_bytes=min(limits[-1], node.memory_total_bytes)
        if limits
        else node.memory_total_bytes,
        slo_ms=settings.control.slo_ms,
        node=node,
        swap_bytes=first.sample.node.swap_total_bytes,
        slot_names=tuple(slot.name for slot in settings.background),
        slot_floors_bytes=tuple(slot.floor_bytes for slot in settings.background),
        versions=versions(),
    )


def _node(memory_total_bytes: int) -> NodeInfo:
    """Describe this machine if its memory size matches the ticks, else only what they hold."""
    here = node_info(Path.cwd())
    if memory_total_bytes in (0, here.memory_total_bytes):
        return here
    return NodeInfo(
        kind="unknown", kernel="unknown", cpu_count=0, memory_total_bytes=memory_total_bytes
    )


def _requests(
    source: LatencyConfig | None,
    named: Path | None,
    ticks: Sequence[pb.TickRecord],
    run: RunInfo,
) -> Requests:
    """The requests scheduled while the daemon ran: of the log, or else of the ticks."""
    during = (run.start_s, run.end_s)
    if not isinstance(source, LinesLatency):  # the other sources keep no log of requests
        if named is not None:
            raise UsageError(
                "The configuration has no [latency] of lines: nothing says how to read requests.",
                next_step="Describe the log there; docs/reference/config.md says how.",
            )
        return _scheduled(requests_in(ticks), *during)
    path = named or source.path
    if not path.is_file():  # a FIFO keeps nothing
        if named is not None:
            raise UsageError(f"There is no file {named}.", next_step="Name the application's log.")
        return _scheduled(requests_in(ticks), *during)
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise RecordingError(f"{path} cannot be read: {error.strerror}.") from error
    logged = parse_requests(text, _lines(source))
    if not logged.scheduled_s.size and named is None:  # its lines have no times
        return _scheduled(requests_in(ticks), *during)
    if logged.scheduled_s.size and logged.scheduled_s[-1] - run.end_s > _CLOCKS_APART_S:
        logged = _shifted(logged, ticks[-1].wall_time_s - ticks[-1].time_s)
    return _scheduled(logged, *during)


def _scheduled(requests: Requests, from_s: float, until_s: float) -> Requests:
    return requests.where((requests.scheduled_s >= from_s) & (requests.scheduled_s < until_s))


def _lines(source: LinesLatency) -> LatencyLines:
    known = {f.name for f in fields(LinesLatency)} - {"path", "source"}
    return LatencyLines(path=str(source.path), **{name: getattr(source, name) for name in known})


def _shifted(requests: Requests, by_s: float) -> Requests:
    return Requests(
        scheduled_s=requests.scheduled_s - by_s,
        start_s=requests.start_s - by_s,
        end_s=requests.end_s - by_s,
        ok=requests.ok,
    )
