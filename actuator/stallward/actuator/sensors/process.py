"""Processes of the background groups: who they are, whether stopped, their OOM score."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from stallward.actuator.errors import SensorError
from stallward.actuator.kernelfile import read_bytes
from stallward.actuator.process_identity import stat_fields
from stallward.actuator.sensors.flat import checked_count, parse_count, parse_single
from stallward.agent.sample import ProcessSample

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_STOPPED: Final = frozenset({b"T", b"t"})
_DEAD: Final = frozenset({b"Z", b"X", b"x"})


def parse_process(
    stat: bytes, oom_score: bytes, path: Path, *, pid: int, slot: int
) -> ProcessSample | None:
    """One process from its stat and oom_score; ``None`` if it has ended (a zombie).

    Args:
        stat: /proc/PID/stat.
        oom_score: /proc/PID/oom_score.
        path: /proc/PID, for errors.
        pid: The process.
        slot: The background slot in whose group it is.

    Raises:
        SensorError: If either is malformed.
    """
    fields = stat_fields(stat, path / "stat", SensorError)
    if fields[0] in _DEAD:
        return None
    score = parse_single(oom_score, path / "oom_score")
    if score is None:
        raise SensorError(path / "oom_score", "not a score: 'max'")
    return ProcessSample(
        pid=pid,
        start_time_ticks=parse_count(fields[19], path / "stat"),
        slot=slot,
        oom_score=score,
        stopped=fields[0] in _STOPPED,
        rss_bytes=checked_count(
            parse_count(fields[21], path / "stat") * _PAGE_BYTES, path / "stat"
        ),
    )


def read_process(proc: Path, pid: int, slot: int) -> ProcessSample | None:
    """One process, or ``None`` if it has ended.

    Raises:
        SensorError: If its files are there but malformed.
    """
    path = proc / str(pid)
    stat = read_bytes(path / "stat")
    score = read_bytes(path / "oom_score")
    if not stat or not score:
        return None
    return parse_process(stat, score, path, pid=pid, slot=slot)
