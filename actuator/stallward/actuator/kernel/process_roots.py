"""Finding the roots of process trees: by pid, by pid file, by command line.

A separate thread reads the command lines: /proc/PID/cmdline is the process's own memory, so
reading it may wait for a page from swap, or for a lock that a starved process holds.
"""

from __future__ import annotations

import errno
import os
import pwd
import signal
import stat
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError, NodeError
from stallward.actuator.kernel.files import read_bytes, read_start
from stallward.actuator.kernel.process_spec import CommandPattern, ProcessesConfig
from stallward.actuator.kernel.process_table import read_seen, start_time_ticks, user_ids
from stallward.agent.desired import ProcessRef

# ---------- A pid file, which names the root of a process tree and may belong to somebody else
# Whoever can write the file decides what is paused or protected. So a user's file names only that
# user's processes, and a file that further users can write names none. It may also be no file at
# all: opening a named pipe would wait for ever, and /dev/zero has no end.

_MOST_BYTES: Final = 64
"""More is not read; some services write further lines below the pid."""
_MOST_DIGITS: Final = 10
_ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR})
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


class _RefusedError(Exception):
    """Says why a pid file is not followed."""


class PidFile:
    """The pid file of one tree.

    The pid is looked up only when the file changes: if another process uses it later, be it that the
    first one had ended before it was looked up, that process is not taken for the root.
    """

    def __init__(self, tree: int, path: Path) -> None:
        self.tree = tree
        self.path = path
        self.fault = ""
        """Why the file cannot be used; empty if it can, or is not there."""
        self._read: tuple[int, int, int] | None = None

    def look(self, proc: Path) -> ProcessRef | None:
        """Return the process that the file names, if it is there and the file has changed."""
        try:
            ref = self._look(proc)
        except _RefusedError as error:
            self.fault = f"{self.path} {error}"
            return None
        self.fault = ""
        return ref

    def _look(self, proc: Path) -> ProcessRef | None:
        try:
            fd = os.open(self.path, _FLAGS)
        except OSError as error:
            if error.errno in _ABSENT:
                return None
            link = error.errno == errno.ELOOP
            why = "is a symbolic link" if link else f"cannot be opened ({error.strerror})"
            raise _RefusedError(why) from error
        try:
            status = os.fstat(fd)
            mark = (status.st_mtime_ns, status.st_ino, status.st_size)
            if mark == self._read:
                return None
            if not stat.S_ISREG(status.st_mode):
                raise _RefusedError("is not a file")
            pid = parse_pid(os.read(fd, _MOST_BYTES))
        except OSError as error:
            raise _RefusedError(f"cannot be read ({error.strerror})") from error
        finally:
            os.close(fd)
        if pid is None:
            return None  # it is just being written
        ref = _named(proc, pid, status)
        self._read = mark
        return ref


def parse_pid(content: bytes) -> int | None:
    """Parse the pid at the beginning of a pid file; ``None`` if there is none."""
    words = content.split(None, 1)
    if not words or not words[0].isdigit() or len(words[0]) > _MOST_DIGITS:
        return None
    return int(words[0])


def _named(proc: Path, pid: int, status: os.stat_result) -> ProcessRef | None:
    """Return a process, if it is there and whoever can write the file may name it."""
    try:
        ticks = start_time_ticks(proc, pid)
        users = user_ids(proc, pid)
        if ticks is None or ticks != start_time_ticks(proc, pid):
            return None
    except KernelFileError as error:
        raise _RefusedError(f"names process {pid} ({error.cause})") from error
    owner = status.st_uid
    may_name_all = owner in {0, os.geteuid()}
    if not may_name_all and users != frozenset({owner}):
        raise _RefusedError(f"is user {owner}'s and names process {pid} of another user")
    if status.st_mode & stat.S_IWOTH:
        raise _RefusedError("can be written by every user")
    if status.st_mode & stat.S_IWGRP and status.st_gid != 0 and may_name_all:
        raise _RefusedError(f"can be written by group {status.st_gid}")
    return ProcessRef(pid=pid, start_time_ticks=ticks)


