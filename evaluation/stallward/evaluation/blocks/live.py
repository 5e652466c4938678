"""Live blocks: one block of one arm is run and recorded, with the daemon that the arm needs."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from stallward.actuator.client import ActuatorClient
from stallward.actuator.client.daemon_process import Daemon
from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.tables import ControlConfig, RecordConfig
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.kernel.hierarchies import require
from stallward.actuator.kernel.paths import DEFAULT_PATHS, Paths
from stallward.actuator.record.frames import FRAMES_NAME
from stallward.actuator.record.reading import read_ticks
from stallward.actuator.record.tick_record import Mode
from stallward.env.recording.node_facts import node_info, versions
from stallward.env.recording.recording import write_recording
from stallward.env.recording.run_info import NodeInfo, RunInfo
from stallward.env.sandbox.block import (
    BlockResult,
    BlockSite,
    Workplace,
    make_workplace,
    run_block,
    site_config,
)
from stallward.env.sandbox.compressed_swap import check_compressed_swap
from stallward.env.sandbox.data_cache import default_cache_dir
from stallward.env.sandbox.peers.programs import versions_of
from stallward.env.sandbox.sandbox import Sandbox, open_sandbox
from stallward.env.sandbox.watch import probe_steal_share
from stallward.env.scenario.scenario import Scenario
from stallward.evaluation.blocks.request import Disturbances, RunRequest
from stallward.evaluation.errors import ComparisonError
from stallward.evaluation.remote import remote_controller
from stallward.proto.v1 import stallward_pb2 as pb

OnDaemon = Callable[[Daemon], None]
"""A function that is called with the daemon of a block before the load starts; it must return
soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSession:
    """A sandbox with a scenario's programs prepared; blocks run in it one after another."""

    scenario: Scenario
    sandbox: Sandbox
    workplace: Workplace
    node: NodeInfo

    @property
    def facts(self) -> NodeInfo:
        """The node, as ``result.json`` describes it."""
        return self.node

    @property
    def scratch(self) -> Path:
        """A temporary folder that is removed with the session, however that ends."""
        return self.sandbox.folder

    def run_block(self, request: RunRequest, out: Path) -> Disturbances:
        """Run one block; see :class:`stallward.evaluation.blocks.request.Runner`."""
        probed = [probe_steal_share()] if request.probes else []
        result = self.run(request, out)
        probed += [probe_steal_share()] if request.probes else []
        return Disturbances(
            oom_kills=result.oom_kills - result.limit_kills,
            steal_share=result.stolen_share,
            probed_steal_share=max(probed, default=None),
        )

    def run(self, run: RunRequest, out: Path, on_daemon: OnDaemon | None = None) -> BlockResult:
        """Run one block and write its recording to ``out``, which must not exist yet.

        Raises:
            StallwardError: If a program, the sandbox or the daemon fails.
        """
        missing: list[str] = []
        with tempfile.TemporaryDirectory(dir=self.scratch) as folder:
            files = Path(folder)

            @contextmanager
            def daemon(site: BlockSite) -> Iterator[object]:
                with _controlled(site, run, files) as running:
                    with running.client() as client:
                        missing.extend(client.status().missing)
                    if on_daemon is not None:
                        on_daemon(running)
                    yield running

            result = run_block(
                self.sandbox,
                self.scenario,
                run.condition,
                daemon,
                workplace=self.workplace,
                duration_s=run.duration_s,
                burn_in_s=run.burn_in_s,
                out_dir=files,
                seed=run.seed,
                peer=run.arm.peer,
            )
            write_recording(
                out,
                run=self._info(run, result, tuple(missing)),
                ticks=_without_timings(_ticks(files)) if run.for_training else _ticks(files),
                requests=result.requests,
                others={one.name: one.requests for one in result.others},
                units=result.units,
            )
        return result

    def _info(self, run: RunRequest, result: BlockResult, missing: tuple[str, ...]) -> RunInfo:
        length_s = result.end_s - result.start_s
        return RunInfo(
            scenario=self.scenario.name,
            condition=run.condition,
            arm=run.arm.label,
            seed=run.seed,
            start_s=result.start_s,
            end_s=result.end_s,
            burn_in_s=result.burn_in_s,
            sandbox_bytes=result.limit_bytes,
            slo_ms=run.slo_ms,
            node=self.node,
            node_name=platform.node(),
            request_rate_per_s=result.requests.scheduled_s.size / length_s,
            swap_bytes=self.scenario.sandbox.swap_bytes,
            slot_names=tuple(group.name for group in self.scenario.background),
            slot_floors_bytes=tuple(group.floor_bytes for group in self.scenario.background),
            scenario_parameters=self.scenario.content,
            other_applications=tuple(one.name for one in result.others),
            versions={**versions(), **(versions_of(run.arm.peer) if run.arm.peer else {})},
            oom_kills=result.oom_kills,
            limit_kills=result.limit_kills,
            peer_kills=result.peer_kills,
            stolen_share=result.stolen_share,
            missing=missing,
            policy_sha256=run.policy_sha256,
        )


