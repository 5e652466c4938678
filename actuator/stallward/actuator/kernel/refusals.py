"""What to do where the kernel refuses something: one table from errno to the next step.

Most refusals are met in containers, where root is not what it seems: the kernel's files are mounted
read-only, a capability is missing, or the container's own processes stand in the way. So root is
never told to be root.
"""

from __future__ import annotations

import errno
import os
from enum import Enum
from pathlib import Path
from typing import Final

from stallward.actuator.kernel.paths import DEFAULT_PATHS


class Place(Enum):
    """Which of the kernel's files refuses."""

    CGROUP = 1
    """A group or one of its files."""
    SETTING = 2
    """A file below /proc/sys or /sys."""
    PROCESS = 3
    """A file of another process."""
    OTHER = 4
    """Any other file."""


_NO_RIGHT: Final = frozenset({errno.EACCES, errno.EPERM})
_SUBTREE: Final = "cgroup.subtree_control"
_CGROUP_FILES: Final = ("cgroup.", "memory.", "cpu.", "cpuset.", "io.", "pids.", "blkio.")
_BUSY: Final = (
    "There are processes in this very group, so that its children get no controllers: move them into "
    "one below first (mkdir init; echo PID > init/cgroup.procs)."
)
NOT_DELEGATED: Final = (
    "The group above does not hand this controller down: have it delegated (systemd: Delegate=yes; "
    "a container: the host's cgroup namespace, or all controllers in cgroup.subtree_control above)."
)
"""What to do where a group lacks a controller that the machine has."""
_READ_ONLY: Final = {
    Place.CGROUP: "It is mounted read-only: give the container /sys/fs/cgroup read-write (a volume "
    "of the host's, or a privileged container).",
    Place.SETTING: "It is mounted read-only: give the container /proc/sys and /sys read-write (a "
    "privileged one has them), or run outside of it.",
    Place.PROCESS: "/proc is mounted read-only: give the container one of its own that is not.",
    Place.OTHER: "It is on a read-only file system: give another path, or let the container or the "
    "unit write there (a volume; ReadWritePaths=).",
}
_AS_USER: Final = {
    Place.CGROUP: "Run as root, or as the user to whom this cgroup is delegated.",
    Place.SETTING: "Run as root.",
    Place.PROCESS: "Run as root, or as the user that it runs as; a program with more rights than "
    "that user only root may look into.",
    Place.OTHER: "Run as root, or as the user who may use it.",
}
_AS_ROOT: Final = (
    "Root is refused here: it lacks {needs}, is root of a user namespace only, or SELinux or AppArmor "
    "refuses. Run outside of the container, or in a privileged one."
)
_NEEDS: Final = {
    Place.CGROUP: "CAP_DAC_OVERRIDE",
    Place.SETTING: "CAP_SYS_ADMIN",
    Place.PROCESS: "CAP_SYS_PTRACE",
    Place.OTHER: "CAP_DAC_OVERRIDE",
}


def place_of(path: Path | str) -> Place:
    """Return which kind of file a path names."""
    path = Path(path)
    if path.is_relative_to(DEFAULT_PATHS.cgroup) or path.name.startswith(_CGROUP_FILES):
        return Place.CGROUP
    if path.is_relative_to(DEFAULT_PATHS.proc):
        inside = path.relative_to(DEFAULT_PATHS.proc).parts
        return Place.PROCESS if inside and inside[0].isdigit() else Place.SETTING
    return Place.SETTING if path.is_relative_to(DEFAULT_PATHS.sys) else Place.OTHER


def next_step(
    number: int, path: Path | str, *, place: Place | None = None, uid: int | None = None
) -> str:
    """Return what a user can do about a refusal; empty if that is not known.

    Args:
        number: The errno.
        path: The file or the group that refused.
        place: What it is, where its path does not say so.
        uid: Who was refused; this process's user by default.
    """
    place = place_of(path) if place is None else place
    uid = os.geteuid() if uid is None else uid
    controllers = place is Place.CGROUP and Path(path).name == _SUBTREE
    if number in _NO_RIGHT:
        return _AS_ROOT.format(needs=_NEEDS[place]) if uid == 0 else _AS_USER[place]
    if number == errno.EROFS:
        return _READ_ONLY[place]
    if number == errno.EBUSY and controllers:
        return _BUSY
    if number == errno.ENOENT and controllers:
        return NOT_DELEGATED
    if number == errno.EAGAIN and place is Place.CGROUP:
        return "Raise cgroup.max.descendants and cgroup.max.depth of the groups above."
    return ""


def more_rights(capability: str, *, uid: int | None = None) -> str:
    """Return how this process gets a capability that it lacks.

    Args:
        capability: Its name.
        uid: Who lacks it; this process's user by default.
    """
    if (os.geteuid() if uid is None else uid) == 0:
        return f"Give {capability} to the container (capabilities: add) or to the unit."
    return f"Run as root, or grant {capability} in the systemd unit."


def why_not_writable(path: Path) -> int:
    """Return the errno with which the kernel would refuse to write a file or to make one in a folder.

    Returns:
        0 if it would not.
    """
    if os.access(path, os.W_OK):
        return 0
    try:
        read_only = os.statvfs(path).f_flag & os.ST_RDONLY
    except OSError as error:
        return error.errno or errno.EIO
    return errno.EROFS if read_only else errno.EACCES


def unwritable(path: Path, *, place: Place | None = None) -> tuple[str, str]:
    """Say why a path cannot be written, and what to do; both empty if it can."""
    number = why_not_writable(path)
    if not number:
        return "", ""
    why = "is mounted read-only" if number == errno.EROFS else "is not writable"
    return f"{path} {why}", next_step(number, path, place=place)
