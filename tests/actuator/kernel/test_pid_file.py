"""A pid file may belong to anybody, and may be no file at all."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from stallward.actuator.kernel.process_roots import PidFile
from stallward.actuator.kernel.process_spec import ProcessesConfig
from stallward.actuator.kernel.process_table import start_time_ticks
from stallward.actuator.kernel.process_trees import Forest
from stallward.agent.desired import ProcessRef

PROC = Path("/proc")
STRANGER, OTHER = 12345, 12346
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other users")


def ref(pid: int) -> ProcessRef:
    ticks = start_time_ticks(PROC, pid)
    assert ticks is not None
    return ProcessRef(pid=pid, start_time_ticks=ticks)


def look(path: Path) -> tuple[ProcessRef | None, str]:
    file = PidFile(0, path)
    found = file.look(PROC)
    return found, file.fault


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "x.pid"
    made.write_text(f"{os.getpid()}\n")
    made.chmod(0o644)
    return made


@pytest.fixture
def strangers() -> Iterator[int]:
    """A process of a user who owns nothing."""
    with subprocess.Popen(["sleep", "60"], user=STRANGER, group=STRANGER) as process:
        yield process.pid
        process.kill()


def test_a_file_names_a_process(path: Path) -> None:
    assert look(path) == (ref(os.getpid()), "")


def test_a_service_may_write_more_below_its_pid(path: Path) -> None:
    path.write_text(f"{os.getpid()}\n" + "/var/lib/postgresql/data\n" * 1000)
    assert look(path) == (ref(os.getpid()), "")


@pytest.mark.parametrize("content", ["", "\n", "x", "-1", "0x1", "1" * 11, "٣", "\0" * 64])
def test_what_is_no_pid_is_waited_for(path: Path, content: str) -> None:
    path.write_text(content)
    assert look(path) == (None, "")


def test_a_number_that_no_process_has_is_not_waited_for(path: Path, tmp_path: Path) -> None:
    """Whoever gets it later is another program than the one that left its file behind."""
    path.write_text("4711\n")
    file, proc = PidFile(0, path), tmp_path / "proc"
    assert file.look(proc) is None
    (proc / "4711").mkdir(parents=True)
    numbers = " ".join(map(str, range(4, 53)))
    (proc / "4711/stat").write_text(f"4711 (other) S {numbers}\n")
    (proc / "4711/status").write_text("Name:\tother\nUid:\t0\t0\t0\t0\n")
    assert file.look(proc) is None
    path.write_text("4711 \n")
    assert file.look(proc) == ProcessRef(pid=4711, start_time_ticks=22), "it was written again"


def test_a_file_that_is_not_there_is_no_fault(tmp_path: Path) -> None:
    assert look(tmp_path / "none.pid") == (None, "")


@pytest.mark.parametrize("kind", ["pipe", "folder", "device without an end"])
def test_what_is_no_file_is_neither_waited_for_nor_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.pid"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path = Path("/dev/zero")
    assert look(path) == (None, f"{path} is not a file")


def test_a_link_is_not_followed(path: Path) -> None:
    link = path.with_name("link.pid")
    link.symlink_to(path)
    assert look(link) == (None, f"{link} is a symbolic link")


def test_a_file_that_every_user_can_write_names_nothing(path: Path) -> None:
    path.chmod(0o666)
    assert look(path) == (None, f"{path} can be written by every user")
    path.chmod(0o644)
    assert look(path) == (ref(os.getpid()), "")


@needs_root
def test_a_file_that_a_group_can_write_names_nothing(path: Path) -> None:
    os.chown(path, 0, STRANGER)
    path.chmod(0o664)
    assert look(path) == (None, f"{path} can be written by group {STRANGER}")


@needs_root
@pytest.mark.parametrize("mode", [0o600, 0o644, 0o664])
def test_a_users_file_names_that_users_processes_alone(
    path: Path, strangers: int, mode: int
) -> None:
    path.chmod(mode)
    path.write_text(str(strangers))
    os.chown(path, STRANGER, STRANGER)
    assert look(path) == (ref(strangers), "")
    os.chown(path, OTHER, OTHER)
    why = f"{path} is user {OTHER}'s and names process {strangers} of another user"
    assert look(path) == (None, why)
    path.write_text(str(os.getpid()))
    found, fault = look(path)
    assert found is None
    assert "of another user" in fault


def test_the_reason_is_a_fault_of_the_trees_and_passes(tmp_path: Path) -> None:
    path = tmp_path / "x.pid"
    os.mkfifo(path)
    forest = Forest(PROC, [None, ProcessesConfig(pidfile=path)], ["app", "bg"])
    forest.close()
    assert forest.faults == (f"{path} is not a file",)
    path.unlink()
    forest._finder.look()
    assert not forest.faults


@needs_root
def test_a_device_is_not_read(tmp_path: Path) -> None:
    """Reading /dev/zero would never end."""
    path = tmp_path / "zero.pid"
    os.mknod(path, 0o644 | stat.S_IFCHR, os.makedev(1, 5))
    assert look(path) == (None, f"{path} is not a file")
