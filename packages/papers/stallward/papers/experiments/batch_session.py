"""A sandbox for applications that end, in which they run under one controller after another."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from stallward.actuator.client.daemon_process import Daemon
from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.tables import (
    ControlConfig,
    JournalConfig,
    NodeConfig,
    PolicyConfig,
    ProtectedConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.kernel.hierarchies import require
from stallward.actuator.kernel.paths import DEFAULT_PATHS, Paths
from stallward.env.recording.node_facts import node_info
from stallward.env.recording.run_info import NodeInfo
from stallward.env.sandbox.block import Workplace
from stallward.env.sandbox.data_cache import default_cache_dir, prepare_commands
from stallward.env.sandbox.sandbox import Sandbox, open_sandbox
from stallward.env.workloads.native.build import build_native
from stallward.evaluation.arms import Arm
from stallward.papers.errors import ReplicationError
from stallward.papers.experiments.batch import BatchProgram, BatchResult, run_batch

SWAP_BYTES: Final = 1 << 30
"""The size of the swap file, where the node has no swap: three times what all data takes."""
TICK_S: Final = 0.1
ATTEMPTS: Final = 3
"""How often a run is tried in which the kernel kills."""


class BatchConfiguration(Protocol):
    """Applications that run together, and the memory that they have."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def zone_bytes(self) -> int:
        """The memory of the zone."""

    @property
    def programs(self) -> Sequence[BatchProgram]:
        """The application of each slot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSession:
    """A sandbox with the compiled programs."""

    sandbox: Sandbox
    workplace: Workplace
    node: NodeInfo

    def run(
        self,
        configuration: BatchConfiguration,
        programs: Mapping[int, BatchProgram],
        *,
        arm: Arm,
        seed: int,
    ) -> BatchResult:
        """Run some applications of a configuration under a controller.

        Args:
            configuration: The configuration.
            programs: Slot -> the application that runs in it.
            arm: The controller.
            seed: The seed of the applications.

        Raises:
            ReplicationError: If the kernel kills an application again and again.
            StallwardError: If the sandbox, the daemon or a program fails.
        """
        for _ in range(ATTEMPTS):
            with tempfile.TemporaryDirectory(dir=self.sandbox.folder) as folder:
                config = batch_config(self.sandbox, configuration, Path(folder), arm)
                result = run_batch(
                    self.sandbox,
                    programs,
                    workplace=self.workplace,
                    limit_bytes=configuration.zone_bytes,
                    daemon=Daemon(config, owned=self.sandbox.folder),
                    seed=seed,
                )
            if result.oom_kills == 0:
                return result
        raise ReplicationError(
            f"{configuration.name} under {arm.label}: memory ran out {ATTEMPTS} times.",
            next_step="Check that swap is on and that its file is not full.",
        )


def batch_config(
    sandbox: Sandbox, configuration: BatchConfiguration, folder: Path, arm: Arm
) -> DaemonConfig:
    """The daemon of one run. No application is protected: the document has equal ones.

    Args:
        sandbox: The sandbox.
        configuration: The configuration.
        folder: Where the daemon's socket and journal go.
        arm: The controller.
    """
    return DaemonConfig(
        node=NodeConfig.at(sandbox.paths, zone=sandbox.zone.name),
        protected=ProtectedConfig(group=sandbox.protected.name, groups=(sandbox.load.name,)),
        background=tuple(
            SlotConfig(name=program.name, group=group.name)
            for program, group in zip(configuration.programs, sandbox.slots, strict=False)
        ),
        service=ServiceConfig(socket=folder / "actuator.sock"),
        journal=JournalConfig(path=folder / "journal"),
        # The protected group is empty, so nothing in it could end a calm.
        control=ControlConfig(
            controller=arm.spec, tick_period_s=TICK_S, calm_tick_period_s=TICK_S
        ),
        guard=Budgets(lift_budgets=arm.lifts_budgets, allow_terminate=arm.lifts_budgets),
        policy=PolicyConfig(canary_s=0.0),
    )


@contextmanager
def open_batch_session(
    *,
    slots: int,
    zone_bytes: int,
    prepare: Sequence[Sequence[str]] = (),
    cache_dir: Path | None = None,
    paths: Paths = DEFAULT_PATHS,
) -> Iterator[BatchSession]:
    """Compile the programs, and make a sandbox for them with swap of its own.

    Args:
        slots: The most applications at a time.
        zone_bytes: The most memory that a configuration has.
        prepare: The commands that make the data of the applications, with placeholders.
        cache_dir: The folder for builds and the swap file; by default the user's cache.
        paths: The roots of the kernel's files.

    Raises:
        StallwardError: If this user or machine cannot have the sandbox; the message says why.
    """
    require(paths)
    cache_dir = cache_dir or default_cache_dir()
    native = build_native(cache_dir)
    data = prepare_commands(prepare, cache_dir, native) if prepare else native
    with open_sandbox(
        slots=slots,
        limit_bytes=zone_bytes,
        swap_bytes=SWAP_BYTES,
        cache_dir=cache_dir,
        paths=paths,
        controllers=("cpu",),
    ) as sandbox:
        yield BatchSession(
            sandbox=sandbox,
            workplace=Workplace(data=data, native=native, cache_dir=cache_dir),
            node=node_info(cache_dir, paths),
        )
