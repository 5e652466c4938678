"""Limits the memory of a sandbox's zone, and its swap where it is to have none."""

from __future__ import annotations

from pathlib import Path

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.kernel.files import read_text, write_text
from stallward.env.errors import SandboxError


def memory_file(group: Cgroup, name: str) -> Path:
    """A file of the memory controller.

    Raises:
        SandboxError: If the group has no memory controller.
    """
    if group.memory_dir is None:
        raise SandboxError(f"{group.name} has no memory controller: {group.hierarchy.why}")
    return group.memory_dir / name


def limit_memory(zone: Cgroup, limit_bytes: int, *, swap: bool) -> None:
    """Set the memory limit of a zone.

    Args:
        zone: The zone.
        limit_bytes: The limit.
        swap: Whether the zone may use swap. Without it, not even the node's own swap is used.

    Raises:
        SandboxError: If the kernel refuses.
    """
    try:
        for path, value in _writes(zone, limit_bytes, swap=swap):
            write_text(path, str(value))
    except KernelFileError as error:
        raise SandboxError(f"Cannot limit the sandbox: {error}") from error


def _writes(zone: Cgroup, limit_bytes: int, *, swap: bool) -> list[tuple[Path, int]]:
    """The files to write and their values, in order."""
    if zone.hierarchy.kind == "v2":
        memory = (memory_file(zone, "memory.max"), limit_bytes)
        return [memory] if swap else [(memory_file(zone, "memory.swap.max"), 0), memory]
    memory = (memory_file(zone, "memory.limit_in_bytes"), limit_bytes)
    if swap:
        return [memory]
    # v1 limits memory and swap together. With both limits equal, nothing can be swapped out,
    # whatever the swappiness. The limit of both must never be the lower one.
    both = memory_file(zone, "memory.memsw.limit_in_bytes")
    text = read_text(both)
    if text is None:
        raise SandboxError(
            f"The sandbox cannot do without swap: there is no {both}.",
            next_step="Boot the kernel with swapaccount=1, or give sandbox.swap_mib a size.",
        )
    writes = [memory, (both, limit_bytes)]
    return writes if limit_bytes <= int(text) else writes[::-1]
