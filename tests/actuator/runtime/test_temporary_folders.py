"""Temporary folders of killed processes go when the next of their kind is made."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stallward.actuator.runtime.temporary_folders import make_temporary_folder, temporary_folder

OWNER = """
import sys, time
from pathlib import Path
from stallward.actuator.runtime.temporary_folders import temporary_folder
with temporary_folder("twin", Path(sys.argv[1])) as folder:
    (folder / "run").mkdir()
    (folder / "run/ticks.parquet").touch()
    print(folder, flush=True)
    time.sleep(60)
"""


def test_a_temporary_folder_is_gone_after_its_block(tmp_path: Path) -> None:
    with temporary_folder("twin", tmp_path) as folder:
        (folder / "0").mkdir()
        assert folder.parent == tmp_path
        assert folder.stat().st_mode & 0o777 == 0o700
    with pytest.raises(KeyError), temporary_folder("twin", tmp_path):
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_a_killed_process_goes_when_the_next_is_made(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        left = Path(owner.stdout.readline().strip())
        make_temporary_folder("twin", tmp_path).rmdir()
        assert left.is_dir(), "its owner lives"
        owner.kill()
        owner.wait()
    assert left.is_dir()
    make_temporary_folder("block", tmp_path).rmdir()
    assert left.is_dir(), "of another kind"
    make_temporary_folder("twin", tmp_path).rmdir()
    assert list(tmp_path.iterdir()) == []


def test_folders_of_the_dead_may_have_to_be_old(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as dead:
        dead.wait()
    old_s = time.time() - 120
    names = {
        f"stallward-daemon-{dead.pid}-old": False,
        f"stallward-daemon-{dead.pid}-young": True,
        f"stallward-daemon-{os.getpid()}-old": True,
        "stallward-daemon-x": True,
    }
    for name in names:
        (tmp_path / name).mkdir()
        if not name.endswith("young"):
            os.utime(tmp_path / name, (old_s, old_s))
    make_temporary_folder("daemon", tmp_path, stale_s=60.0)
    assert {name: (tmp_path / name).exists() for name in names} == names


def test_a_link_of_that_name_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as dead:
        dead.wait()
    precious = tmp_path / "precious"
    precious.mkdir()
    link = tmp_path / f"stallward-twin-{dead.pid}-x"
    link.symlink_to(precious)
    make_temporary_folder("twin", tmp_path)
    assert precious.is_dir()
    assert link.is_symlink()
