"""Locks that keep two daemons from using the same journal or the same kernel settings.

A lock is a descriptor and is held until its last copy is closed. A child that inherits the
descriptor holds the lock, too: a daemon whose guardian was killed keeps its locks until its loop
has put everything back.

Whoever can open a file can lock it, also for reading. So a lock is on a file that only the
daemon's user can open. Where there can be none, it is on something that others can open as well,
and then a lock of theirs is no daemon's: it keeps nobody from starting or restoring.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from stallward.actuator.errors import DaemonError, KernelFileError
from stallward.actuator.kernel.paths import DEFAULT_PATHS, RUN, Paths
from stallward.actuator.kernel.process_table import user_ids

WAIT_S: Final = 2.0
"""How long to wait for an earlier daemon, which may still be restoring after it was killed."""
NODE_FOLDER: Final = "stallward-node"
"""The folder of the node's lock and those of sockets, in the folder for files of running programs."""
_NODE_LOCK: Final = "lock"
_RETRY_S: Final = 0.05
_READ_ONLY_OR_FULL: Final = frozenset({errno.EROFS, errno.ENOSPC, errno.EDQUOT})
_NOT_OURS: Final = frozenset({errno.ELOOP, errno.ENXIO, errno.EACCES, errno.EISDIR})
"""Errors of opening what another user has put where our lock belongs; EACCES: see
fs.protected_regular in proc(5)."""
_STOP_IT: Final = "Stop it, or give this one other paths."
_ANOTHER: Final = "Another stallward daemon runs on this machine."
_STOP_FIRST: Final = "Stop it first: both would tune the same kernel settings."
_OTHERS: Final = 0o077


def lock(fd: int, *, wait_s: float = 0.0, worth_waiting: Callable[[], bool] | None = None) -> bool:
    """Lock an open file exclusively; return whether that was possible in time.

    Args:
        fd: The open file.
        wait_s: How long to wait at most.
        worth_waiting: Asked whenever another process holds the lock; always, if not given.
    """
    deadline_s = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            over = time.monotonic() >= deadline_s
            if over or not (worth_waiting is None or worth_waiting()):
                return False
            time.sleep(_RETRY_S)
        else:
            return True


def lock_file(path: Path, in_use: str, *, wait_s: float = WAIT_S) -> int:
    """Lock the file ``path``, and create it if need be; return the descriptor.

    What another user has put there is replaced, so that no lock of his keeps the daemon out.

    Args:
        path: The file.
        in_use: The message if it is locked, e.g. ``Another daemon uses the journal.``
        wait_s: How long to wait for an earlier daemon.

    Raises:
        DaemonError: If another process holds the lock, or the file cannot be created.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = _open_own(path)
    except OSError as error:
        raise DaemonError(f"{path} cannot be locked: {error.strerror}.") from error
    if not lock(fd, wait_s=wait_s):
        os.close(fd)
        raise DaemonError(in_use, next_step=_STOP_IT)
    return fd


def _open_own(path: Path, *, dir_fd: int | None = None) -> int:
    """Open, or create, a file that only this user and root can open.

    Raises:
        OSError: If it cannot be created.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        fd = os.open(path, flags, 0o600, dir_fd=dir_fd)
    except OSError as error:
        if error.errno not in _NOT_OURS:
            raise
        if _only_ours(os.stat(path, dir_fd=dir_fd, follow_symlinks=False)):
            raise  # it is root's, whose daemon may live
    else:
        if _only_ours(os.fstat(fd)):
            return fd
        os.close(fd)
    os.unlink(path, dir_fd=dir_fd)
    return os.open(path, flags | os.O_EXCL, 0o600, dir_fd=dir_fd)


def _only_ours(status: os.stat_result) -> bool:
    """Whether a file is one that no other user but root can open."""
    owned = status.st_uid in {0, os.geteuid()}
    return owned and stat.S_ISREG(status.st_mode) and not status.st_mode & _OTHERS


