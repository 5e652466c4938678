"""Lists the processes of a group or a process tree at every tick."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from stallward.actuator.errors import SensorError
from stallward.actuator.kernel.cgroups import (
    MOST_DEPTH,
    PROCS,
    Cgroup,
    Walk,
    type_without_processes,
)
from stallward.actuator.kernel.files import OpenFile
from stallward.actuator.kernel.target import AnyTarget

if TYPE_CHECKING:
    from stallward.actuator.kernel.process_trees import ProcessTree

MOST_GROUPS: Final = 4096
"""Of more groups below one, the further ones are left out."""
_WALKED_AT_ONCE: Final = 32
_READ_AT_ONCE: Final = 64
_KEPT_OPEN: Final = 8
"""How many lists are kept open; with more groups below a group, each is opened anew."""


class Members(Protocol):
    """Lists the processes of a slot."""

    @property
    def fault(self) -> SensorError | None:
        """Why some processes are not listed; ``None`` if all are."""

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


class _List:
    """The processes that one group lists itself."""

    def __init__(self, path: Path) -> None:
        self.file = OpenFile(path, SensorError)
        self.pids: frozenset[int] = frozenset()
        self._content: bytes | None = b""

    def read(self) -> bool:
        """Read the list; returns whether it is still there.

        Raises:
            SensorError: If it is there but cannot be read or parsed.
        """
        content = self.file.read()
        if content != self._content:
            self.pids = parse_pids(content or b"", self.file.path)
            self._content = content
        return content is not None


class GroupMembers:
    """Lists the processes of a cgroup and of all below it, in every hierarchy.

    Guests are left out. The groups below are walked again only when their number changes or one of
    them is gone. Their owner can make as many as he likes, so no call does more than its share: of
    many groups the walk goes on in later calls, and their lists are read in turn.

    Args:
        group: The group.
    """

    def __init__(self, group: Cgroup) -> None:
        self.fault: SensorError | None = None
        """Why some processes are not listed; ``None`` if all are."""
        self._tops = group.dirs
        self._guests = group.hierarchy.guests
        unified = group.unified_dir
        self._counter = None if unified is None else OpenFile(unified / "cgroup.stat", SensorError)
        self._groups: bytes | None = None
        self._walks: list[Walk] = []
        self._cut = False
        self._seen: set[Path] = set()
        self._lists: dict[Path, _List] = {}
        self._next = 0
        self._named: frozenset[int] = frozenset()
        self._pids: frozenset[int] = frozenset()

    def pids(self) -> frozenset[int]:
        """Return the processes now; of many groups, as of the last time that each was read.

        Raises:
            SensorError: If a list exists but cannot be read or parsed, or the group is threaded.
        """
        groups = self._number_below()
        if not self._walks and (groups is None or groups != self._groups):
            self._begin_walk()
            self._groups = groups
        changed = self._go_on() if self._walks else False
        if self._read_lists() or changed:
            self._named = frozenset().union(*(one.pids for one in self._lists.values()))
        pids = self._named - self._guests.pids
        if pids != self._pids:
            self._pids = pids
        return self._pids

    def _number_below(self) -> bytes | None:
        """The line with the number of groups below; another one counts those just removed."""
        content = None if self._counter is None else self._counter.read()
        return None if content is None else content.partition(b"\n")[0]

    def _begin_walk(self) -> None:
        for top in self._tops:
            kind = type_without_processes(top)
            if kind:
                raise SensorError(top / PROCS, f"the group is {kind}: it lists no processes")
        self._walks = [Walk(top, most=MOST_GROUPS) for top in reversed(self._tops)]
        self._cut = False
        self._seen.clear()

    def _go_on(self) -> bool:
        """Walk a bounded number of groups; returns whether the lists have changed."""
        before = len(self._lists)
        for _ in range(_WALKED_AT_ONCE):
            path = next(self._walks[-1], None)
            if path is not None:
                # The processes of a threaded group below are listed by its domain.
                if not type_without_processes(path):
                    self._seen.add(path)
                    self._lists.setdefault(path, _List(path / PROCS))
                continue
            self._cut = self._walks.pop().cut or self._cut
            if not self._walks:
                gone = self._lists.keys() - self._seen
                for path in gone:
                    self._lists.pop(path).file.close()
                self.fault = self._too_many() if self._cut else None
                return bool(gone) or len(self._lists) != before
        return len(self._lists) != before

    def _too_many(self) -> SensorError:
        return SensorError(
            self._tops[0],
            f"more than {MOST_GROUPS} groups are below, or they are nested more than {MOST_DEPTH} "
            "deep; the processes of the others are not listed",
        )

    def _read_lists(self) -> bool:
        """Read the lists whose turn it is; returns whether any has changed."""
        changed = False
        lists = tuple(self._lists.values())
        few = len(lists) <= _READ_AT_ONCE
        begin = 0 if few or self._next >= len(lists) else self._next
        self._next = begin + _READ_AT_ONCE
        for one in lists[begin : self._next]:
            before = one.pids
            if not one.read():
                self._groups = None  # a group is gone: walk again next time
            changed = changed or one.pids is not before
            if len(lists) > _KEPT_OPEN:
                one.file.close()
        return changed

    def close(self) -> None:
        """Close every file."""
        for one in self._lists.values():
            one.file.close()
        if self._counter is not None:
            self._counter.close()


class TreeMembers:
    """Lists the processes of a process tree.

    Args:
        tree: The tree; the caller refreshes it.
    """

    fault: SensorError | None = None

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

    @property
    def fault(self) -> SensorError | None:
        """Why some processes are not listed; ``None`` if all are."""
        return next((part.fault for part in self._parts.values() if part.fault), None)

    def join(self, name: str, members: Members) -> None:
        """Also list the processes of this group."""
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
