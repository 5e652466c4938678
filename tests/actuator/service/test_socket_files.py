"""The files of the service's sockets: their modes, their group, and what lies in their place."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from stallward.actuator.errors import DaemonError
from stallward.actuator.runtime.locks import NODE_FOLDER, socket_lock
from stallward.actuator.runtime.process_setup import group_id
from stallward.actuator.service.socket_files import (
    claimed_socket,
    give_to_group,
    make_room,
    socket_mode,
)

STRANGER = 12345
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other users")


def bind(path: Path, mode: int = 0o600) -> None:
    with socket.socket(socket.AF_UNIX) as made, socket_mode(mode):
        made.bind(str(path))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("wanted", [0o600, 0o660, 0o666])
def test_a_socket_has_its_mode_from_the_start(tmp_path: Path, wanted: int) -> None:
    before = os.umask(0o022)
    bind(tmp_path / "s", wanted)
    assert mode(tmp_path / "s") == wanted
    assert os.umask(before) == 0o022, "as it was"


def test_a_socket_that_was_left_makes_room(tmp_path: Path) -> None:
    bind(tmp_path / "s")
    make_room(tmp_path / "s")
    make_room(tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_what_is_no_socket_and_ours_stays(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("precious")
    with pytest.raises(DaemonError, match="not a socket"), claimed_socket(tmp_path / "s"):
        pass
    assert (tmp_path / "s").read_text() == "precious"


@needs_root
@pytest.mark.parametrize("kind", ["file", "folder", "link", "pipe"])
def test_what_a_stranger_put_there_keeps_no_service_out(tmp_path: Path, kind: str) -> None:
    path, precious = tmp_path / "s", tmp_path / "precious"
    precious.write_text("kept")
    if kind == "folder":
        (path / "full").mkdir(parents=True)
    elif kind == "link":
        path.symlink_to(precious)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.touch()
    os.chown(path, STRANGER, STRANGER, follow_symlinks=False)
    with claimed_socket(path):
        bind(path)
        assert stat.S_ISSOCK(path.lstat().st_mode)
    assert precious.read_text() == "kept"


@pytest.mark.parametrize("folder_mode", [0o777, 0o775])
def test_what_is_ours_is_moved_aside_where_others_may_have_moved_it_to(
    tmp_path: Path, folder_mode: int
) -> None:
    """The application once put the service's own lock in the place of its socket."""
    folder = tmp_path / "of the application"
    folder.mkdir()
    folder.chmod(folder_mode)
    (folder / "s").write_text("whoever's")
    with claimed_socket(folder / "s"):
        bind(folder / "s")
        assert [path.name for path in folder.iterdir() if path.name == "s"] == ["s"]
        (aside,) = (path for path in folder.iterdir() if path.name != "s")
        assert aside.read_text() == "whoever's"
    assert list(folder.iterdir()) == [aside], "the service leaves nothing there"


def test_a_socket_is_locked_where_nobody_else_can_move_the_lock(tmp_path: Path) -> None:
    runtime = tmp_path / "run"
    runtime.mkdir()
    (tmp_path / "app").mkdir()
    (tmp_path / "same").symlink_to(tmp_path / "app")
    with socket_lock(tmp_path / "app/s", runtime=runtime, wait_s=0.0):
        (lock,) = (runtime / NODE_FOLDER).iterdir()
        assert stat.S_IMODE(lock.stat().st_mode) == 0o600
        assert not list((tmp_path / "app").iterdir())
        with (
            pytest.raises(DaemonError, match="Another daemon serves"),
            socket_lock(tmp_path / "same/s", runtime=runtime, wait_s=0.0),
        ):
            pass
        with socket_lock(tmp_path / "app/other", runtime=runtime, wait_s=0.0):
            pass
    assert not list((runtime / NODE_FOLDER).iterdir()), "it goes with the service"
    with socket_lock(tmp_path / "app/s", runtime=None, wait_s=0.0):
        assert (tmp_path / "app/s.lock").exists(), "there is no other place"


@needs_root
def test_a_socket_is_given_to_a_group(tmp_path: Path) -> None:
    bind(tmp_path / "s", 0o660)
    give_to_group(tmp_path / "s", STRANGER)
    status = (tmp_path / "s").stat()
    assert (status.st_gid, stat.S_IMODE(status.st_mode)) == (STRANGER, 0o660)


def test_only_the_services_socket_is_given_to_a_group(tmp_path: Path) -> None:
    """What lies at the path is asked first: a link would lead to any file."""
    (tmp_path / "precious").write_text("")
    (tmp_path / "s").symlink_to(tmp_path / "precious")
    for path in (tmp_path / "s", tmp_path / "precious"):
        with pytest.raises(OSError, match="not the service's socket"):
            give_to_group(path, STRANGER)
    assert (tmp_path / "precious").stat().st_gid != STRANGER


def test_a_group_has_a_name_or_a_number() -> None:
    assert group_id("root", "report_group") == 0
    assert group_id("12345", "report_group") == 12345
    with pytest.raises(DaemonError, match=r"no group 'nobody-at-all'.*`socket_group`"):
        group_id("nobody-at-all", "socket_group")
