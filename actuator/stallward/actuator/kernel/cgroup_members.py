"""The processes in the directory of a cgroup, and the groups that list none.

A *threaded* group of cgroup v2 holds threads, whose processes belong to the next group above that
is no threaded one, its domain (Documentation/admin-guide/cgroup-v2, "Threads"). It lists no
processes, can be killed only with its domain, and has no memory of its own. The same holds for a
group that is *domain invalid*: one in a threaded subtree that has not been made threaded yet.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.files import read_bytes, read_text

if TYPE_CHECKING:
    from stallward.actuator.kernel.cgroups import Cgroup

PROCS: Final = "cgroup.procs"
_WITHOUT_PROCESSES: Final = frozenset({"threaded", "domain invalid"})
_UNNAMED: Final = 0


def type_without_processes(folder: Path) -> str:
    """The type of a group that lists no processes, such as ``threaded``; empty for any other."""
    kind = read_text(folder / "cgroup.type") or ""
    return kind if kind in _WITHOUT_PROCESSES else ""


def listed_pids(folder: Path) -> frozenset[int]:
    """The processes that a directory lists; 0 stands for those of another pid namespace.

    Nothing is listed by a group that is gone, or threaded.

    Raises:
        KernelFileError: If the list is there but cannot be read.
    """
    words = (read_bytes(folder / PROCS) or b"").split()
    return frozenset(int(word) for word in words if word.isdigit())


def named_pids(folder: Path) -> frozenset[int]:
    """The processes in a directory, without those of another pid namespace.

    Raises:
        KernelFileError: If the list is there but cannot be read, or the group is threaded.
    """
    pids = listed_pids(folder) - {_UNNAMED}
    kind = "" if pids else type_without_processes(folder)
    if kind:
        raise KernelFileError(
            folder / PROCS,
            f"the group is {kind}, so its processes cannot be listed",
            next_step="Name its domain: the group above that is not threaded.",
            number=errno.EOPNOTSUPP,
        )
    return pids


def why_no_processes(group: Cgroup) -> tuple[str, str]:
    """Say why a group cannot be looked after as a group of processes, and what to do.

    Both are empty if it can.
    """
    folder, root = group.unified_dir, group.hierarchy.unified_root
    kind = "" if folder is None or group.is_root else type_without_processes(folder)
    if not kind or folder is None or root is None:
        return "", ""
    domain = folder.parent
    while domain != root and type_without_processes(domain):
        domain = domain.parent
    cause = f"The group {group.name!r} is {kind}: it lists no processes and has no memory."
    if domain == root:
        return cause, "Let its processes run in a group that is not threaded."
    return cause, f"Name its domain, {str(domain.relative_to(root))!r}."
