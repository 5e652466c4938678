"""Locks keep a second daemon out, and no other user can use them to keep out the first."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stallward.actuator.errors import DaemonError
from stallward.actuator.kernel.paths import RUN, Paths
from stallward.actuator.runtime import locks
from stallward.actuator.runtime.locks import (
    NODE_FOLDER,
    claim_journal_path,
    claim_node,
    lock_file,
    runtime_folder,
)

STRANGER = 12345
"""A user who owns nothing here."""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "WAIT_S", 0.2)


class Node:
    """A made-up /proc with a folder of settings, and a folder for running programs."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.runtime = folder / "proc", folder / "run"
        self.settings = self.proc / "sys/vm"
        self.settings.mkdir(parents=True)
        self.runtime.mkdir()
        self.fds: list[int] = []
        (self.proc / "locks").write_text("")

    def claim(self) -> tuple[int, ...]:
        claimed = claim_node(Paths(proc=self.proc), runtime=self.runtime)
        self.fds += claimed
        return claimed

    def hold(self, path: Path, users: str, pid: int = 4711) -> None:
        """Lock a file as a process of these users does."""
        fd = os.open(path, os.O_RDONLY)
        self.fds.append(fd)
        fcntl.flock(fd, fcntl.LOCK_EX)
        inode = path.stat().st_ino
        line = f"7: FLOCK  ADVISORY  WRITE {pid} 00:05:{inode} 0 EOF\n"
        (self.proc / "locks").write_text(f"1: POSIX  ADVISORY  READ 1 00:05:{inode} 0 EOF\n{line}")
        (self.proc / str(pid)).mkdir()
        (self.proc / str(pid) / "status").write_text(f"Name:\tx\nUid:\t{users}\nGid:\t0 0 0 0\n")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    for fd in made.fds:
        os.close(fd)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_nodes_lock_is_where_only_this_user_can_open_it(node: Node) -> None:
    assert len(node.claim()) == 2, "the folder of an earlier version is locked, too"
    folder = node.runtime / NODE_FOLDER
    assert mode(folder) == 0o700
    assert [mode(file) for file in folder.iterdir()] == [0o600]
    with pytest.raises(DaemonError, match="Another stallward daemon runs"):
        node.claim()


def test_a_folder_that_others_could_open_is_closed_to_them(node: Node) -> None:
    (node.runtime / NODE_FOLDER).mkdir(mode=0o755)
    node.claim()
    assert mode(node.runtime / NODE_FOLDER) == 0o700


@pytest.mark.parametrize(
    ("users", "why"),
    [
        ("1000 1000 1000 1000", "a user's process"),
        ("1000 0 0 0", "a set-uid program that a user has started"),
        ("", "nobody can tell"),
    ],
)
def test_a_lock_of_another_user_keeps_no_daemon_out(
    node: Node, monkeypatch: pytest.MonkeyPatch, users: str, why: str
) -> None:
    """Every user can open the folder of the settings, and so lock it."""
    monkeypatch.setattr(time, "sleep", lambda _s: pytest.fail("it waited"))
    node.hold(node.settings, users)
    assert len(node.claim()) == 1, why


@pytest.mark.parametrize("users", ["0 0 0 0", f"{os.geteuid()} 0 0 {os.geteuid()}"])
def test_a_daemon_of_an_earlier_version_keeps_a_second_one_out(node: Node, users: str) -> None:
    """It locked only the folder of the settings."""
    node.hold(node.settings, users)
    with pytest.raises(DaemonError, match="Another stallward daemon runs"):
        node.claim()


def test_a_daemon_of_an_earlier_version_is_kept_out(node: Node) -> None:
    node.claim()
    fd = os.open(node.settings, os.O_RDONLY)
    node.fds.append(fd)
    assert not locks.lock(fd)


def test_a_link_in_place_of_the_folder_is_not_followed(node: Node, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o755)
    (node.runtime / NODE_FOLDER).symlink_to(tmp_path / "elsewhere")
    assert len(node.claim()) == 1
    assert mode(tmp_path / "elsewhere") == 0o755
    assert not list((tmp_path / "elsewhere").iterdir())


