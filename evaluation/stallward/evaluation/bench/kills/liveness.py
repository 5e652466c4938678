"""Whether the processes of a daemon are alive, and whether its loop runs on."""

from __future__ import annotations

import time
from pathlib import Path

import psutil

from stallward.actuator.client.daemon_process import DaemonPids
from stallward.evaluation.bench.kills.tally import CHECK_S


def alive(pid: int) -> bool:
    """Whether a process has not ended."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def loop_problems(pids: DaemonPids, proc: Path) -> tuple[str, ...]:
    """What is wrong with the loop after other processes were killed; empty if it runs on."""
    if pids.loop is None:
        return ()  # it was being started
    first = _timeslices(proc, pids.loop)
    time.sleep(CHECK_S)
    last = _timeslices(proc, pids.loop)
    if first is None or last is None:
        return (f"the loop {pids.loop} is gone",)
    return () if last > first else (f"the loop {pids.loop} does not run",)


def _timeslices(proc: Path, pid: int) -> int | None:
    """How many times a process was given a CPU, or ``None`` if it has ended."""
    try:
        return int((proc / str(pid) / "schedstat").read_text(encoding="ascii").split()[2])
    except (OSError, ValueError, IndexError):
        return None
