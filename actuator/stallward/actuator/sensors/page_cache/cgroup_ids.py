"""Finds out in which of the watched groups a cgroup is, by the cgroup's id in the kernel."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_KERNFS_HANDLE: Final = 0xFE
"""The type of a file handle that holds the id of a directory (FILEID_KERNFS)."""
_MAX_KNOWN: Final = 8192


class CgroupIds:
    """Finds the directory of a cgroup by its id, without walking the hierarchy.

    A cgroup that has been removed meanwhile is in no group. Ids are never used again.

    Args:
        root: The root of the v2 hierarchy; without one no cgroup is in any group.
        groups: The directories of the watched groups.
    """

    def __init__(self, root: Path | None, groups: Sequence[Path | None]) -> None:
        self._groups = tuple(
            None if path is None else f"{os.path.realpath(path)}/" for path in groups
        )
        self._known: dict[int, tuple[int, ...]] = {}
        self._root = root
        self._open = ctypes.CDLL(None, use_errno=True).open_by_handle_at

    def groups_of(self, number: int) -> tuple[int, ...]:
        """The indices of the watched groups that a cgroup is, or is below."""
        known = self._known.get(number)
        if known is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            path = f"{self._path(number)}/"
            known = tuple(
                i for i, group in enumerate(self._groups) if group and path.startswith(group)
            )
            self._known[number] = known
        return known

    def _path(self, number: int) -> str:
        """The directory of a cgroup; empty if the cgroup does not exist any more."""
        if self._root is None:
            return ""
        handle = ctypes.create_string_buffer(struct.pack("<IiQ", 8, _KERNFS_HANDLE, number), 16)
        mount = fd = -1
        try:
            mount = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
            fd = self._open(mount, handle, flags)
            return "" if fd < 0 else str(Path(f"/proc/self/fd/{fd}").readlink())
        except OSError:
            return ""
        finally:
            for opened in (mount, fd):
                if opened >= 0:
                    os.close(opened)
