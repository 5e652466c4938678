"""Cgroups: the one place where their names are parsed and their paths are made.

A group is one relative name, e.g. ``stallward/7f3a/app``, in every hierarchy the node has. On a
hybrid node that is a directory in the v1 memory hierarchy (limits, statistics) and one in the
v2 hierarchy (PSI, freezing, killing); on a v2 node both are the same directory.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final, Literal, Protocol

from stallward.actuator.errors import GroupError, GroupGoneError, KernelFileError
from stallward.actuator.kernel.files import read_bytes, read_text, write_text
from stallward.actuator.kernel.refusals import Place, next_step

_CONTROLLERS: Final = ("memory", "io", "cpu", "cpuset", "pids")
_MAKE_TRIES: Final = 50
_RETRY_S: Final = 0.02
_FEW: Final = 32
"""So many groups are looked through at once, in two milliseconds."""
MOST_DEPTH: Final = 64
"""How deep a walk with a bound goes: a path of a thousand groups takes long to look up."""


class Walk(Iterator[Path]):
    """A group's directory and all below it, parents first, one at each step.

    Whoever owns a group decides how many are below it, and how deep. So this neither recurses, as
    ``os.walk`` does before Python 3.12, nor must it be done at once, and it can have a bound.

    Args:
        top: The group's directory.
        most: How many directories are walked at most, and of each at most as many children, down
            to :data:`MOST_DEPTH`; all by default.
    """

    def __init__(self, top: Path, *, most: int | None = None) -> None:
        self.cut = False
        """Whether anything was left out because of a bound."""
        self._most = most
        self._taken = 0
        self._left = [(str(top), 0)]

    def __next__(self) -> Path:
        if not self._left:
            raise StopIteration
        if self._taken == self._most:
            self.cut = True
            self._left.clear()
            raise StopIteration
        path, depth = self._left.pop()
        self._taken += 1
        bound = self._most
        try:
            with os.scandir(path) as entries:
                folders = (entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
                below = list(folders if bound is None else islice(folders, bound + 1))
        except OSError as error:  # normally the group is gone
            self.cut = self.cut or error.errno == errno.ENAMETOOLONG
            return Path(path)
        if bound is not None and below and (depth >= MOST_DEPTH or len(below) > bound):
            self.cut = True
            del below[0 if depth >= MOST_DEPTH else bound :]
        below.sort(reverse=True)
        self._left += [(name, depth + 1) for name in below]
        return Path(path)


def few_below(top: Path) -> list[Path] | None:
    """``top`` and every directory below it; ``None`` if they are more than a few."""
    walk, found = Walk(top, most=_FEW), []
    for path in walk:
        found.append(path)
        if walk.cut:  # the first look may show it
            break
    return None if walk.cut else found


def remove_dirs(top: Path) -> OSError | None:
    """Remove a cgroup directory, children first; the first failure is returned."""
    for path in reversed(list(Walk(top))):
        try:
            path.rmdir()
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.ENODEV}:
                return error
    return None


def make_dirs(root: Path, name: str, *, v2: bool) -> list[Path]:
    """Make the group ``name`` and its parents below ``root``; returns the new directories.

    Args:
        root: The root of a hierarchy.
        name: A group's name.
        v2: Whether controllers must be enabled on the way down.

    Raises:
        OSError: If a directory cannot be made.
        KernelFileError: If the memory controller cannot be enabled.
    """
    # Another owner that ends may remove an empty common parent between two mkdirs.
    for attempt in range(_MAKE_TRIES):
        made: list[Path] = []
        path = root
        try:
            for part in name.split("/") if name else []:
                if v2:
                    _enable_controllers(path)
                path = path / part
                with contextlib.suppress(FileExistsError):
                    path.mkdir()
                    made.append(path)
                    _use_hierarchy(path)
        except (FileNotFoundError, KernelFileError) as error:
            missing = isinstance(error, FileNotFoundError) or error.number == errno.ENOENT
            if not missing or attempt == _MAKE_TRIES - 1 or not root.is_dir():
                raise
            time.sleep(_RETRY_S)
            continue
        return made
    return []


def _enable_controllers(path: Path) -> None:
    """Enable for the children of ``path`` every controller that is used here and available."""
    available = (read_text(path / "cgroup.controllers") or "").split()
    enabled = (read_text(path / "cgroup.subtree_control") or "").split()
    for name in _CONTROLLERS:
        if name not in available or name in enabled:
            continue
        try:
            write_text(path / "cgroup.subtree_control", f"+{name}")
        except KernelFileError:
            # Limits and statistics need memory; the others only make the sandbox finer.
            if name == "memory":
                raise


def _use_hierarchy(path: Path) -> None:
    """Make a new v1 memory group count its children (the kernel always does since 5.11)."""
    if read_text(path / "memory.use_hierarchy") == "0":
        write_text(path / "memory.use_hierarchy", "1")


# ---------- The processes in a cgroup: listing them, killing them, and the groups that list none
# A *threaded* group of cgroup v2 holds threads, whose processes belong to the next group above that
# is no threaded one, its domain (Documentation/admin-guide/cgroup-v2, "Threads"). It lists no
# processes, can be killed only with its domain, and has no memory of its own. The same holds for a
# group that is *domain invalid*: one in a threaded subtree that has not been made threaded yet.

PROCS: Final = "cgroup.procs"
_WITHOUT_PROCESSES: Final = frozenset({"threaded", "domain invalid"})
_UNNAMED: Final = 0


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


Kind = Literal["v2", "hybrid", "none"]

OWN_PREFIX: Final = "stallward"
"""Only groups with a path component that starts with this are ever removed."""

MOST_SEARCHED: Final = 512
"""Of so many groups below one, processes are looked after that no sensor lists."""


def parse_name(name: str) -> str:
    """The canonical form of a group name; the empty string is the root of the hierarchy.

    Raises:
        GroupError: If the name could leave the hierarchy or cannot be a cgroup.
    """
    parts = name.strip("/").split("/") if name.strip("/") else []
    for part in parts:
        bad = part in {"", ".", ".."} or any(ord(c) < 32 or c == "\x7f" for c in part)
        if bad or part.startswith("cgroup.") or len(part.encode()) > 255:
            raise GroupError(
                f"{name!r} is not a cgroup name ({part!r} cannot be part of one).",
                next_step="Give the path relative to the cgroup root, e.g. stallward/1/app.",
            )
    return "/".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hierarchy:
    """The cgroup hierarchies of a node, as ``hierarchies.detect`` finds them."""

    kind: Kind = "none"
    memory_root: Path | None = None
    """Where memory is limited: the v1 memory hierarchy, or the v2 root."""
    unified_root: Path | None = None
    """The v2 hierarchy: PSI, cgroup.freeze, cgroup.kill."""
    controllers_v1: tuple[tuple[str, Path], ...] = ()
    """Further v1 controllers (cpu, blkio, freezer) and the roots of their hierarchies. A group
    need not be there: it is made only for callers that ask for it."""
    why: str = ""
    """One sentence on what this node has; if ``kind`` is "none", why nothing can be used."""
    proc: Path = field(default=Path("/proc"), compare=False, repr=False)
    """The /proc directory."""
    guests: Guests = field(default_factory=Guests, compare=False, repr=False)
    """Processes that no group counts as its own."""

    @property
    def roots(self) -> tuple[Path, ...]:
        """The distinct roots, memory first."""
        roots = (self.memory_root, self.unified_root)
        return tuple(dict.fromkeys(root for root in roots if root is not None))

    @property
    def further_roots(self) -> tuple[Path, ...]:
        """The distinct roots of the further v1 controllers."""
        roots = dict.fromkeys(root for _, root in self.controllers_v1)
        return tuple(root for root in roots if root not in self.roots)

    def group(self, name: str) -> Cgroup:
        """The group ``name`` in these hierarchies; it need not exist."""
        return Cgroup(name=name, hierarchy=self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cgroup:
    """One cgroup, by name; it need not exist.

    Raises:
        GroupError: If the name is not acceptable.
    """

    name: str
    """Path relative to the cgroup root; ``/`` is the whole machine."""
    hierarchy: Hierarchy = field(repr=False)
    """The node's hierarchies."""
    short_name: str = field(default="", compare=False)
    """What its levers are called by; by default the last part of its name."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", parse_name(self.name))
        short_name = self.short_name or self.name.rpartition("/")[2]
        object.__setattr__(self, "short_name", short_name)

    @property
    def is_root(self) -> bool:
        """Whether this is the whole machine."""
        return not self.name

    @property
    def is_own(self) -> bool:
        """Whether the name says that this project made the group."""
        return any(part.startswith(OWN_PREFIX) for part in self.name.split("/"))

    @property
    def memory_dir(self) -> Path | None:
        """The directory with the memory files."""
        root = self.hierarchy.memory_root
        return None if root is None else root / self.name

    @property
    def unified_dir(self) -> Path | None:
        """The directory in the v2 hierarchy."""
        root = self.hierarchy.unified_root
        return None if root is None else root / self.name

    @property
    def dirs(self) -> tuple[Path, ...]:
        """The distinct directories of the group, memory first."""
        return tuple(root / self.name for root in self.hierarchy.roots)

    @property
    def member_dirs(self) -> tuple[Path, ...]:
        """The directories that a process must be entered in: ``dirs``, and v1 ones that exist."""
        further = (root / self.name for root in self.hierarchy.further_roots)
        return (*self.dirs, *(path for path in further if path.is_dir()))

    @property
    def every_dir(self) -> tuple[Path, ...]:
        """The directories that the group has or could have, in every hierarchy."""
        return (*self.dirs, *(root / self.name for root in self.hierarchy.further_roots))

    def v1_dir(self, controller: str) -> Path | None:
        """The directory in the v1 hierarchy of ``controller``; ``None`` if there is none."""
        for name, root in self.hierarchy.controllers_v1:
            if name == controller:
                return root / self.name
        return None

    def child(self, name: str) -> Cgroup:
        """The group ``name`` below this one."""
        return Cgroup(name=f"{self.name}/{name}", hierarchy=self.hierarchy)

    def contains(self, other: Cgroup) -> bool:
        """Whether ``other`` is this group or below it."""
        return self.is_root or f"{other.name}/".startswith(f"{self.name}/")

    def exists(self) -> bool:
        """Whether the group is there in every hierarchy."""
        return bool(self.dirs) and all(path.is_dir() for path in self.dirs)

    def create(self, controllers: Iterable[str] = ()) -> None:
        """Make the group and its parents in every hierarchy; harmless if it is there.

        Args:
            controllers: Further v1 controllers to make it in, where they are mounted.

        Raises:
            GroupError: If it cannot be made; what this call made is removed again.
        """
        if not self.dirs:
            raise GroupError(
                f"Cannot make the group {self.name}: {self.hierarchy.why}",
                next_step="Use a node with cgroup v2, or v1 memory beside a v2 hierarchy.",
            )
        made: list[Path] = []
        try:
            for root in self.hierarchy.roots:
                made += make_dirs(root, self.name, v2=self.hierarchy.kind == "v2")
            wanted = set(controllers)
            further = {root for name, root in self.hierarchy.controllers_v1 if name in wanted}
            for root in further.intersection(self.hierarchy.further_roots):
                made += make_dirs(root, self.name, v2=False)
        except (OSError, KernelFileError) as error:
            for path in reversed(made):
                with contextlib.suppress(OSError):
                    path.rmdir()
            raise self._not_made(error) from error

    def _not_made(self, error: OSError | KernelFileError) -> GroupError:
        """Return why the kernel refuses to make the group."""
        if isinstance(error, KernelFileError):
            cause, step = error.cause, error.next_step
        else:
            folder = error.filename or self.name
            cause = f"{folder}: {error.strerror}"
            step = next_step(error.errno or 0, folder, place=Place.CGROUP)
        return GroupError(f"Cannot make the group {self.name}: {cause}.", next_step=step)

    def remove(self, *, timeout_s: float = 2.0) -> None:
        """Remove the group, everything below it, and parents of our own that are then empty.

        Processes must have left; the kernel may need a moment after the last exit, so this
        retries until ``timeout_s``. A group that is gone already is fine.

        Raises:
            GroupError: If something is left.
        """
        if self.is_root:
            raise GroupError("The root of a cgroup hierarchy cannot be removed.")
        deadline_s = time.monotonic() + timeout_s
        for top in self.member_dirs:
            while True:
                error = remove_dirs(top)
                if error is None:
                    break
                if time.monotonic() >= deadline_s:
                    raise GroupError(
                        f"Cannot remove {error.filename} ({error.strerror}); "
                        f"processes in it: {list(self.pids(recursive=True))}.",
                        next_step="Move or kill what runs in it.",
                    )
                time.sleep(_RETRY_S)
        self._prune_parents()

    def _prune_parents(self) -> None:
        parent = self.name.rpartition("/")[0]
        while parent and any(p.startswith(OWN_PREFIX) for p in parent.split("/")):
            for root in (*self.hierarchy.roots, *self.hierarchy.further_roots):
                with contextlib.suppress(OSError):
                    (root / parent).rmdir()
            parent = parent.rpartition("/")[0]

    def add_pid(self, pid: int) -> None:
        """Move a process (0: the caller) into the group, in every hierarchy.

        Raises:
            GroupGoneError: If the group is not there.
            GroupError: If the process is gone or the move is refused.
        """
        for path in self.member_dirs:
            try:
                write_text(path / "cgroup.procs", str(pid))
            except KernelFileError as error:
                if error.number in {errno.ENOENT, errno.ENODEV}:
                    raise GroupGoneError(f"The group {self.name} is not there.") from error
                if error.number == errno.ESRCH:
                    raise GroupError(
                        f"Cannot move {pid} to {self.name}: the process is gone."
                    ) from error
                raise GroupError(
                    f"Cannot move {pid} to {self.name}: {error.cause}.", next_step=error.next_step
                ) from error

    def pids(self, *, recursive: bool = False, most: int | None = None) -> tuple[int, ...]:
        """The processes in the group (and below it), ascending; none if it is gone.

        Guests are left out.

        Args:
            recursive: Whether those of the groups below count, too.
            most: At most so many groups are looked at; all by default.

        Raises:
            KernelFileError: If the list is there but cannot be read, or the group is threaded.
        """
        pids: set[int] = set()
        for top in self.dirs:
            pids |= named_pids(top)
            if recursive:  # the processes of a threaded group below are listed by its domain
                pids = pids.union(*map(listed_pids, Walk(top, most=most)))
        return tuple(sorted(pids - {0} - self.hierarchy.guests.pids))

    def among(self, pids: AbstractSet[int]) -> frozenset[int]:
        """Which of some processes are in the group or below it.

        The groups below are looked through while they are few. Of many, which their owner can
        make at will, each process is asked for its group instead.

        Raises:
            KernelFileError: If a list is there but cannot be read, or the group is threaded.
        """
        found: set[int] = set()
        for top in self.dirs:
            found |= pids & named_pids(top)
            folders = few_below(top)
            if folders is None:
                found |= {pid for pid in pids if is_below(self.name, pid, self.hierarchy.proc)}
            else:
                found = found.union(*(pids & listed_pids(path) for path in folders))
        return frozenset(found - self.hierarchy.guests.pids)

    def populated(self) -> bool:
        """Whether a process is in the group or below it, be it one that cannot be named."""
        events = None
        if self.unified_dir is not None:
            events = read_text(self.unified_dir / "cgroup.events")
        if events is not None and "populated 1" in events.splitlines():
            return True
        return any(listed_pids(path) for top in self.dirs for path in Walk(top))

    def kill(self, *, timeout_s: float = 5.0) -> tuple[int, ...]:
        """Kill everything in the group and below it, frozen or not.

        Returns:
            The processes still there after ``timeout_s``; normally none.

        Raises:
            GroupError: If the caller itself or the whole machine would be killed, or a process is
                left that cannot be named.
        """
        return kill_all(self, timeout_s)
