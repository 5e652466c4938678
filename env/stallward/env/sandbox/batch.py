"""Runs applications that end, together in one sandbox, and measures their response times."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.env.errors import WorkloadError
from stallward.env.sandbox.block import Workplace, make_places
from stallward.env.sandbox.group_watch import GroupPeak, GroupWatch
from stallward.env.sandbox.launch import Program, start
from stallward.env.sandbox.sandbox import Sandbox
from stallward.env.sandbox.steal_time import StealTime
from stallward.env.scenario.scenario import Command, expand
from stallward.env.workloads.native.subtasks import SubtaskProgram, parse_times

_POLL_S: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """What one run of some applications showed."""

    response_s: Mapping[int, float]
    """Slot -> response time: from the common start to the end of its application."""
    peaks: tuple[GroupPeak, ...]
    """The most memory and threads of every slot."""
    oom_kills: int
    """How many processes the kernel killed because memory ran out; any makes the run invalid."""
    stolen_share: float
    """Steal time as a share of the CPU time."""


def run_batch(
    sandbox: Sandbox,
    programs: Mapping[int, SubtaskProgram],
    *,
    workplace: Workplace,
    limit_bytes: int,
    daemon: AbstractContextManager[object] | None = None,
    seed: int = 1,
    timeout_s: float = 300.0,
) -> BatchResult:
    """Start the applications at once and wait until all have ended.

    Args:
        sandbox: The sandbox. What an earlier run left in it is killed first.
        programs: Slot -> the application that runs in it.
        workplace: The compiled programs.
        limit_bytes: The memory of the zone.
        daemon: The daemon that controls the sandbox meanwhile; ``None`` for none.
        seed: The seed of the applications.
        timeout_s: How long they may take together.

    Raises:
        WorkloadError: If an application fails, or does not end in time.
        SandboxError: If the sandbox cannot be set up or emptied.
    """
    sandbox.kill()
    sandbox.empty()
    sandbox.set_limit(limit_bytes)
    started: dict[int, Program] = {}
    with make_places(workplace, seed) as places:
        kills_before = sandbox.oom_kills()
        try:
            with (
                daemon or contextlib.nullcontext(),
                GroupWatch(sandbox.slots, sandbox.paths.proc) as watch,
            ):
                steal_time, start_s = StealTime.from_now(), time.monotonic()
                for slot, program in programs.items():
                    started[slot] = start(
                        program.name,
                        Command(argv=program.argv),
                        sandbox.slots[slot],
                        places,
                        sandbox.shared_dirs,
                    )
                killed = _wait_for_all(started.values(), start_s + timeout_s)
                stolen_share = steal_time.share()
        finally:
            sandbox.kill()
            for running in started.values():
                running.process.wait()
        kills = max(sandbox.oom_kills() - kills_before, int(killed))
        response_s = {}
        if not kills:
            for slot, program in programs.items():
                text = Path(expand(program.report, places)).read_text(encoding="utf-8")
                response_s[slot] = parse_times(text, program.name)[1] - start_s
    return BatchResult(
        response_s=response_s, peaks=watch.peaks, oom_kills=kills, stolen_share=stolen_share
    )


def _wait_for_all(programs: Iterable[Program], deadline_s: float) -> bool:
    """Wait until every program has ended; return whether a signal ended one of them."""
    waiting = list(programs)
    killed = False
    while waiting:
        for program in waiting:
            program.check(may_end=True)
        killed = killed or any((program.process.poll() or 0) < 0 for program in waiting)
        waiting = [program for program in waiting if program.process.poll() is None]
        if time.monotonic() > deadline_s:
            names = ", ".join(program.name for program in waiting)
            raise WorkloadError(
                f"{names} did not end in time.",
                next_step="Give the applications more time, less work or more memory.",
            )
        time.sleep(_POLL_S)
    return killed
