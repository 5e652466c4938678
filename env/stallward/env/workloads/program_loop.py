"""Runs a program again and again and reports its work in units.

Ordinary programs do not report their progress, so the kernel's counters of the program and its
descendants are read instead. ``--unit`` chooses the unit:

- ``io``: one MiB that was read or written by system calls, on any kind of file;
- ``cpu``: one second of CPU time in user mode, for programs that only use memory. Time spent
  waiting for memory, and in the kernel, does not count.

If a run is terminated, the next one begins.

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
"""Returns the units that a process has done so far, including its ended children."""


def process_tree(pid: int) -> Iterator[int]:
    """Generate the pids of a process and its living descendants."""
    yield pid
    for task in sorted(_PROC.joinpath(str(pid), "task").glob("*/children")):
        for child in task.read_text().split():
            yield from process_tree(int(child))


def io_mib(pid: int) -> float:
    """Return the MiB that a process has read and written by system calls."""
    lines = _PROC.joinpath(str(pid), "io").read_text().splitlines()
    counts = dict(line.split(": ") for line in lines)
    return (int(counts["rchar"]) + int(counts["wchar"])) / _MIB


def user_seconds(pid: int) -> float:
    """Return the CPU time of a process in user mode."""
    # The name, in brackets, may contain spaces: count the fields after it. 11 is utime, 13 cutime.
    words = _PROC.joinpath(str(pid), "stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[13])) / os.sysconf("SC_CLK_TCK")


METERS: Final[dict[str, Meter]] = {"io": io_mib, "cpu": user_seconds}


def tree_units(pid: int, meter: Meter) -> float:
    """Return the units of a process tree; some are missing if a process ends meanwhile."""
    total = 0.0
    try:
        for member in process_tree(pid):
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
        # WNOWAIT leaves a zombie, whose counters can still be read.
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        over = os.waitid(os.P_PID, process.pid, options) is not None
        now = max(done, tree_units(process.pid, meter))
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
