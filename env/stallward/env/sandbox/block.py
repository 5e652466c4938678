"""Runs one live block: the programs of a scenario in the sandbox, for a given time.

Every block starts from the same state: empty groups, evicted data, new programs.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Final

from stallward.actuator.runtime.temporary_folders import temporary_folder
from stallward.env.recording.run_info import Condition
from stallward.env.sandbox.block_programs import BlockPrograms
from stallward.env.sandbox.block_types import BlockResult, BlockSite, DaemonFactory
from stallward.env.sandbox.data_cache import check_needs, evict, prepare_data
from stallward.env.sandbox.peers.programs import Peer
from stallward.env.sandbox.sandbox import Sandbox
from stallward.env.scenario.scenario import Places, Scenario, expand
from stallward.env.workloads.native.build import build_native

__all__ = [
    "BlockResult",
    "BlockSite",
    "DaemonFactory",
    "Workplace",
    "make_places",
    "make_workplace",
    "run_block",
]

_MEMORY_DIR: Final = Path("/dev/shm")  # noqa: S108  (private folders are made below it)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """What all blocks of a scenario share: its data and the compiled programs."""

    data: Path
    """The folder that ``{data}`` stands for."""
    native: Path
    """The folder with the compiled programs."""
    cache_dir: Path
    """The folder in which scratch folders are made."""


def make_workplace(scenario: Scenario, cache_dir: Path) -> Workplace:
    """Compile the programs and make the data of a scenario, unless that has been done.

    Raises:
        WorkloadError: If that fails, or a program that the scenario needs is not installed.
    """
    check_needs(scenario)
    native = build_native(cache_dir)
    data = prepare_data(scenario, cache_dir, native)
    return Workplace(data=data, native=native, cache_dir=cache_dir)


def run_block(
    sandbox: Sandbox,
    scenario: Scenario,
    condition: Condition,
    daemon: DaemonFactory | None,
    *,
    workplace: Workplace,
    duration_s: float,
    burn_in_s: float,
    out_dir: Path,
    seed: int,
    ended: Event | None = None,
    peer: Peer | None = None,
) -> BlockResult:
    """Run one block and collect its result.

    Args:
        sandbox: The sandbox. Programs of an earlier block are killed first.
        scenario: The scenario.
        condition: Which programs run, and with how much memory. ``alone``: the application
            without background. ``together``: everything under the limit. ``ample``: everything
            with ample memory. ``background``: the background with ample memory, without the
            application.
        daemon: Starts the daemon that controls the sandbox; ``None`` for none.
        workplace: The scenario's data and the compiled programs.
        duration_s: How long the block is measured, after the burn-in.
        burn_in_s: The length of the burn-in.
        out_dir: An existing folder for the daemon's recording.
        seed: The seed of the arrivals and the background.
        ended: Ends the block before its time once it is set.
        peer: A peer that runs beside the daemon and may end the background programs.

    Raises:
        WorkloadError: If a program fails, or the peer cannot run here.
        SandboxError: If the sandbox cannot be set up or emptied.
    """
    sandbox.kill()
    sandbox.empty()
    evict(workplace.data)
    limit_bytes = scenario.sandbox.limit_bytes
    if condition in {"ample", "background"}:
        limit_bytes = scenario.sandbox.ample_bytes
    sandbox.set_limit(limit_bytes)
    with make_places(workplace, seed) as places:
        site = BlockSite(
            scenario=scenario,
            condition=condition,
            sandbox=sandbox,
            latency=replace(
                scenario.protected.latency, path=expand(scenario.protected.latency.path, places)
            ),
            units=tuple(
                replace(spec.units, path=expand(spec.units.path, places))
                for spec in scenario.background
            ),
            limit_bytes=limit_bytes,
            out_dir=out_dir,
        )
        block = BlockPrograms(site=site, places=places, seed=seed, ended=ended, peer=peer)
        try:
            return block.run(daemon, duration_s=duration_s, burn_in_s=burn_in_s)
        finally:
            sandbox.kill()
            block.reap()


@contextlib.contextmanager
def make_places(workplace: Workplace, seed: int) -> Iterator[Places]:
    """Make the folders of one block; they are removed when the context ends."""
    memory_dir = _MEMORY_DIR if _MEMORY_DIR.is_dir() else None
    with (
        temporary_folder("block", memory_dir) as run,
        temporary_folder("block", workplace.cache_dir) as scratch,
    ):
        for folder in (run, scratch):
            folder.chmod(0o755)  # servers may run as another user
        yield Places(
            data=workplace.data,
            run=run,
            scratch=scratch,
            python=sys.executable,  # noqa: TID251
            workloads=workplace.native,
            seed=seed,
        )