@contextmanager
def open_session(
    scenario: Scenario, cache_dir: Path | None = None, paths: Paths = DEFAULT_PATHS
) -> Iterator[LiveSession]:
    """Prepare a scenario's programs and data, and make a sandbox for them.

    Raises:
        StallwardError: If this user or machine cannot have the sandbox; the message says why.
    """
    require(paths)  # first, because preparing takes minutes and much disk space
    if scenario.sandbox.compressed_swap is not None:
        check_compressed_swap(scenario.sandbox.compressed_swap, paths)
    cache_dir = cache_dir or default_cache_dir()
    workplace = make_workplace(scenario, cache_dir)
    with open_sandbox(
        slots=len(scenario.background),
        others=tuple(one.name for one in scenario.others),
        limit_bytes=scenario.sandbox.limit_bytes,
        swap_bytes=scenario.sandbox.swap_bytes,
        compressed_swap=scenario.sandbox.compressed_swap,
        disk=scenario.sandbox.disk,
        # A slow disk's limit does not add up over groups, so its zone is one group of blkio.
        controllers=("cpu", "blkio") if scenario.sandbox.disk is None else ("cpu",),
        cache_dir=cache_dir,
        paths=paths,
    ) as sandbox:
        yield LiveSession(
            scenario=scenario,
            sandbox=sandbox,
            workplace=workplace,
            node=node_info(cache_dir, paths),
        )


def _config(site: BlockSite, run: RunRequest, folder: Path) -> DaemonConfig:
    control = ControlConfig(
        controller="none" if run.arm.runs_policy or run.arm.peer else run.arm.spec,
        slo_ms=run.slo_ms,
        seed=run.seed,
    )
    if run.for_training:
        control = replace(control, calm_tick_period_s=control.tick_period_s)
    return site_config(
        site,
        folder,
        control=control,
        guard=Budgets(
            lift_budgets=run.lift_budgets or run.arm.lifts_budgets,
            allow_terminate=run.arm.lifts_budgets,
            allow_protected_threads=run.arm.moves_threads,
        ),
        record=RecordConfig(dir=folder),
    )


@contextmanager
def _controlled(site: BlockSite, run: RunRequest, folder: Path) -> Iterator[Daemon]:
    """Run the daemon of a block, controlled by its arm."""
    if run.arm.runs_policy and run.policy is None:
        raise ComparisonError(f"The arm {run.arm.label!r} has no policy file.")
    config = _config(site, run, folder)
    with Daemon(config, owned=site.sandbox.folder) as daemon:
        if run.policy is None or not run.arm.runs_policy:
            yield daemon
        elif run.arm.decides_remotely:
            with remote_controller(
                config.service.socket,
                run.policy,
                twin=run.arm.controller == "mpc",
                slo_ms=run.slo_ms,
            ):
                yield daemon
        else:
            with daemon.client() as client:
                activate(client, run.policy)
            yield daemon


def activate(client: ActuatorClient, policy: Path) -> None:
    """Load a policy into a daemon and activate it."""
    client.load(str(policy.resolve()))
    client.set_mode(Mode.ACTIVE)


def _without_timings(ticks: Iterator[pb.TickRecord]) -> Iterator[pb.TickRecord]:
    """The ticks without timings and wall time: they are random, and a fifth of a recording."""
    for tick in ticks:
        tick.ClearField("timings")
        tick.ClearField("wall_time_s")
        yield tick


def _ticks(folder: Path) -> Iterator[pb.TickRecord]:
    """The tick records that the daemon of a block wrote."""
    files = sorted(folder.rglob(FRAMES_NAME))
    if not files:
        raise ComparisonError(
            "The daemon recorded no tick.", next_step="Check free space in the temporary folder."
        )
    for file in files:
        yield from read_ticks(file)
