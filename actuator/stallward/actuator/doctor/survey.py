"""What runs on a node and may be protected or held back: groups with their memory and services.

It reads /proc only: which processes there are, in which group each is, what it holds in memory, on
which ports it listens and which logs it writes. Processes in no group of their own are put together
by the name of their program. Nothing is changed.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.cgroups import OWN_PREFIX
from stallward.actuator.kernel.files import read_start, read_text
from stallward.actuator.kernel.hierarchies import detect
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.kernel.process_roots import COMMAND_BYTES
from stallward.actuator.kernel.process_spec import CommandPattern

PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
LEAST_BYTES: Final = 8 << 20
"""What holds less is not listed, unless it listens on a port: web servers are small."""
_LISTENS: Final = "0A"
"""TCP_LISTEN (include/net/tcp_states.h)."""
_CUT_AT: Final = 15
"""The kernel keeps so many bytes of a program's name in /proc/PID/comm (TASK_COMM_LEN)."""
_FIRST_WORDS: Final = 3
"""Where a script is named: behind its interpreter, which may have one argument."""
_LONGEST_NAME: Final = 255
"""NAME_MAX: nothing longer is the name of a file."""
_SOCKET: Final = re.compile(r"socket:\[([0-9]+)\]")
_LOG: Final = re.compile(r".*access.*\.log", re.IGNORECASE)


@dataclass(slots=True, kw_only=True)
class Workload:
    """A group, or the processes of one program that are in none of their own."""

    name: str
    """The group, or the program."""
    is_group: bool
    memory_bytes: int = 0
    """The resident memory of its processes; shared pages count for each."""
    processes: int = 0
    programs: set[str] = field(default_factory=set)
    lines: set[str] = field(default_factory=set)
    """The command lines of its processes."""
    ports: set[int] = field(default_factory=set)
    """The TCP ports that it listens on."""
    logs: set[Path] = field(default_factory=set)
    """The access logs that it has open."""

    @property
    def serves(self) -> bool:
        """Whether it answers requests, as far as can be seen."""
        return bool(self.ports)


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What was found."""

    kind: str
    """The kind of the cgroup hierarchies: ``v2``, ``hybrid`` or ``none``."""
    why: str
    """One sentence on them."""
    workloads: tuple[Workload, ...]
    """Those that serve first, and of these and the others the largest."""
    small: tuple[Workload, ...] = ()
    """Those that are not worth a line."""

    def find(self, name: str) -> tuple[Workload, ...]:
        """The workload of a name, or those whose last part it is."""
        exact = [one for one in self.workloads if one.name == name.strip("/")]
        last = [one for one in self.workloads if one.name.rpartition("/")[2] == name]
        return tuple(exact[:1] or last)

    def found_by(self, pattern: str) -> tuple[Workload, ...]:
        """The workloads, small ones as well, in whose command lines a pattern is found."""
        finds = CommandPattern(pattern).found_in
        return tuple(one for one in (*self.workloads, *self.small) if any(map(finds, one.lines)))


def survey(paths: Paths, least_bytes: int = LEAST_BYTES) -> Survey:
    """Look at the processes of a node.

    Args:
        paths: The kernel's files.
        least_bytes: What holds less memory and listens on no port is left out.
    """
    hierarchy = detect(paths)
    listening: dict[str, dict[str, set[int]]] = {}  # by network: a container has one of its own
    found: dict[tuple[bool, str], Workload] = {}
    for pid in _pids(paths.proc):
        folder = paths.proc / str(pid)
        line, memory_bytes = _command_line(folder), _resident_bytes(folder)
        program = _program(_text(folder / "comm"), line)
        if not program or not memory_bytes:
            continue  # it has ended, or is a thread of the kernel
        group = _group_of(folder, hierarchy.kind)
        if any(part.startswith(OWN_PREFIX) for part in group.split("/")):
            continue
        key = (bool(group), group or program)
        one = found.setdefault(key, Workload(name=key[1], is_group=key[0]))
        one.memory_bytes += memory_bytes
        one.processes += 1
        one.programs.add(program)
        one.lines.add(line)
        network = _network(folder)
        if network not in listening:
            listening[network] = _listening(folder if network else paths.proc)
        for target in _open_files(folder):
            inode = _SOCKET.fullmatch(target)
            if inode is not None:
                one.ports |= listening[network].get(inode[1], set())
            elif _LOG.fullmatch(target):
                one.logs.add(Path(target))
    every = sorted(found.values(), key=lambda one: (not one.serves, -one.memory_bytes, one.name))
    small = tuple(one for one in every if not one.serves and one.memory_bytes < least_bytes)
    listed = tuple(every[: len(every) - len(small)])
    return Survey(kind=hierarchy.kind, why=hierarchy.why, workloads=listed, small=small)


def _pids(proc: Path) -> Iterator[int]:
    own = os.getpid()
    for path in proc.iterdir():
        if path.name.isdigit() and int(path.name) != own:
            yield int(path.name)


def _text(path: Path) -> str:
    """The content of a file without the line break at its end; empty if it cannot be read."""
    try:
        return (read_text(path) or "").strip()
    except KernelFileError:
        return ""


def _command_line(folder: Path) -> str:
    """A command line as patterns are searched for in it; empty if it cannot be read."""
    try:
        content = read_start(folder / "cmdline", COMMAND_BYTES) or b""
    except KernelFileError:
        return ""
    return content.rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace")


def _program(name: str, line: str) -> str:
    """The name of a process's program, as its command line has it, where a pattern can find it.

    The kernel cuts the name, and a program may give itself another one: the command line of
    ``php-fpm8.2`` is ``php-fpm: pool www``.
    """
    # A title has a colon behind the name.
    words = line.split()[:_FIRST_WORDS]
    found = [last for word in words if (last := word.rpartition("/")[2].rstrip(":"))]
    found = [last for last in found if len(last.encode()) <= _LONGEST_NAME]
    cut = len(name.encode()) >= _CUT_AT
    same = (last for last in found if last == name or (cut and last.startswith(name)))
    return next(same, found[0] if found else name)


def _resident_bytes(folder: Path) -> int:
    words = _text(folder / "statm").split()
    return int(words[1]) * PAGE_BYTES if len(words) > 1 and words[1].isdigit() else 0


def _group_of(folder: Path, kind: str) -> str:
    """The group of a process, without the slash at its begin; empty for the root."""
    for line in _text(folder / "cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        named = controllers.split(",")
        if (kind == "v2" and number == "0") or (kind == "hybrid" and "memory" in named):
            return path.strip("/")
    return ""


def _open_files(folder: Path) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for path in (folder / "fd").iterdir():
            with contextlib.suppress(OSError):
                yield str(path.readlink())


def _network(folder: Path) -> str:
    """The network namespace of a process; empty where this user may not see it."""
    with contextlib.suppress(OSError):
        return str((folder / "ns" / "net").readlink())
    return ""


def _listening(folder: Path) -> dict[str, set[int]]:
    """The inode of each listening socket, with its ports (proc_net_tcp.txt of the kernel)."""
    ports: dict[str, set[int]] = defaultdict(set)
    for name in ("tcp", "tcp6"):
        for inode, port in _sockets(_text(folder / "net" / name).splitlines()[1:]):
            ports[inode].add(port)
    return ports


def _sockets(lines: Iterable[str]) -> Iterator[tuple[str, int]]:
    for line in lines:
        words = line.split()
        if len(words) > 9 and words[3] == _LISTENS:
            yield words[9], int(words[1].rpartition(":")[2], 16)
