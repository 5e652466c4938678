"""Makes the disks slow for the programs of a sandbox, and for nobody else.

All programs of the sandbox share one limit, as they would share a slow disk. With v1 they enter
one group of the blkio hierarchy, because its limits do not add up over the groups below. The limit
ends with the group, so there is nothing to put back.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.kernel.files import write_text
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.levers.cgroup.cpu_and_io import disks_of
from stallward.env.errors import SandboxError
from stallward.env.scenario.scenario import DiskLimit

BLKIO = "blkio"
"""The v1 controller that limits disks."""


def shared_dirs(zone: Cgroup, limit: DiskLimit | None) -> tuple[Path, ...]:
    """The directories that every program of a sandbox enters besides those of its own group."""
    v1 = None if limit is None else zone.v1_dir(BLKIO)
    return () if v1 is None else (v1,)


def limit_disks(zone: Cgroup, limit: DiskLimit, paths: Paths) -> None:
    """Limit every disk of the node for the programs of a zone.

    Args:
        zone: The zone's group, which exists in the v1 blkio hierarchy where there is one.
        limit: How slow the disks are to be.
        paths: The roots of the kernel's files.

    Raises:
        SandboxError: If the node has no disk or cannot limit it.
    """
    disks = tuple(disks_of(paths))
    if not disks:
        raise SandboxError(
            f"There is no disk in {paths.sys / 'block'} that could be made slow.",
            next_step="Use a scenario without sandbox.disk_mib_per_s and sandbox.disk_ops_per_s.",
        )
    try:
        for disk in disks:
            for path, text in _writes(zone, limit):
                write_text(path, f"{disk} {text}")
    except KernelFileError as error:
        raise SandboxError(
            f"The disks cannot be made slow for the sandbox: {error}",
            next_step="Use a kernel with blk-throttle, and v1 blkio or the io controller of v2.",
        ) from error


def _writes(zone: Cgroup, limit: DiskLimit) -> Iterator[tuple[Path, str]]:
    """The files of the zone and what follows the disk's number in each."""
    v1 = zone.v1_dir(BLKIO)
    rates = (("bps", limit.bytes_per_s), ("iops", limit.ops_per_s))
    if v1 is not None:
        for unit, rate in rates:
            for direction in ("read", "write") if rate is not None else ():
                yield v1 / f"blkio.throttle.{direction}_{unit}_device", str(rate)
    elif zone.unified_dir is not None:
        words = [f"r{unit}={rate} w{unit}={rate}" for unit, rate in rates if rate is not None]
        yield zone.unified_dir / "io.max", " ".join(words)
