"""Run the live tests again and again beside a busy core, and count the failures.

``.venv/bin/python tests/project/live_busy.py [TIMES] [PYTEST ARGUMENT...]`` is what
``make test-live-busy`` runs. One process computes all the time at the default priority, so that a
test which asserts how long something takes is found out. Each run prints a line. At the end the
tests that failed or were repeated are listed with their counts. The exit status is 1 if any run
failed.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUSY = "while True: pass"
LISTED = ("FAILED", "ERROR", "RERUN")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of the live tests."""

    status: int
    took_s: float
    summary: str
    """The last line of pytest."""
    listed: tuple[tuple[str, str], ...]
    """Each test that failed or was repeated: the word of pytest's summary, and its name."""

    def names(self, *words: str) -> list[str]:
        return [name for word, name in self.listed if word in words]


@contextmanager
def busy_core() -> Iterator[int]:
    """Keep one core busy for the time of the context; yields the process's id."""
    with subprocess.Popen([sys.executable, "-c", BUSY]) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def run_once(arguments: Sequence[str]) -> Run:
    """Run the live tests once."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "live", "-rfER", *arguments]
    began_s = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    return read_run(done.stdout, status=done.returncode, took_s=time.monotonic() - began_s)


def read_run(text: str, *, status: int, took_s: float) -> Run:
    """Read the output of pytest from one run."""
    lines = text.splitlines()
    words = [line.split(maxsplit=2) for line in lines if line.startswith(LISTED)]
    return Run(
        status=status,
        took_s=took_s,
        summary=lines[-1].strip("= ") if lines else "pytest printed nothing",
        listed=tuple((word[0], word[1]) for word in words if len(word) > 1),
    )


def report(runs: Sequence[Run]) -> str:
    """Say how often each test failed or was repeated over all runs."""
    failed = sum(run.status != 0 for run in runs)
    lines = [f"{failed} of {len(runs)} runs failed."]
    for title, words in (("failed", ("FAILED", "ERROR")), ("repeated", ("RERUN",))):
        counts = Counter(name for run in runs for name in run.names(*words))
        lines += [f"{title} {count} times: {name}" for name, count in counts.most_common()]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Run the live tests as often as asked; return the exit status."""
    times = int(arguments[0]) if arguments else 20
    runs: list[Run] = []
    try:
        with busy_core():
            for number in range(1, times + 1):
                runs.append(run_once(arguments[1:]))
                last = runs[-1]
                sys.stdout.write(f"run {number}: {last.summary} ({last.took_s:.0f} s)\n")
                for word, name in last.listed:
                    sys.stdout.write(f"  {word} {name}\n")
                sys.stdout.flush()
    finally:
        sys.stdout.write(report(runs))
    return int(any(run.status != 0 for run in runs))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
