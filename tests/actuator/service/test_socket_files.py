"""The files of the service's sockets: their modes, their group, and what lies in their place."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from stallward.actuator.errors import DaemonError
from stallward.actuator.service.socket_files import (
    claim_socket,
    give_to_group,
    group_id,
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
    with pytest.raises(DaemonError, match="not a socket"):
        claim_socket(tmp_path / "s")
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
    os.close(claim_socket(path))
    bind(path)
    assert stat.S_ISSOCK(path.lstat().st_mode)
    assert precious.read_text() == "kept"


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
