"""What is said where the kernel refuses: the cause in a container, and never "be root" to root."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from stallward.actuator.errors import GroupError, KernelFileError, NodeError
from stallward.actuator.kernel import cgroups, files
from stallward.actuator.kernel.cgroups import Hierarchy
from stallward.actuator.kernel.hierarchies import detect, require, unwritable
from stallward.actuator.kernel.memory.pressure import why_no_psi
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.kernel.refusals import (
    Place,
    more_rights,
    next_step,
    place_of,
    why_not_writable,
)

CONTROL = Path("/sys/fs/cgroup/a/cgroup.subtree_control")
NO_RIGHTS = (errno.EACCES, errno.EPERM)
NUMBERS = (*NO_RIGHTS, errno.EROFS, errno.EBUSY, errno.ENOENT, errno.EAGAIN, errno.EIO, 0)


@pytest.mark.parametrize("place", list(Place))
@pytest.mark.parametrize("number", NUMBERS)
def test_root_is_never_told_to_be_root(place: Place, number: int) -> None:
    said = next_step(number, CONTROL, place=place, uid=0)
    assert "as root" not in said.lower()
    if number in NO_RIGHTS:
        assert "CAP_" in said
        assert "Run as root" in next_step(number, CONTROL, place=place, uid=1000)


@pytest.mark.parametrize("uid", [0, 1000])
@pytest.mark.parametrize(
    ("number", "path", "says"),
    [
        (errno.EROFS, CONTROL, "mounted read-only: give the container /sys/fs/cgroup read-write"),
        (errno.EROFS, "/proc/sys/vm/swappiness", "give the container /proc/sys"),
        (errno.EROFS, "/var/lib/stallward/journal", "ReadWritePaths"),
        (errno.EBUSY, CONTROL, "processes in this very group"),
        (errno.ENOENT, CONTROL, "Delegate=yes"),
        (errno.EAGAIN, "/sys/fs/cgroup/a", "cgroup.max.descendants"),
        (errno.EBUSY, "/sys/fs/cgroup/a/memory.max", ""),
        (errno.ENOENT, "/sys/fs/cgroup/a/memory.max", ""),
    ],
)
def test_each_refusal_has_the_next_step_of_a_container(
    number: int, path: Path | str, says: str, uid: int
) -> None:
    said = next_step(number, path, uid=uid)
    assert says in said
    assert bool(said) == bool(says)


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/sys/fs/cgroup/memory/a", Place.CGROUP),
        ("/tmp/x/memory.high", Place.CGROUP),
        ("/proc/7/io", Place.PROCESS),
        ("/proc/sys/vm/swappiness", Place.SETTING),
        ("/sys/kernel/mm/x", Place.SETTING),
        ("/run/x", Place.OTHER),
    ],
)
def test_the_place_is_told_by_the_path(path: str, place: Place) -> None:
    assert place_of(path) is place


def test_a_missing_capability_of_root_is_the_containers() -> None:
    assert "container" in more_rights("CAP_KILL", uid=0)
    assert "root" not in more_rights("CAP_KILL", uid=0)
    assert "Run as root" in more_rights("CAP_KILL", uid=1000)


def test_a_read_only_mount_is_told_from_a_missing_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert why_not_writable(tmp_path) == 0
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert why_not_writable(tmp_path) == errno.EACCES
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_RDONLY))
    assert why_not_writable(tmp_path) == errno.EROFS
    hierarchy = Hierarchy(kind="v2", memory_root=tmp_path, unified_root=tmp_path)
    (said,) = unwritable(hierarchy)
    assert said.startswith(f"permission: {tmp_path} is mounted read-only (It is mounted")
    assert "as root" not in said


@pytest.fixture
def container(tmp_path: Path) -> Hierarchy:
    (tmp_path / "cgroup.controllers").write_text("cpu memory io\n")
    (tmp_path / "cgroup.subtree_control").write_text("\n")
    return Hierarchy(kind="v2", memory_root=tmp_path, unified_root=tmp_path)


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.EBUSY, "mkdir init"),
        (errno.EROFS, "mounted read-only"),
        (errno.EACCES, "CAP_DAC_OVERRIDE"),
        (errno.EPERM, "CAP_DAC_OVERRIDE"),
    ],
)
def test_a_group_that_cannot_be_made_says_why_once(
    container: Hierarchy, number: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, value: str) -> None:
        raise files.failure(path, OSError(number, "x"), f"write {value!r}")

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(cgroups, "write_text", refuse)
    with pytest.raises(GroupError) as caught:
        container.group("stallward/1/app").create()
    assert str(caught.value).count(says) == 1
    assert "as root" not in str(caught.value)


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_folder_that_cannot_be_made_says_why(
    container: Hierarchy, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(GroupError) as caught:
        container.group("app").create()
    assert caught.value.next_step == next_step(number, "/sys/fs/cgroup/app")


def test_reading_and_psi_have_the_step_of_their_errno(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    error = files.failure(tmp_path / "memory.max", OSError(errno.EPERM, "x"), "read")
    assert isinstance(error, KernelFileError)
    assert "CAP_DAC_OVERRIDE" in error.next_step

    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(errno.EACCES, "x")

    monkeypatch.setattr(os, "open", refuse)
    no_psi = why_no_psi(tmp_path / "memory.pressure")
    assert no_psi is not None
    assert "as root" not in no_psi.next_step


def test_a_controller_that_is_not_delegated_is_told_from_one_that_is_off(tmp_path: Path) -> None:
    paths = Paths(proc=tmp_path / "proc", cgroup=tmp_path / "cgroup")
    (paths.proc / "self").mkdir(parents=True)
    paths.cgroup.mkdir()
    (paths.proc / "self/mounts").write_text("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")
    (paths.cgroup / "cgroup.controllers").write_text("cpu pids\n")
    assert "delegated" not in detect(paths).why
    (paths.cgroup / "cgroup.type").write_text("domain\n")
    assert "Delegate=yes" in detect(paths).why
    with pytest.raises(NodeError, match="Delegate=yes"):
        require(paths)


@pytest.mark.live
def test_a_real_read_only_mount_is_known(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; "
        "from stallward.actuator.kernel.refusals import why_not_writable; "
        "sys.exit(why_not_writable(Path(sys.argv[1])))"
    )
    script = 'mount -t tmpfs -o ro none "$1" && exec "$2" -c "$3" "$1"'
    command = ["unshare", "-m", "sh", "-c", script, "-", str(tmp_path), sys.executable, code]
    assert subprocess.run(command, check=False).returncode == errno.EROFS
