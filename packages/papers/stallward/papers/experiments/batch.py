"""Runs applications that end, together in one sandbox, and measures their response times."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from stallward.env.errors import WorkloadError
from stallward.env.sandbox.block import Workplace, make_places
from stallward.env.sandbox.data_cache import evict
from stallward.env.sandbox.launch import Program, start
from stallward.env.sandbox.sandbox import Sandbox
from stallward.env.sandbox.watch import GroupPeak, GroupWatch, StealTime, major_faults
from stallward.env.scenario.scenario import Command, expand
from stallward.env.workloads.native.subtasks import parse_times
from stallward.papers.experiments.machine_use import MachineUse, MachineWatch

_POLL_S: Final = 0.02


class BatchProgram(Protocol):
    """An application that ends."""

    @property
    def name(self) -> str:
        """Its name, also of its files."""

    @property
    def argv(self) -> tuple[str, ...]:
        """Its command, with placeholders."""

    @property
    def report(self) -> str:
        """The file in which it says when it began and ended, with placeholders.

        Empty if it says nothing; then its end is known to 20 ms.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """What one run of some applications showed."""

    response_s: Mapping[int, float]
    """Slot -> response time: from the common start to the end of its application."""
    peaks: tuple[GroupPeak, ...]
    """The most memory and threads of every slot."""
    major_faults: Mapping[int, int]
    """Slot -> page faults of its application that read from a disk or from swap; without those
    slots whose faults the kernel does not count."""
    oom_kills: int
    """How many processes the kernel killed because memory ran out; any makes the run invalid."""
    stolen_share: float
    """Steal time as a share of the CPU time."""
    machine: MachineUse
    """What the machine did meanwhile."""


def run_batch(
    sandbox: Sandbox,
    programs: Mapping[int, BatchProgram],
    *,
    workplace: Workplace,
    limit_bytes: int,
    daemon: AbstractContextManager[object] | None = None,
    seed: int = 1,
    timeout_s: float = 300.0,
) -> BatchResult:
    """Start the applications at once and wait until all have ended.

    Args:
        sandbox: The sandbox. What an earlier run left in it is killed first, and the data of the
            applications is dropped from the page cache.
        programs: Slot -> the application that runs in it.
        workplace: The data and the compiled programs.
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
    evict(workplace.data)
    sandbox.set_limit(limit_bytes)
    started: dict[int, Program] = {}
    with make_places(workplace, seed) as places:
        kills_before = sandbox.oom_kills()
        try:
            with (
                daemon or contextlib.nullcontext(),
                GroupWatch(sandbox.slots, sandbox.paths.proc) as watch,
            ):
                machine = MachineWatch(sandbox.paths.proc)
                faults_before = _major_faults(sandbox, programs)
                steal_time, start_s = StealTime.from_now(), time.monotonic()
                for slot, program in programs.items():
                    started[slot] = start(
                        program.name,
                        Command(argv=program.argv),
                        sandbox.slots[slot],
                        places,
                        sandbox.shared_dirs,
                    )
                ended_s, killed = _wait_for_all(
                    started, start_s + timeout_s, lambda: sandbox.oom_kills() > kills_before
                )
                stolen_share, use = steal_time.share(), machine.since()
                faults = _major_faults(sandbox, programs)
        finally:
            sandbox.kill()
            for running in started.values():
                running.process.wait()
        kills = max(sandbox.oom_kills() - kills_before, int(killed))
        response_s = {}
        if not kills:
            for slot, program in programs.items():
                if program.report:
                    text = Path(expand(program.report, places)).read_text(encoding="utf-8")
                    ended_s[slot] = parse_times(text, program.name)[1]
                response_s[slot] = ended_s[slot] - start_s
    return BatchResult(
        response_s=response_s,
        peaks=watch.peaks,
        major_faults={
            slot: count - faults_before[slot]
            for slot, count in faults.items()
            if slot in faults_before
        },
        oom_kills=kills,
        stolen_share=stolen_share,
        machine=use,
    )


def _major_faults(sandbox: Sandbox, slots: Iterable[int]) -> dict[int, int]:
    counts = {slot: major_faults(sandbox.slots[slot]) for slot in slots}
    return {slot: count for slot, count in counts.items() if count is not None}


def _wait_for_all(
    programs: Mapping[int, Program], deadline_s: float, kernel_killed: Callable[[], bool]
) -> tuple[dict[int, float], bool]:
    """Wait until every program has ended.

    Returns:
        Slot -> when its program was seen to have ended, in s of CLOCK_MONOTONIC; and whether a
        signal ended one of them, or one failed after the kernel had killed a part of it.
    """
    ended_s: dict[int, float] = {}
    killed = False
    while len(ended_s) < len(programs):
        for slot, program in programs.items():
            status = program.process.poll()
            if status is None or slot in ended_s:
                continue
            ended_s[slot] = time.monotonic()
            if status < 0 or (status > 0 and kernel_killed()):
                killed = True
            else:
                program.check(may_end=True)
        waiting = [program.name for slot, program in programs.items() if slot not in ended_s]
        if waiting and time.monotonic() > deadline_s:
            raise WorkloadError(
                f"{', '.join(waiting)} did not end in time.",
                next_step="Give the applications more time, less work or more memory.",
            )
        time.sleep(_POLL_S)
    return ended_s, killed
