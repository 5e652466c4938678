"""Runs a program over and over and reports what it does as units of work.

Programs that nobody here wrote report no progress, but the kernel counts for them. A unit is,
as chosen with ``--unit``:

- ``io``: one MiB that the program and its children read or wrote by calls, from wherever;
- ``cpu``: one second of processor time in user mode, for programs that only use memory. Waiting
  for memory and the kernel's work on it do not count.

A run that something terminates is lost and the next one begins.

Run: ``python -m stallward.env.workloads.program_loop --unit io --report PATH -- sort FILE``
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from stallward.env.workloads.report import UnitReport

_POLL_S: Final = 0.1
_MIB: Final = 1 << 20
_PROC: Final = Path("/proc")

Meter = Callable[[int], float]
"""Units that the process with this number did so far, with those of its ended children."""


def family(pid: int) -> Iterator[int]:
    """A process and all that came of it and lives."""
    yield pid
    for task in sorted(_PROC.joinpath(str(pid), "task").glob("*/children")):
        for child in task.read_text().split():
            yield from family(int(child))


def io_mib(pid: int) -> float:
    """MiB that a process read and wrote by calls."""
    lines = _PROC.joinpath(str(pid), "io").read_text().splitlines()
    counts = dict(line.split(": ") for line in lines)
    return (int(counts["rchar"]) + int(counts["wchar"])) / _MIB


def user_seconds(pid: int) -> float:
    """Processor time of a process in user mode."""
    # The name, in brackets, may hold spaces: count fields after it. 11 is utime, 13 cutime.
    words = _PROC.joinpath(str(pid), "stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[13])) / os.sysconf("SC_CLK_TCK")


METERS: Final[dict[str, Meter]] = {"io": io_mib, "cpu": user_seconds}


def measured(pid: int, meter: Meter) -> float:
    """Units of a whole family; what vanishes while it is read counts as little as it can."""
    total = 0.0
    try:
        for member in family(pid):
            total += meter(member)
    except (FileNotFoundError, ProcessLookupError):
        pass
    return total


def run_once(command: list[str], meter: Meter, report: UnitReport) -> None:
    """Run ``command`` to its end and report its work.

    Raises:
        SystemExit: If it is missing or fails.
    """
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    except OSError as error:
        sys.exit(f"cannot run {command[0]}: {error.strerror}")
    done = 0.0
    over = False
    while not over:
        time.sleep(_POLL_S)
        # Not reaped yet: its counts can still be read.
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        over = os.waitid(os.P_PID, process.pid, options) is not None
        now = max(done, measured(process.pid, meter))
        report.add(now - done)
        done = now
    if process.wait() > 0:
        sys.exit(f"{command[0]} failed with status {process.returncode}")


def main() -> None:
    """Run the program until killed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--unit", choices=sorted(METERS), required=True)
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("command", nargs="+", help="the program and its arguments, after --")
    args = parser.parse_args()
    report = UnitReport(args.report)
    report.add(0)
    while True:
        run_once(args.command, METERS[args.unit], report)


if __name__ == "__main__":
    main()