PERIOD_S: Final = 0.25
FIRST_PASS_S: Final = 2.0
"""How long a daemon that starts waits for the first pass, which looks at all processes."""
YOUNG_S: Final = 5.0
"""A process younger than this is matched at every pass: it may become a program that matches
(execve)."""
YOUNG_PER_PASS: Final = 500
"""Young processes that one pass matches, in turn: anybody can start thousands."""
OLD_PER_PASS: Final = 50
"""Older processes that one pass matches again, in turn."""
COMMAND_BYTES: Final = 4096
"""At most this much of a command line is matched."""
OWN_MODULE: Final = "stallward.actuator."
"""The prefix of the modules that a daemon's processes run; such a process is never a root."""
_MOST_ANCESTORS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeRoot:
    """A process that was found to be the root of a tree."""

    tree: int
    """The tree's place in the list of trees."""
    ref: ProcessRef


def user_id(user: str) -> int:
    """Return the number of a user that is given by name or number.

    Raises:
        NodeError: If there is no such user.
    """
    if user.isdigit():
        return int(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError) as error:
        raise NodeError(
            f"There is no user {user!r} on this machine.",
            next_step="Correct `user` in the configuration, or give the number.",
        ) from error


class _Command:
    """The pattern of one tree, matched against command lines.

    Any user can name a program as he likes. What a match is spared for must not be had that way:
    where the configuration gives no user, the protected application's tree takes processes of
    root, of this user, and of the first other user who matches, which is the application's.

    Args:
        tree: The tree's place.
        spec: The pattern, and the user if one is given.
        of_one_user: Whether only the first other user's processes count.
    """

    def __init__(self, tree: int, spec: ProcessesConfig, *, of_one_user: bool) -> None:
        self.tree = tree
        self.fault = ""
        """Which process was left out, and why; empty if none was."""
        self._pattern = CommandPattern(spec.command or "")
        self._uid = None if spec.user is None else user_id(spec.user)
        self._of_one_user = of_one_user and self._uid is None
        self._first_uid: int | None = None

    def matches(self, proc: Path, pid: int, line: str) -> bool:
        """Whether a process belongs to the tree."""
        if not self._pattern.found_in(line):
            return False
        if self._uid is None and not self._of_one_user:
            return True
        try:
            users = user_ids(proc, pid)
        except KernelFileError:
            return False
        if users is None:
            return False
        if self._uid is not None:  # a service of root may have taken on the user for some calls
            return self._uid in users and users <= {self._uid, 0}
        return self._is_the_applications(users, pid)

    def _is_the_applications(self, users: frozenset[int], pid: int) -> bool:
        others = sorted(users - {0, os.geteuid()})
        if not others:
            return True
        if self._first_uid is None and len(others) == 1:
            self._first_uid = others[0]
        if others == [self._first_uid]:
            return True
        self.fault = (
            f"process {pid} of user {others[-1]} has the command line of the protected "
            f"application and was left out, because that runs as user {self._first_uid}; "
            "give protected.processes a user"
        )
        return False


