"""Lists the processes of a group or a process tree at every tick."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Protocol

from stallward.actuator.errors import SensorError
from stallward.actuator.kernel.cgroup_dirs import walk
from stallward.actuator.kernel.cgroup_members import PROCS, type_without_processes
from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.kernel.files import OpenFile
from stallward.actuator.kernel.process_trees import ProcessTree
from stallward.actuator.kernel.target import AnyTarget

_KEPT_OPEN: Final = 8
"""How many lists are kept open; with more groups below a group, each is opened anew."""


class Members(Protocol):
    """Lists the processes of a slot."""

    def pids(self) -> frozenset[int]:
        """Return the pids now; the same object as before while nothing has changed.

        Raises:
            SensorError: If the processes cannot be listed.
        """

    def close(self) -> None:
        """Close every file."""


def parse_pids(content: bytes, path: Path) -> frozenset[int]:
    """Parse cgroup.procs: one pid a line; 0 stands for processes of other pid namespaces.

    Raises:
        SensorError: If the content is malformed or cut short.
    """
    words = content.split()
    complete = not content or content.endswith(b"\n")
    if not complete or not all(word.isdigit() and len(word) <= 10 for word in words):
        raise SensorError(path, f"not a list of processes: {content[-60:]!r}")
    return frozenset(map(int, words)) - {0}


class GroupMembers:
    """Lists the processes of a cgroup and of all below it, in every hierarchy.

    Guests are left out. The groups below are walked again only when their number changes or one of
    them is gone.

    Args:
        group: The group.
    """

    def __init__(self, group: Cgroup) -> None:
        self._tops = group.dirs
        self._guests = group.hierarchy.guests
        unified = group.unified_dir
        self._tree = None if unified is None else OpenFile(unified / "cgroup.stat", SensorError)
        self._tree_content: bytes | None = None
        self._lists: tuple[OpenFile, ...] = ()
        self._contents: list[bytes] = []
        self._pids: frozenset[int] = frozenset()

    def pids(self) -> frozenset[int]:
        """Return the processes now.

        Raises:
            SensorError: If a list exists but cannot be read or parsed, or the group is threaded.
        """
        tree = None if self._tree is None else self._tree.read()
        if tree is None or tree != self._tree_content:
            self._walk()
        self._tree_content = tree
        contents: list[bytes] = []
        for file in self._lists:
            content = file.read()
            if content is None:
                self._tree_content = None  # a group is gone: walk again next time
            contents.append(content or b"")
            if len(self._lists) > _KEPT_OPEN:
                file.close()
        if contents != self._contents:
            parsed = (
                parse_pids(content, file.path)
                for file, content in zip(self._lists, contents, strict=True)
            )
            self._pids = frozenset[int]().union(*parsed) - self._guests.pids
            self._contents = contents
        return self._pids

    def _walk(self) -> None:
        for top in self._tops:
            kind = type_without_processes(top)
            if kind:
                raise SensorError(top / PROCS, f"the group is {kind}: it lists no processes")
        folders = (path for top in self._tops for path in walk(top))
        # The processes of a threaded group below are listed by its domain.
        paths = [path / PROCS for path in folders if not type_without_processes(path)]
        if paths != [file.path for file in self._lists]:
            for file in self._lists:
                file.close()
            self._lists = tuple(OpenFile(path, SensorError) for path in paths)
            self._contents = []

    def close(self) -> None:
        """Close every file."""
        for file in self._lists:
            file.close()
        if self._tree is not None:
            self._tree.close()


class TreeMembers:
    """Lists the processes of a process tree.

    Args:
        tree: The tree; the caller refreshes it.
    """

    def __init__(self, tree: ProcessTree) -> None:
        self._tree = tree
        self._pids: frozenset[int] = frozenset()

    def pids(self) -> frozenset[int]:
        """Return the processes now."""
        now = frozenset(self._tree.pids())
        if now != self._pids:
            self._pids = now
        return self._pids

    def close(self) -> None:
        """Do nothing: no file is kept open."""


class JoinedMembers:
    """Lists the processes of several groups, which come and go, as one list."""

    def __init__(self) -> None:
        self._parts: dict[str, Members] = {}
        self._listed: tuple[frozenset[int], ...] = ()
        self._pids: frozenset[int] = frozenset()

    def join(self, name: str, members: Members) -> None:
        """List the processes of this group, too."""
        self._parts[name] = members

    def leave(self, name: str) -> None:
        """Do not list the processes of this group any more."""
        self._parts.pop(name).close()

    def pids(self) -> frozenset[int]:
        """Return the processes now.

        Raises:
            SensorError: If a list exists but cannot be read or parsed, or a group is threaded.
        """
        listed = tuple(part.pids() for part in self._parts.values())
        same = len(listed) == len(self._listed) and all(
            now is before for now, before in zip(listed, self._listed, strict=True)
        )
        if not same:
            self._pids = frozenset[int]().union(*listed)
            self._listed = listed
        return self._pids

    def close(self) -> None:
        """Close every file."""
        for part in self._parts.values():
            part.close()


def members_of(target: AnyTarget) -> Members:
    """Make the lister for a group or a process tree."""
    return GroupMembers(target) if isinstance(target, Cgroup) else TreeMembers(target)
