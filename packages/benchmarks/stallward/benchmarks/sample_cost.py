"""The cost of reading one sample, measured with real cgroups and processes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from stallward.actuator.errors import JournalError
from stallward.actuator.journal.entries import OwnedGroup
from stallward.actuator.journal.keeper import Keeper
from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.kernel.hierarchies import require
from stallward.actuator.kernel.paths import DEFAULT_PATHS, Paths
from stallward.actuator.sensors.readers import ReadApplication
from stallward.actuator.sensors.sampler import Sampler
from stallward.agent.errors import StallwardError
from stallward.agent.sample import SlotState
from stallward.benchmarks.errors import BenchError
from stallward.env.sandbox.data_cache import default_state_dir

_WARM_UP: Final = 20
_SAMPLES: Final = 200
_START_S: Final = 60.0
_GROUPS_BESIDE_SLOTS: Final = 2
"""The zone and the protected application."""
_CHILDREN: Final = "i=1; while [ $i -lt {count} ]; do (read x <&3) & i=$((i+1)); done; read x <&3"
"""A shell and its forks, which all read from a pipe. They end when the writer of the pipe ends,
even if it is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleCost:
    """The cost of ``Sampler.read``."""

    cgroups: int
    processes: int
    p50_ms: float
    p99_ms: float
    cpu_ms: float
    """Mean CPU time of a read."""


def sample_cost_ms(
    cgroups: int,
    processes: int,
    *,
    needs_processes: bool = True,
    period_s: float = 0.0,
    samples: int = _SAMPLES,
    paths: Paths = DEFAULT_PATHS,
) -> SampleCost:
    """Measure a full sample of ``cgroups`` groups and ``processes`` sleeping processes.

    Args:
        cgroups: Number of groups, at least 3; it counts the zone and the protected application.
        processes: Number of processes in all groups.
        needs_processes: Whether a controller needs the processes.
        period_s: Pause between samples, in which caches get cold.
        samples: How many samples are timed.
        paths: The roots of the kernel's files.

    Raises:
        StallwardError: If this machine cannot have the groups.
    """
    slots = cgroups - _GROUPS_BESIDE_SLOTS
    if slots < 1 or processes < slots + 1:
        raise BenchError(
            f"{cgroups} groups with {processes} processes cannot be measured.",
            next_step="Take at least 3 groups, and a process for each but the zone.",
        )
    hierarchy = require(paths)
    zone = hierarchy.group(f"stallward/{os.getpid()}-{os.urandom(3).hex()}-sample")
    groups = [zone.child("app"), *(zone.child(f"slot{i}") for i in range(slots))]
    with removed_at_end(zone, paths), sleeping_processes(groups, processes):
        sampler = Sampler(
            paths=paths,
            hierarchy=hierarchy,
            zone=zone,
            applications=[ReadApplication(target=groups[0])],
            slots=groups[1:],
            needs_processes=needs_processes,
        )
        try:
            return _measure(sampler, cgroups, processes, period_s, samples)
        finally:
            sampler.close()


def _measure(
    sampler: Sampler, cgroups: int, processes: int, period_s: float, samples: int
) -> SampleCost:
    states = (SlotState(),) * (cgroups - _GROUPS_BESIDE_SLOTS)
    times_ms, cpu_ms = np.empty(samples), np.empty(samples)
    for number in range(_WARM_UP + samples):
        time.sleep(period_s)
        cpu_ns, start_ns = time.thread_time_ns(), time.perf_counter_ns()
        sampler.read(number, states)
        duration_ns = time.perf_counter_ns() - start_ns
        if number >= _WARM_UP:
            times_ms[number - _WARM_UP] = duration_ns / 1e6
            cpu_ms[number - _WARM_UP] = (time.thread_time_ns() - cpu_ns) / 1e6
    return SampleCost(
        cgroups=cgroups,
        processes=processes,
        p50_ms=float(np.quantile(times_ms, 0.5)),
        p99_ms=float(np.quantile(times_ms, 0.99)),
        cpu_ms=float(np.mean(cpu_ms)),
    )


@contextlib.contextmanager
def removed_at_end(zone: Cgroup, paths: Paths) -> Iterator[None]:
    """Have a keeper remove the zone and its groups, even if this process is killed."""
    keeper = Keeper.start(paths, default_state_dir())
    try:
        keeper.hold(OwnedGroup(zone.name))
        yield
    finally:
        problems: Sequence[str] = ("the keeper process is gone",)
        with contextlib.suppress(JournalError):
            problems = keeper.restore()
            keeper.close()
        if problems:
            raise BenchError(f"The groups could not be removed: {' '.join(problems)}")


@contextlib.contextmanager
def sleeping_processes(groups: Sequence[Cgroup], processes: int) -> Iterator[None]:
    """Create the groups, and spread sleeping processes evenly over them."""
    shells: list[subprocess.Popen[bytes]] = []
    read_fd, write_fd = os.pipe()
    try:
        for number, group in enumerate(groups):
            group.create()
            count = processes // len(groups) + (number < processes % len(groups))
            entries = " ".join(f"echo $$ > {path}/cgroup.procs;" for path in group.member_dirs)
            script = f"exec 3<&0; {entries} {_CHILDREN.format(count=count)}"
            shells.append(subprocess.Popen(["sh", "-c", script], stdin=read_fd))
        _await(groups, processes)
        yield
    finally:
        os.close(write_fd)
        os.close(read_fd)
        for shell in shells:
            shell.wait()


def _await(groups: Sequence[Cgroup], processes: int) -> None:
    deadline_s = time.monotonic() + _START_S
    while (started := sum(len(group.pids()) for group in groups)) < processes:
        if time.monotonic() > deadline_s:
            raise BenchError(f"Only {started} of {processes} processes have started.")
        time.sleep(0.05)


SIZES: Final = ((20, 300), (100, 2000))
"""The numbers of groups and processes that ``stallward bench`` measures."""


MEANINGS: Final = {
    f"sample_{cgroups}_groups_{processes}_processes_{part}_ms": (
        f"a full sample of {cgroups} groups and {processes} processes, "
        f"{'median' if part == 'p50' else '99th percentile'}"
    )
    for cgroups, processes in SIZES
    for part in ("p50", "p99")
}


def sample_costs() -> dict[str, float | None]:
    """The figures of ``stallward bench``; a figure that could not be measured is ``None``."""
    figures: dict[str, float | None] = {}
    for cgroups, processes in SIZES:
        cost: SampleCost | None = None
        with contextlib.suppress(StallwardError):
            cost = sample_cost_ms(cgroups, processes)
        for part in ("p50", "p99"):
            key = f"sample_{cgroups}_groups_{processes}_processes_{part}_ms"
            figures[key] = None if cost is None else getattr(cost, f"{part}_ms")
    return figures
