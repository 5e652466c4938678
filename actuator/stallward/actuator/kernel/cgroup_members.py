"""The processes in a cgroup: listing them, killing them, and the groups that list none.

A *threaded* group of cgroup v2 holds threads, whose processes belong to the next group above that
is no threaded one, its domain (Documentation/admin-guide/cgroup-v2, "Threads"). It lists no
processes, can be killed only with its domain, and has no memory of its own. The same holds for a
group that is *domain invalid*: one in a threaded subtree that has not been made threaded yet.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from pathlib import Path
from typing import Final, Protocol

from stallward.actuator.errors import GroupError, KernelFileError
from stallward.actuator.kernel.files import read_bytes, read_text, write_text

PROCS: Final = "cgroup.procs"
_WITHOUT_PROCESSES: Final = frozenset({"threaded", "domain invalid"})
_UNNAMED: Final = 0
_RETRY_S: Final = 0.02


class Guests:
    """Processes of this daemon that enter groups for a moment, and are never members of them."""

    def __init__(self) -> None:
        self.pids: frozenset[int] = frozenset()
        """Replaced as a whole, because threads read it."""

    def add(self, pid: int) -> None:
        """Count a process as a guest, before it enters any group."""
        self.pids |= {pid}

    def remove(self, pid: int) -> None:
        """Forget a process that has ended."""
        self.pids -= {pid}


class Group(Protocol):
    """What is asked of a group."""

    @property
    def name(self) -> str:
        """Its path relative to the cgroup root."""

    @property
    def is_root(self) -> bool:
        """Whether it is the whole machine."""

    @property
    def unified_dir(self) -> Path | None:
        """Its directory in the v2 hierarchy."""

    def pids(self, *, recursive: bool = False) -> tuple[int, ...]:
        """The processes in it (and below it)."""

    def populated(self) -> bool:
        """Whether a process is in it or below it."""


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


def is_below(name: str, pid: int, proc: Path) -> bool:
    """Whether a process says that it is in the group ``name`` or below it, in any hierarchy.

    False for a process that has ended, and for one whose group this process's cgroup namespace
    does not show.
    """
    lines = (read_text(proc / str(pid) / "cgroup") or "").splitlines()
    return any(f"{line.split(':', 2)[-1]}/".startswith(f"/{name}/") for line in lines)


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


def why_no_processes(group: Group, root: Path | None) -> tuple[str, str]:
    """Say why a group cannot be looked after as a group of processes, and what to do.

    Both are empty if it can.

    Args:
        group: The group.
        root: The root of the v2 hierarchy.
    """
    folder = group.unified_dir
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


def kill_all(group: Group, timeout_s: float) -> tuple[int, ...]:
    """Kill everything in ``group`` and below it; see ``Cgroup.kill``."""
    if group.is_root or os.getpid() in _members(group):
        raise GroupError(f"Refusing to kill the group {group.name or '/'}: this process is in it.")
    deadline_s = time.monotonic() + timeout_s
    while True:
        if group.unified_dir is not None:
            with contextlib.suppress(KernelFileError):  # before kernel 5.14: pid by pid
                write_text(group.unified_dir / "cgroup.kill", "1")
        left = _members(group)
        if not left and not group.populated():
            return ()
        for pid in left:
            _kill_member(group, pid)
        if time.monotonic() >= deadline_s:
            break
        time.sleep(_RETRY_S)
    left = _members(group)
    if not left and group.populated():
        raise GroupError(
            f"Cannot kill the group {group.name}: it holds processes that cannot be named.",
            next_step="They run in another pid namespace: end the container that they are of.",
        )
    return left


def _members(group: Group) -> tuple[int, ...]:
    try:
        return group.pids(recursive=True)
    except KernelFileError as error:
        raise GroupError(
            f"Cannot kill the group {group.name}: {error.cause}.", next_step=error.next_step
        ) from error


def _kill_member(group: Group, pid: int) -> None:
    """SIGKILL ``pid`` if it is still in ``group``: a recycled pid is never hit."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        # The descriptor pins the process; only now is its membership checked again.
        if pid in _members(group):
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
    finally:
        os.close(fd)
