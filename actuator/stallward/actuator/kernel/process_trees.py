"""Process trees, which stand in for cgroups where a service has none of its own.

A tree consists of its roots and all their descendants. A process that was once a member stays
one, identified by pid and start time, even after its parent has ended (a double fork). A process
that is first seen after its parent ended is recognised by its session or, if it is an orphan, by
its process group, where a member leads or led that. A process that leaves both between two
refreshes is missed unless its command line matches; only a cgroup misses none.

Pid 1, kernel threads, the daemon's own processes, its ancestors and processes that the
configuration protects are never in a tree. A process belongs to one tree: to that of the first
protected application that it descends from, else to the one whose root is nearest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from stallward.actuator.kernel.process_roots import OwnProcesses, RootFinder, TreeRoot
from stallward.actuator.kernel.process_spec import ProcessesConfig
from stallward.actuator.kernel.process_table import ProcessTable, Seen, read_seen
from stallward.agent.desired import ProcessRef

_INIT_PID: Final = 1
_EVERY: Final = 1 << 30


@dataclass(slots=True, eq=False)
class ProcessTree:
    """The processes of one tree, as of the last refresh.

    It is used like a :class:`~stallward.actuator.kernel.cgroups.Cgroup` where only the processes
    matter.
    """

    name: str
    members: dict[int, Seen] = field(default_factory=dict)
    """The members by pid; one that has ended stays until its parent has waited for it."""
    refresh: Callable[[], None] = field(default=lambda: None, repr=False)
    """Brings the members of this tree, and of all others, up to date."""

    @property
    def short_name(self) -> str:
        """What its levers are called by: its name."""
        return self.name

    def pids(self, *, recursive: bool = True, most: int | None = None) -> tuple[int, ...]:
        """The pids of the members, ascending; a tree has no levels, so all are included."""
        members = list(self.members.values())  # in one step: other threads call this, too
        return tuple(sorted(seen.pid for seen in members if not seen.ended))

    def among(self, pids: AbstractSet[int]) -> frozenset[int]:
        """Which of some processes are members."""
        members = self.members
        return frozenset(pid for pid in pids if pid in members and not members[pid].ended)

    def exists(self) -> bool:
        """True: a tree that is configured always exists, though it may be empty."""
        return True


class Forest:
    """All process trees of a node, refreshed together.

    Args:
        proc: The /proc directory.
        wanted: The processes of each application, then of each slot; ``None`` for a cgroup.
        names: The names of the trees.
        applications: How many of them are protected.
        exempt: Returns further pids that are never in a tree; called at every refresh that finds
            new processes.
        before_ticks: See :class:`~stallward.actuator.kernel.process_roots.RootFinder`.

    Raises:
        NodeError: If a user that the configuration names is unknown.
    """

    def __init__(
        self,
        proc: Path,
        wanted: Sequence[ProcessesConfig | None],
        names: Sequence[str],
        *,
        applications: int = 1,
        exempt: Callable[[], frozenset[int]] = frozenset,
        before_ticks: int | None = None,
    ) -> None:
        self._proc = proc
        self._exempt = exempt
        self._applications = applications
        self._finder = RootFinder(proc, wanted, applications, before_ticks=before_ticks)
        self._table = ProcessTable(proc)
        self._own = OwnProcesses(proc)
        self.trees = tuple(
            None if spec is None else ProcessTree(name=name, refresh=self.refresh)
            for spec, name in zip(wanted, names, strict=True)
        )
        self._tree_of: dict[int, int] = {}
        """The place of the tree that a process is in, by pid."""
        self._roots: dict[ProcessRef, int] = {}
        self._waiting: list[TreeRoot] = []
        """Roots that the table of processes does not have yet."""
        self._late: dict[int, int] = {}
        """The trees of ended members whose pid is still the number of a session or group."""
        self.refused: tuple[str, ...] = ()
        """Roots that were left alone, and why."""
        self._take_in(most=_EVERY)
        self._finder.start()
        self._take_in()

    @property
    def faults(self) -> tuple[str, ...]:
        """The faults of the last refresh, and the roots that are left alone."""
        fault = self._table.fault
        return (*((fault,) if fault else ()), *self.refused, *self._finder.faults)

    def refresh(self) -> None:
        """Bring all trees up to date. The cost is bounded, and it never waits."""
        if any(tree is not None for tree in self.trees):
            self._take_in()

    def close(self) -> None:
        """End the thread that reads command lines."""
        self._finder.close()

    def _take_in(self, most: int | None = None) -> None:
        new, gone = self._table.refresh() if most is None else self._table.refresh(most=most)
        for seen in gone:
            self._forget(seen)
        if new:
            exempt = self._exempt()
            new = sorted((*new, *self._reused_kin(new)), key=lambda seen: seen.age_order)
            for seen in new:
                self._inherit(seen, exempt)
            self._finder.offer(seen.ref for seen in new if not seen.kernel)
        waiting, self._waiting = [*self._waiting, *self._finder.found()], []
        for tree_root in waiting:
            self._plant(tree_root)
        if self._late and (gone or new):
            self._retire()

    def _reused_kin(self, new: list[Seen]) -> list[Seen]:
        """Forget members whose pid is another process's now; return those processes.

        New processes are told by their parent, session and group, which are pids. So what is known
        of each of those is read again before a process joins a tree because of it.
        """
        fresh = {seen.pid for seen in new}
        found: list[Seen] = []
        todo = new
        while todo:
            kin = {pid for seen in todo for pid in (seen.parent, seen.session, seen.group)}
            todo = [one for pid in kin & self._tree_of.keys() - fresh for one in self._anew(pid)]
            fresh |= kin
            found += todo
        return found

    def _anew(self, pid: int) -> list[Seen]:
        """Read a process again; return it if it is another one than before, which is forgotten."""
        reused = self._table.recheck(pid)
        for before, _ in reused:
            self._forget(before)
            self._late.pop(pid, None)
        return [after for _, after in reused]

    def _forget(self, seen: Seen) -> None:
        self._roots.pop(seen.ref, None)
        place = self._tree_of.pop(seen.pid, None)
        if place is not None:
            self._late[seen.pid] = place
            tree = self.trees[place]
            if tree is not None:
                tree.members.pop(seen.pid, None)

    def _inherit(self, seen: Seen, exempt: frozenset[int]) -> None:
        """Put a new process into the tree that it descends from, if any."""
        if self._untouchable(seen, exempt):
            return
        self._late.pop(seen.pid, None)  # the kernel reuses no pid that still names a session
        place = self._tree_of.get(seen.parent)
        if place is None:
            place = self._place_of(seen.session)
        if place is None and self._orphaned(seen):
            place = self._place_of(seen.group)
        if place is not None:
            self._join(seen, place)

    def _place_of(self, leader: int) -> int | None:
        """The place of the tree whose member leads, or led, a session or process group."""
        return self._tree_of.get(leader, self._late.get(leader))

    def _orphaned(self, seen: Seen) -> bool:
        """Whether the parent is outside the process's session, as init is after a double fork.

        A shell's pipeline is a process group, too, but its parent is in the same session.
        """
        parent = self._table.seen.get(seen.parent)
        if seen.parent == _INIT_PID:
            return True
        return parent is None or parent.session != seen.session

    def _untouchable(self, seen: Seen, exempt: frozenset[int]) -> bool:
        return (
            seen.kernel
            or seen.pid == _INIT_PID
            or seen.pid in exempt
            or self._own.holds(seen.pid, seen.parent)
        )

    def _join(self, seen: Seen, place: int) -> None:
        before = self._tree_of.get(seen.pid)
        if before is not None and before != place:
            old = self.trees[before]
            if old is not None:
                old.members.pop(seen.pid, None)
        tree = self.trees[place]
        self._tree_of[seen.pid] = place
        if tree is not None:
            tree.members[seen.pid] = seen

    def _plant(self, tree_root: TreeRoot) -> None:
        """Make a process the root of its tree, and its descendants members."""
        ref, place = tree_root.ref, tree_root.tree
        root = self._table.seen.get(ref.pid)
        if root is None or root.ref != ref:
            there = read_seen(self._proc, ref.pid)
            if there is not None and there.ref == ref:
                self._waiting.append(tree_root)
            return
        if ref.pid in self._own.ancestors:
            why = f"process {ref.pid} is a parent of this daemon and was left alone"
            self.refused = tuple(dict.fromkeys((*self.refused, why)))
            return
        if self._untouchable(root, self._exempt()):
            return
        if self._is_protected(ref.pid) and self._tree_of[ref.pid] <= place:
            return
        self._roots[ref] = place
        children: dict[int, list[Seen]] = {}
        for seen in self._table.seen.values():
            children.setdefault(seen.parent, []).append(seen)
        exempt = self._exempt()
        todo, strangers = [root], []
        while todo:
            seen = todo.pop()
            own = children.get(seen.pid, ())
            reused = self._anew(seen.pid) if own else []
            if reused:  # the children are another process's
                strangers += reused
                continue
            self._join(seen, place)
            todo += [
                child
                for child in own
                if child.start_time_ticks >= seen.start_time_ticks
                and self._yields(child, place, exempt)
            ]
        for stranger in strangers:
            self._inherit(stranger, exempt)

    def _yields(self, child: Seen, place: int, exempt: frozenset[int]) -> bool:
        """Whether a descendant goes into the tree at ``place`` with its parent."""
        if self._untouchable(child, exempt) or self._tree_of.get(child.pid) == place:
            return False
        if place < self._applications or self._is_protected(child.pid):
            return place < self._tree_of.get(child.pid, place + 1)
        return child.ref not in self._roots

    def _is_protected(self, pid: int) -> bool:
        return self._tree_of.get(pid, self._applications) < self._applications

    def _retire(self) -> None:
        """Forget ended members whose pid is not a member's session or group any more."""
        members = [
            seen for tree in self.trees if tree is not None for seen in tree.members.values()
        ]
        used = {seen.session for seen in members} | {seen.group for seen in members}
        for pid in [pid for pid in self._late if pid not in used]:
            del self._late[pid]
