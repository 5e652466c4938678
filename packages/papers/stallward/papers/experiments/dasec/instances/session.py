"""A sandbox in which several instances run side by side under one controller after another."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import psutil

from stallward.actuator.client.daemon_process import Daemon
from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.tables import ControlConfig
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.kernel.hierarchies import require
from stallward.actuator.kernel.paths import DEFAULT_PATHS, Paths
from stallward.env.recording.node_facts import node_info
from stallward.env.recording.run_info import NodeInfo
from stallward.env.sandbox.block import (
    BlockSite,
    DaemonFactory,
    make_workplace,
    run_block,
    site_config,
)
from stallward.env.sandbox.data_cache import default_cache_dir
from stallward.env.sandbox.sandbox import Sandbox, open_sandbox
from stallward.env.sandbox.watch import PeriodicWatch
from stallward.evaluation.arms import Arm
from stallward.papers.experiments.dasec.applications import (
    BURN_IN_S,
    MOST_INSTANCES,
    SLO_MS,
    Application,
    Division,
    instances_scenario,
)
from stallward.papers.experiments.dasec.instances.figures import (
    CpuReading,
    reduce_block,
    request_cost,
)
from stallward.papers.experiments.dasec.instances.result import InstancesRun, RequestCost
from stallward.papers.experiments.dasec.sandbox import divide_cpu

_LOOK_S: Final = 0.25
_FIRST_PER_S: Final = 200.0
"""The rate at which the cost of a request is estimated first."""
_COST_LOAD: Final = 0.5
"""The share of all processors at which it is measured then: a request costs more where each one
wakes a processor that slept."""
_COST_S: Final = 4.0


class CpuWatch(PeriodicWatch):
    """Reads the CPU time of instances, load generators and machine; a context manager.

    Args:
        sandbox: The sandbox in which they run.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        super().__init__("cpu-watch", _LOOK_S)
        self._readings: list[CpuReading] = []
        self._services, self._generators = GroupTime(sandbox.zone), GroupTime(sandbox.load)

    @property
    def readings(self) -> tuple[CpuReading, ...]:
        """What was read so far, by time."""
        return tuple(self._readings)

    def _look(self) -> None:
        machine = psutil.cpu_times()
        self._readings.append(
            CpuReading(
                time_s=time.monotonic(),
                services_s=self._services.used_s(),
                generators_s=self._generators.used_s(),
                machine_s=machine.user
                + machine.nice
                + machine.system
                + machine.irq
                + machine.softirq,
            )
        )


class GroupTime:
    """The CPU time of the processes that are or were in a group.

    Args:
        group: The group.
    """

    def __init__(self, group: Cgroup) -> None:
        self._group = group
        self._used_s: dict[tuple[int, float], float] = {}

    def used_s(self) -> float:
        """What they have used; of one that has ended, as it was at the last look before."""
        for pid in self._group.pids(recursive=True):
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                times = process.cpu_times()
                self._used_s[pid, process.create_time()] = times.user + times.system
        return sum(self._used_s.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancesSession:
    """A sandbox with groups for the most instances."""

    sandbox: Sandbox
    node: NodeInfo
    cache_dir: Path
    cpus: int
    """How many processors there are."""
    measured_s: float
    """How long a run is measured."""

    def prepare(self, applications: Sequence[Application]) -> None:
        """Make the data and programs of the applications, unless that has been done.

        Raises:
            WorkloadError: If that fails, or a program that they need is not installed.
        """
        make_workplace(instances_scenario(applications, [1.0] * len(applications)), self.cache_dir)

    def measure_cost(self, application: Application, seed: int) -> RequestCost:
        """Measure the CPU time of a request to an application that runs alone.

        Raises:
            StallwardError: If a program fails, or too little was answered.
        """
        alone = replace(self, measured_s=_COST_S)
        rate_per_s = _FIRST_PER_S
        for _ in range(2):
            run = alone.run((application,), (rate_per_s,), None, seed)
            cost = request_cost(run, _COST_S, self.cpus)
            rate_per_s = _COST_LOAD * self.cpus * 1e6 / (cost.service_us + cost.generator_us)
        return cost

    def run(
        self,
        applications: Sequence[Application],
        rates_per_s: Sequence[float],
        arm: Arm | None,
        seed: int,
    ) -> InstancesRun:
        """Make one run.

        Args:
            applications: The application of each instance.
            rates_per_s: How many requests a second each gets.
            arm: The controller of several instances; ``None`` to run without a daemon.
            seed: The seed of the arrivals.

        Raises:
            StallwardError: If the sandbox, the daemon or a program fails.
        """
        scenario = instances_scenario(applications, rates_per_s)
        sandbox = replace(self.sandbox, others=self.sandbox.others[: len(applications) - 1])

        with TemporaryDirectory(dir=sandbox.folder) as out, CpuWatch(sandbox) as watch:
            block = run_block(
                sandbox,
                scenario,
                "alone",
                None if arm is None else _daemon_of(arm),
                workplace=make_workplace(scenario, self.cache_dir),
                duration_s=self.measured_s,
                burn_in_s=BURN_IN_S,
                out_dir=Path(out),
                seed=seed,
            )
        return reduce_block(block, applications, watch.readings, self.cpus, self.node)


def _daemon_of(arm: Arm) -> DaemonFactory:
    @contextmanager
    def daemon(site: BlockSite) -> Iterator[object]:
        owned = site.sandbox.folder
        with (
            TemporaryDirectory(dir=owned) as folder,
            Daemon(instances_config(site, Path(folder), arm), owned=owned) as running,
        ):
            yield running

    return daemon


def instances_config(site: BlockSite, folder: Path, arm: Arm) -> DaemonConfig:
    """The daemon of one run, which protects every instance.

    It reads no latencies: no controller of the experiment looks at one, and reading those of
    thousands of requests a second would take CPU time from the instances.

    Args:
        site: The block's groups and files.
        folder: Where the daemon's socket and journal go.
        arm: The controller.
    """
    config = site_config(
        site,
        folder,
        control=ControlConfig(controller=arm.spec, slo_ms=SLO_MS),
        guard=Budgets(allow_protected_threads=arm.moves_threads),
    )
    return replace(
        config, protected=tuple(replace(one, latency=None) for one in config.applications)
    )


@contextmanager
def open_instances_session(
    *,
    division: Division,
    cpus: int,
    measured_s: float,
    cache_dir: Path | None = None,
    paths: Paths = DEFAULT_PATHS,
) -> Iterator[InstancesSession]:
    """Make a sandbox whose instances share the CPU thread by thread, or group by group.

    Args:
        division: How the CPU is divided.
        cpus: How many processors there are.
        measured_s: How long a run is measured.
        cache_dir: The folder for data and builds; by default the user's cache.
        paths: The roots of the kernel's files.

    Raises:
        StallwardError: If this user or machine cannot have the sandbox; the message says why.
    """
    require(paths)
    cache_dir = cache_dir or default_cache_dir()
    memory = instances_scenario(("memcached",), (1.0,)).sandbox
    with open_sandbox(
        slots=0,
        others=tuple(f"instance{number}" for number in range(1, MOST_INSTANCES)),
        limit_bytes=memory.limit_bytes,
        swap_bytes=memory.swap_bytes,
        cache_dir=cache_dir,
        paths=paths,
    ) as sandbox:
        yield InstancesSession(
            sandbox=divide_cpu(sandbox, division),
            node=node_info(cache_dir, paths),
            cache_dir=cache_dir,
            cpus=cpus,
            measured_s=measured_s,
        )