class RootFinder:
    """Finds the roots of all trees.

    Args:
        proc: The /proc directory.
        wanted: The trees, in order; ``None`` stands for a cgroup.
        applications: How many of them, the first ones, are protected.
        before_ticks: Processes given by pid must have started before this (field 22 of stat), so
            that a loop that is started again does not take over a pid that is used again.

    Raises:
        NodeError: If a user is unknown.
    """

    def __init__(
        self,
        proc: Path,
        wanted: Sequence[ProcessesConfig | None],
        applications: int = 1,
        *,
        before_ticks: int | None = None,
    ) -> None:
        self._proc = proc
        self._found: deque[TreeRoot] = deque()
        self._offered: deque[ProcessRef] = deque()
        self._young: dict[ProcessRef, float] = {}
        self._old: deque[ProcessRef] = deque()
        self._commands: list[_Command] = []
        self._files: list[PidFile] = []
        self._stop = threading.Event()
        self._looked = threading.Event()
        self._thread: threading.Thread | None = None
        for tree, spec in enumerate(wanted):
            if spec is not None and spec.command is not None:
                self._commands.append(_Command(tree, spec, of_one_user=tree < applications))
            elif spec is not None and spec.pidfile is not None:
                self._files.append(PidFile(tree, spec.pidfile))
            for pid in spec.pids if spec is not None else ():
                ref = _ref(proc, pid)
                if ref and (before_ticks is None or ref.start_time_ticks <= before_ticks):
                    self._found.append(TreeRoot(tree=tree, ref=ref))

    @property
    def faults(self) -> tuple[str, ...]:
        """Why pid files are not followed, and which processes were left out."""
        finders: tuple[PidFile | _Command, ...] = (*self._files, *self._commands)
        return tuple(finder.fault for finder in finders if finder.fault)

    def start(self) -> None:
        """Start the thread if a tree is given by pid file or command line.

        Waits for its first pass, but not for ever: a command line that cannot be read now keeps
        nobody from starting.
        """
        if self._thread is None and (self._commands or self._files):
            self._thread = threading.Thread(target=self._run, name="stallward-roots", daemon=True)
            self._thread.start()
            self._looked.wait(FIRST_PASS_S)

    def close(self) -> None:
        """End the thread without waiting for it, since it may wait for a starved process."""
        self._stop.set()

    def offer(self, processes: Iterable[ProcessRef]) -> None:
        """Have the command lines of new processes matched."""
        if self._commands:
            self._offered.extend(processes)

    def found(self) -> list[TreeRoot]:
        """Return the roots found since the last call."""
        roots = []
        while self._found:
            roots.append(self._found.popleft())
        return roots

    def look(self, *, most: int | None = None) -> None:
        """Make one pass over pid files and command lines; it may wait.

        Args:
            most: How many young processes it looks at; :data:`YOUNG_PER_PASS` by default.
        """
        for file in self._files:
            ref = file.look(self._proc)
            if ref is not None:
                self._found.append(TreeRoot(tree=file.tree, ref=ref))
        now_s = time.monotonic()
        while self._offered:
            self._young[self._offered.popleft()] = now_s
        for ref in tuple(islice(self._young, YOUNG_PER_PASS if most is None else most)):
            since_s = self._young.pop(ref)
            if not self._examine(ref):
                continue
            if now_s - since_s > YOUNG_S:
                self._old.append(ref)
            else:
                self._young[ref] = since_s
        for _ in range(min(OLD_PER_PASS, len(self._old))):
            ref = self._old.popleft()
            if self._examine(ref):
                self._old.append(ref)

    def _examine(self, ref: ProcessRef) -> bool:
        """Match one process; returns whether it is worth looking at again."""
        try:
            content = read_start(self._proc / str(ref.pid) / "cmdline", COMMAND_BYTES)
        except KernelFileError:
            return True
        if content is None:
            return False
        arguments = content.rstrip(b"\0").decode("utf-8", "replace").split("\0")
        if any(argument.startswith(OWN_MODULE) for argument in arguments):
            return False
        line = " ".join(arguments)
        for command in self._commands:
            if line and command.matches(self._proc, ref.pid, line):
                if _ref(self._proc, ref.pid) == ref:
                    self._found.append(TreeRoot(tree=command.tree, ref=ref))
                return False
        return True

    def _run(self) -> None:
        # The main thread handles signals.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        self.look(most=len(self._offered))
        self._looked.set()
        while not self._stop.wait(PERIOD_S):
            self.look()


def _ref(proc: Path, pid: int) -> ProcessRef | None:
    try:
        ticks = start_time_ticks(proc, pid)
    except KernelFileError:
        return None
    return None if ticks is None else ProcessRef(pid=pid, start_time_ticks=ticks)


class OwnProcesses:
    """The daemon's own processes: its guardian, its siblings, and its ancestors.

    Args:
        proc: The /proc directory.
    """

    def __init__(self, proc: Path) -> None:
        self._pid, parent = os.getpid(), os.getppid()
        self.ancestors = frozenset(_ancestors(proc, parent))
        command = (read_bytes(proc / str(parent) / "cmdline") or b"").split(b"\0")
        guarded = any(word.startswith(OWN_MODULE.encode()) for word in command)
        self._guardian = parent if guarded else None

    def holds(self, pid: int, parent: int) -> bool:
        """Whether a process is one of them."""
        return pid == self._pid or pid in self.ancestors or parent == self._guardian


def _ancestors(proc: Path, pid: int) -> Iterable[int]:
    for _ in range(_MOST_ANCESTORS):
        if pid <= 0:
            return
        yield pid
        seen = read_seen(proc, pid)
        if seen is None:
            return
        pid = seen.parent
