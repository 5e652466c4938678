"""Profiles a command."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.kernel.hierarchies import require
from stallward.actuator.kernel.paths import DEFAULT_PATHS, Paths
from stallward.env.errors import WorkloadError
from stallward.env.sandbox.block import Workplace, make_places
from stallward.env.sandbox.data_cache import default_cache_dir
from stallward.env.sandbox.launch import Program, start
from stallward.env.sandbox.sandbox import Sandbox, open_sandbox
from stallward.env.sandbox.watch import GroupWatch
from stallward.env.scenario.scenario import Command
from stallward.lens.profile.group_series import GroupSeries
from stallward.lens.profile.observed import ObservedRun, Subject
from stallward.lens.profile.touched_pages import TouchedPages

SWAP_BYTES: Final = 2 << 30
_POLL_S: Final = 0.01


@contextmanager
def command_subject(
    command: Sequence[str], *, ample_bytes: int, most_s: float, paths: Paths = DEFAULT_PATHS
) -> Iterator[Subject]:
    """A sandbox in which a command can be profiled.

    Args:
        command: The program and its arguments. It starts in this folder, without input.
        ample_bytes: Memory enough for it.
        most_s: How long a run lasts at most. If it has not ended then with ample memory, it counts
            as a program without an end, whose memory and waiting alone are looked at.
        paths: The roots of the kernel's files.

    Raises:
        StallwardError: If this machine cannot have the sandbox.
    """
    require(paths)
    cache_dir = default_cache_dir()
    cache_dir.mkdir(parents=True, exist_ok=True)
    with open_sandbox(
        slots=0,
        limit_bytes=ample_bytes,
        swap_bytes=SWAP_BYTES,
        cache_dir=cache_dir,
        paths=paths,
    ) as sandbox:
        workplace = Workplace(data=cache_dir, native=cache_dir, cache_dir=cache_dir)
        runs = _CommandRuns(
            sandbox=sandbox, workplace=workplace, command=tuple(command), most_s=most_s
        )
        yield Subject(
            application=Path(command[0]).name,
            source=shlex.join(command),
            work="run",
            ample_bytes=ample_bytes,
            floor_bytes=8 << 20,
            run=runs.run,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _CommandRuns:
    sandbox: Sandbox
    workplace: Workplace
    command: tuple[str, ...]
    most_s: float

    def run(self, limit_bytes: int, watched: bool) -> ObservedRun:
        """Run the command under a limit, to its end or for the longest time."""
        sandbox = self.sandbox
        sandbox.kill()
        sandbox.empty()
        sandbox.set_limit(limit_bytes)
        group, proc = sandbox.protected, sandbox.paths.proc
        series, peak = GroupSeries(group), GroupWatch((group,), proc)
        touched = TouchedPages(group, proc) if watched else None
        kills_before = sandbox.oom_kills()
        with make_places(self.workplace, 1) as places:
            begin_s = time.monotonic()
            with series, peak, touched or contextlib.nullcontext():
                program = start("command", Command(argv=self.command), group, places)
                try:
                    ended = self._wait(program, begin_s)
                    end_s = time.monotonic()
                finally:
                    sandbox.kill()
                    program.process.wait()
            killed = sandbox.oom_kills() > kills_before
            if ended and not killed:
                _check(program)
        return ObservedRun(
            limit_bytes=limit_bytes,
            begin_s=begin_s,
            end_s=end_s,
            s_per_work=end_s - begin_s if ended and not killed else None,
            p95_ms=None,
            p99_ms=None,
            killed=killed,
            samples=tuple(series.samples(begin_s, end_s)),
            threads=peak.peaks[0].threads,
            windows=() if touched is None else touched.since(begin_s),
        )

    def _wait(self, program: Program, begin_s: float) -> bool:
        """Wait for the end of the command; returns whether it ended in time."""
        while program.process.poll() is None:
            if time.monotonic() - begin_s > self.most_s:
                return False
            time.sleep(_POLL_S)
        return True


def _check(program: Program) -> None:
    """Refuse a command that failed."""
    try:
        program.check(may_end=True)
    except WorkloadError as error:
        raise WorkloadError(error.cause, next_step="Check the command.") from error
