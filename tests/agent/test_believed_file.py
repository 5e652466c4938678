"""A file that decides what root does is believed only if nobody else can have written it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stallward.agent.believed_file import check_believed, read_believed
from stallward.agent.errors import UnbelievedFileError

STRANGER = 12345
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other users")


def test_a_file_of_ours_is_read_up_to_its_bound(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345")
    (tmp_path / "link").symlink_to(tmp_path / "f")
    assert read_believed(tmp_path / "link", 5) == b"12345"
    with pytest.raises(UnbelievedFileError, match="5 bytes or more, and at most 4 are read"):
        read_believed(tmp_path / "f", 4)
    with pytest.raises(FileNotFoundError):
        read_believed(tmp_path / "none", 4)


def test_what_waits_for_a_writer_or_never_ends_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "f")
    for path in (tmp_path / "f", Path("/dev/zero")):
        with pytest.raises(UnbelievedFileError, match="not a regular file"):
            read_believed(path, 4)


@needs_root
@pytest.mark.parametrize(("owner", "mode"), [(0, 0o666), (0, 0o664), (STRANGER, 0o600)])
def test_root_believes_no_file_that_others_can_write(
    tmp_path: Path, owner: int, mode: int
) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x")
    path.chmod(mode)
    os.chown(path, owner, STRANGER)
    with pytest.raises(UnbelievedFileError, match=f"owner is {owner}, its mode {mode:o}"):
        read_believed(path, 4)
    with pytest.raises(UnbelievedFileError, match="others may have written it"):
        check_believed(path, path.stat())