def claim_journal_path(
    journal: Path, *, wait_s: float = WAIT_S, proc: Path = DEFAULT_PATHS.proc
) -> int:
    """Lock a daemon's journal; return the descriptor, or -1 if nothing there can be locked.

    The lock is on a file beside the journal. On a disk that is full or read-only it is on that
    file as it is, or else on the folder, because a journal must be undone even where nothing can
    be written.

    Raises:
        DaemonError: If another daemon holds the lock, or this user lacks the permission.
    """
    path = journal.with_name(f"{journal.name}.lock")
    in_use = f"Another daemon uses {path}."
    try:
        return lock_file(path, in_use, wait_s=wait_s)
    except DaemonError as error:
        number = getattr(error.__cause__, "errno", None)
        if number not in _READ_ONLY_OR_FULL:
            raise
    for target in (path, path.parent):
        try:
            fd = os.open(target, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue
        return _lock_shared(fd, proc, in_use, wait_s=wait_s)
    return -1


def _lock_shared(
    fd: int, proc: Path, in_use: str, *, next_step: str = _STOP_IT, wait_s: float
) -> int:
    """Lock what other users can open as well; return ``fd``, or -1 if one of them has locked it.

    Raises:
        DaemonError: If root or this user has locked it, as only a daemon does.
    """
    inode = os.fstat(fd).st_ino
    if lock(fd, wait_s=wait_s, worth_waiting=lambda: _held_by_us(proc, inode)):
        return fd
    held = _held_by_us(proc, inode)
    os.close(fd)
    if held:
        raise DaemonError(in_use, next_step=next_step)
    return -1


def _held_by_us(proc: Path, inode: int) -> bool:
    """Whether a process of root or of this user has locked a file; also if nobody can tell."""
    try:
        lines = (proc / "locks").read_text("ascii", "replace").splitlines()
    except OSError:
        return True
    for line in lines:
        words = line.split()  # 1: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE START END
        if len(words) < 6 or words[1] != "FLOCK" or words[5].rpartition(":")[2] != str(inode):
            continue
        if _is_ours(proc, words[4]):
            return True
    return False


def _is_ours(proc: Path, pid: str) -> bool:
    """Whether a process is wholly root's or this user's.

    A set-uid program runs as root with a descriptor that a user has locked before.
    """
    try:
        users = user_ids(proc, int(pid))
    except (KernelFileError, ValueError):
        return False
    # Of a process that has ended it is unknown who inherited its lock.
    return users is not None and users <= {0, os.geteuid()}


def claim_node(paths: Paths, *, runtime: Path | None = None) -> tuple[int, ...]:
    """Lock the machine's kernel settings for this daemon; return the descriptors.

    There is one set of them on a machine, also where a daemon runs in a sandbox. A second daemon
    would take the values of the first for the originals, and restore those. The lock is on a file
    in a folder of this user's. The directory of the settings is locked, too, because an earlier
    version locked only that, and a daemon that may not write to /run has nothing else. Any user
    can open that directory, so a lock on it counts only if root or this user holds it.

    Args:
        paths: The kernel's files.
        runtime: The folder in which the lock's folder is made; that of this user if not given
            and the settings are this machine's own.

    Raises:
        DaemonError: If another daemon holds the lock.
    """
    try:
        fd = os.open(paths.proc / "sys/vm", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:  # there are no settings to tune
        return ()
    if runtime is None and paths.proc == DEFAULT_PATHS.proc:
        runtime = runtime_folder(os.geteuid(), os.environ)
    shared = _lock_shared(fd, paths.proc, _ANOTHER, next_step=_STOP_FIRST, wait_s=WAIT_S)
    own = _open_node_lock(runtime)
    claimed = tuple(one for one in (shared, own) if one >= 0)
    if own >= 0 and not lock(own, wait_s=WAIT_S):
        for one in claimed:
            os.close(one)
        raise DaemonError(_ANOTHER, next_step=_STOP_FIRST)
    return claimed


def runtime_folder(uid: int, environment: Mapping[str, str]) -> Path | None:
    """The folder for files of a user's running programs; ``None`` if he has none of his own."""
    if uid == 0:
        return RUN
    for folder in (environment.get("XDG_RUNTIME_DIR", ""), f"{RUN}/user/{uid}"):
        try:
            status = os.lstat(folder)
        except OSError:
            continue
        if stat.S_ISDIR(status.st_mode) and status.st_uid == uid and not status.st_mode & 0o022:
            return Path(folder)
    return None


def _open_node_lock(runtime: Path | None) -> int:
    """Open the file of the node's lock; -1 if there can be none that only this user can open."""
    folder_fd = _open_node_folder(runtime)
    if folder_fd < 0:
        return -1
    try:
        return _open_own(Path(_NODE_LOCK), dir_fd=folder_fd)
    except OSError:  # e.g. read-only to a service
        return -1
    finally:
        os.close(folder_fd)


def _open_node_folder(runtime: Path | None) -> int:
    """Open the folder of the locks that others must not open; -1 if there can be none."""
    if runtime is None:
        return -1
    folder = runtime / NODE_FOLDER
    folder_fd = -1
    try:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        folder_fd = os.open(folder, flags)
        if os.fstat(folder_fd).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "another user's")
        if os.fstat(folder_fd).st_mode & _OTHERS:
            os.fchmod(folder_fd, 0o700)
    except OSError:
        if folder_fd >= 0:
            os.close(folder_fd)
        return -1
    return folder_fd


@contextlib.contextmanager
def socket_lock(socket: Path, *, runtime: Path | None, wait_s: float) -> Iterator[None]:
    """Lock the name of a socket until the block ends.

    The lock's file is in a folder of this user's, under a digest of the path, and goes with the
    lock. Beside the socket, whoever may write to its folder could put the file in its place. Only
    where this user has no such folder, or cannot write to it, it is there.

    Args:
        socket: The socket.
        runtime: The folder in which the locks' folder is made; see :func:`runtime_folder`.
        wait_s: How long to wait for an earlier daemon.

    Raises:
        DaemonError: If another process holds the lock, or there can be no file for it.
    """
    in_use = f"Another daemon serves {socket}."
    folder_fd = _open_node_folder(runtime)
    try:
        whole = socket.parent.resolve() / socket.name
        digest = hashlib.sha256(os.fsencode(whole)).hexdigest()
        name = Path(f"socket-{digest[:32]}.lock")
        fd = _lock_named(name, folder_fd, in_use, wait_s) if folder_fd >= 0 else -1
        if fd >= 0:
            with contextlib.ExitStack() as stack:
                stack.callback(os.close, fd)
                stack.callback(_remove, name, folder_fd)
                yield
            return
    finally:
        if folder_fd >= 0:
            os.close(folder_fd)
    beside = lock_file(socket.with_name(f"{socket.name}.lock"), in_use, wait_s=wait_s)
    try:
        yield
    finally:
        os.close(beside)


def _lock_named(name: Path, folder_fd: int, in_use: str, wait_s: float) -> int:
    """Lock a file that goes with its lock; -1 if it cannot be made.

    Raises:
        DaemonError: If another process holds the lock.
    """
    while True:
        try:
            fd = _open_own(name, dir_fd=folder_fd)
        except OSError:
            return -1
        if not lock(fd, wait_s=wait_s):
            os.close(fd)
            raise DaemonError(in_use, next_step=_STOP_IT)
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(fd), os.stat(name, dir_fd=folder_fd)):
                return fd
        os.close(fd)  # the earlier holder has removed it meanwhile


def _remove(name: Path, folder_fd: int) -> None:
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=folder_fd)
