"""The group that a process's memory is charged to."""

from __future__ import annotations

import os
from pathlib import Path

from stallward.actuator.errors import GroupError
from stallward.actuator.kernel.cgroups import Hierarchy, listed_pids
from stallward.actuator.kernel.files import read_bytes


def memory_folder(proc: Path, pid: int, hierarchy: Hierarchy) -> Path | None:
    """Find the directory, in the hierarchy of the memory controller, that a process is in.

    Args:
        proc: The /proc directory.
        pid: The process.
        hierarchy: The node's hierarchies.

    Returns:
        The directory; ``None`` on a node whose groups have no memory.

    Raises:
        ProcessLookupError: If the process has ended.
        GroupError: If the group cannot be found from here.
        KernelFileError: If what the kernel says of it cannot be read.
    """
    root = hierarchy.memory_root
    if root is None:
        return None
    content = read_bytes(proc / str(pid) / "cgroup")
    if content is None:
        raise ProcessLookupError
    name = memory_group_name(content, v2=hierarchy.kind == "v2")
    # A daemon with a cgroup namespace of its own reads names that are relative to its group.
    if name is not None:
        folder = root / name
        if ".." not in folder.parts and pid in listed_pids(folder):
            return folder
    raise GroupError(
        f"The memory group of process {pid} is not found below {root}.",
        next_step="Run the daemon in the cgroup namespace of the machine.",
    )


def memory_group_name(content: bytes, *, v2: bool) -> str | None:
    """Take the name of the memory group from /proc/PID/cgroup; ``None`` if there is none in it."""
    for line in content.splitlines():
        _, controllers, name = (*line.split(b":", 2), b"", b"")[:3]
        if name and (not controllers if v2 else b"memory" in controllers.split(b",")):
            return os.fsdecode(name).strip("/")
    return None
