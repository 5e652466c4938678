"""Runs commands beside each other, and prints what each has printed as a whole.

``python3 scripts/lanes.py NAME=COMMAND [NAME=COMMAND ...]``. A command is a line of the shell;
``NAME:5=COMMAND`` gives it niceness 5. What the first one prints is seen at once, what the others
print when all have ended. It is kept in ``build/lanes/NAME.log``. The exit status is the largest.
An interrupt or SIGTERM ends all of them.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

LOGS = Path(__file__).resolve().parents[1] / "build" / "lanes"
GRACE_S = 30.0
"""The time in which a command that is interrupted may put back what it has changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One command."""

    name: str
    command: str
    nice: int = 0

    @classmethod
    def read(cls, word: str) -> Lane:
        """Read ``NAME=COMMAND`` or ``NAME:NICENESS=COMMAND``."""
        title, _, command = word.partition("=")
        name, _, nice = title.partition(":")
        return cls(name=name, command=command, nice=int(nice or 0))

    def start(self, log: Path | None) -> subprocess.Popen[bytes]:
        """Start it in a group of processes of its own, with its output in a file if one is given.

        It stays in this session: between sessions the kernel divides the processors evenly,
        whatever the niceness (sched_autogroup_enabled).
        """
        words = ["nice", "-n", str(self.nice), "sh", "-c", self.command]
        with contextlib.ExitStack() as stack:
            output = stack.enter_context(log.open("wb")) if log is not None else None
            return subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT if output is not None else None,
                process_group=0,
            )


def reaped_s() -> float:
    """The processor time of all processes that have ended and were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Interrupt all that still run, and kill those that do not end."""
    for number, wait_s in ((signal.SIGINT, GRACE_S), (signal.SIGKILL, GRACE_S)):
        for process in processes:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(wait_s)


@contextlib.contextmanager
def ended(processes: Sequence[subprocess.Popen[bytes]]) -> Iterator[list[int]]:
    """End them when this context does; gives the signals that asked for it.

    A signal is only noted: while one is started, what it interrupts would not be in ``processes``.
    """
    asked: list[int] = []
    with contextlib.ExitStack() as stack:
        for number in (signal.SIGINT, signal.SIGTERM):
            before = signal.signal(number, lambda number, _: asked.append(number))
            stack.callback(signal.signal, number, before)
        stack.callback(end, processes)
        yield asked


def main(words: Sequence[str], logs: Path = LOGS) -> int:
    """Run all; returns the exit status."""
    lanes = [Lane.read(word) for word in words]
    logs.mkdir(parents=True, exist_ok=True)
    files = [None, *(logs / f"{lane.name}.log" for lane in lanes[1:])]
    processes: list[subprocess.Popen[bytes]] = []
    took_s: dict[str, tuple[float, float]] = {}
    """The time that each has taken, and its processor time."""
    begin_s = time.monotonic()
    with ended(processes) as asked:
        for lane, file in zip(lanes, files, strict=True):
            processes.append(lane.start(file))
        while len(took_s) < len(lanes):
            if asked:
                sys.exit(128 + asked[0])
            time.sleep(0.2)
            for lane, process in zip(lanes, processes, strict=True):
                before_s = reaped_s()
                if lane.name not in took_s and process.poll() is not None:
                    took_s[lane.name] = (time.monotonic() - begin_s, reaped_s() - before_s)
    for file in files:
        if file is not None:
            sys.stdout.flush()
            sys.stdout.buffer.write(file.read_bytes())
    statuses = [process.returncode for process in processes]
    for lane, status in zip(lanes, statuses, strict=True):
        passed_s, used_s = took_s[lane.name]
        sys.stdout.write(
            f"{lane.name}: {passed_s:.0f} s, {used_s:.1f} s of processor time,"
            f" exit status {status}\n"
        )
    sys.stdout.flush()
    return max(status if status >= 0 else 128 - status for status in statuses)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