@needs_root
def test_a_strangers_folder_is_not_used(node: Node) -> None:
    folder = node.runtime / NODE_FOLDER
    folder.mkdir()
    os.chown(folder, STRANGER, STRANGER)
    assert len(node.claim()) == 1
    assert not list(folder.iterdir())


def test_a_daemon_that_cannot_write_to_run_still_excludes_another(node: Node) -> None:
    node.runtime.rmdir()
    assert len(node.claim()) == 1
    (node.proc / "locks").unlink()
    with pytest.raises(DaemonError, match="Another stallward daemon runs"):
        node.claim()


@needs_root
@pytest.mark.parametrize("user", [STRANGER, 0])
def test_a_lock_is_told_by_the_process_that_holds_it(user: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "sys/vm").mkdir(parents=True)
        (folder / "locks").symlink_to("/proc/locks")
        command = ["flock", str(folder / "sys/vm"), "sh", "-c", "echo held; cat"]
        with subprocess.Popen(
            command, user=user, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/"
        ) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
            (folder / str(holder.pid)).symlink_to(f"/proc/{holder.pid}")
            if user:
                assert claim_node(Paths(proc=folder)) == ()
            else:
                with pytest.raises(DaemonError, match="Another stallward daemon runs"):
                    claim_node(Paths(proc=folder))
            holder.stdin.close()  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["link", "pipe", "open to all"])
def test_what_lies_in_place_of_a_lock_is_replaced(tmp_path: Path, kind: str) -> None:
    path, precious = tmp_path / "x.lock", tmp_path / "precious"
    precious.write_text("kept")
    if kind == "link":
        path.symlink_to(precious)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.touch()
        path.chmod(0o644)
    held = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.flock(held, fcntl.LOCK_EX)
    fd = lock_file(path, "in use", wait_s=0.0)
    assert path.is_file()
    assert not path.is_symlink()
    assert mode(path) == 0o600
    assert (precious.read_text(), mode(precious)) == ("kept", 0o644)
    with pytest.raises(DaemonError, match="in use"):
        lock_file(path, "in use", wait_s=0.0)
    os.close(fd)
    os.close(held)


def test_a_lock_of_roots_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even in a folder that this user may write to: a daemon of root's may hold it."""
    path = tmp_path / "x.lock"
    path.touch(mode=0o600)
    inode = path.stat().st_ino

    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        with pytest.raises(DaemonError, match=r"cannot be locked: Permission denied"):
            lock_file(path, "in use", wait_s=0.0)
    assert path.stat().st_ino == inode


@pytest.mark.parametrize(("users", "claimed"), [("1000 1000 1000 1000", False), ("0 0 0 0", True)])
def test_a_journal_that_cannot_be_locked_waits_for_no_other_user(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, users: str, claimed: bool
) -> None:
    """On a read-only disk the lock is on the folder, which every user may open."""

    def read_only(*_: object, **__: object) -> int:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(locks, "_open_own", read_only)
    folder = tmp_path / "state"
    folder.mkdir()
    node.hold(folder, users)
    if claimed:
        with pytest.raises(DaemonError, match="Another daemon uses"):
            claim_journal_path(folder / "journal", wait_s=0.1, proc=node.proc)
    else:
        monkeypatch.setattr(time, "sleep", lambda _s: pytest.fail("it waited"))
        assert claim_journal_path(folder / "journal", wait_s=9.0, proc=node.proc) == -1


def test_a_user_has_a_runtime_folder_of_his_own_or_none(tmp_path: Path) -> None:
    uid = tmp_path.stat().st_uid or STRANGER
    assert runtime_folder(0, {"XDG_RUNTIME_DIR": str(tmp_path)}) == RUN
    own = tmp_path / "own"
    own.mkdir(mode=0o700)
    if own.stat().st_uid == uid:
        assert runtime_folder(uid, {"XDG_RUNTIME_DIR": str(own)}) == own
        own.chmod(0o777)
    assert runtime_folder(uid, {"XDG_RUNTIME_DIR": str(own)}) != own, "others may write to it"
    assert runtime_folder(uid, {"XDG_RUNTIME_DIR": "relative"}) != Path("relative")
