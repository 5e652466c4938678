"""After a death what the daemon wrote is told from what another program wrote since."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from stallward.actuator.guardian.restore_command import restore_left
from stallward.actuator.ipc.shared_memory import (
    PLACES,
    TABLE_BYTES,
    SharedMemory,
    in_force,
    read_touched,
    touch_path,
)
from stallward.actuator.journal.disk import Journal
from stallward.actuator.journal.entries import FileValue, Noted, may_be_ours, number_of, numbers_of
from stallward.actuator.journal.restore import left_alone, restore
from stallward.actuator.kernel.paths import Paths

MIB = 1 << 20


class Dead:
    """What a daemon left that was killed while it limited one pod."""

    def __init__(self, folder: Path, name: str = "memory.limit_in_bytes") -> None:
        self.paths = Paths(proc=folder / "proc", cgroup=folder)
        boot = self.paths.proc / "sys/kernel/random/boot_id"
        boot.parent.mkdir(parents=True)
        boot.write_text("this-boot\n")
        (self.paths.proc / "self").mkdir()
        shutil.copy("/proc/self/mountinfo", self.paths.proc / "self/mountinfo")
        self.file = folder / "kubepods/pod1" / name
        self.file.parent.mkdir(parents=True)
        self.file.write_text(str(400 * MIB))
        self.journal = Journal(folder / "journal", self.paths)
        self.memory = SharedMemory.make(self.journal.path, self.paths, ("b0",))
        self.entry = Noted(FileValue(self.file, str(400 * MIB)), 3)

    def limits(self, *values: str) -> None:
        """Note the entry and mark it as the loop does, then leave the last value in force."""
        self.journal.append([self.entry], "hold")
        self.memory.touch(self.entry.place, values)
        self.file.write_text(values[-1])
        self.journal.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder on a tmpfs, on which the marks outlive the daemon."""
    made = Path(f"/dev/shm/stallward-test-written-{os.getpid()}")
    made.mkdir()
    yield made
    shutil.rmtree(made)


@pytest.fixture
def dead(folder: Path) -> Dead:
    return Dead(folder)


def test_a_limit_of_ours_is_undone(dead: Dead) -> None:
    dead.limits(str(300 * MIB), str(200 * MIB))
    for left in (300 * MIB, 200 * MIB, 200 * MIB - 4096, 400 * MIB):
        dead.file.write_text(str(left))
        assert restore(dead.memory.in_force([dead.entry]), dead.paths) == ()
        assert dead.file.read_text() == str(400 * MIB)


@pytest.mark.parametrize("resized_mib", [250, 800, 100])
def test_what_the_kubelet_wrote_since_stays(dead: Dead, resized_mib: int) -> None:
    dead.limits(str(300 * MIB), str(200 * MIB))
    dead.file.write_text(str(resized_mib * MIB))
    entries = dead.memory.in_force([dead.entry])
    assert left_alone(entries) == {dead.file: str(resized_mib * MIB)}
    for _ in range(2):  # a guardian restores again when the last thread has ended
        assert restore(entries, dead.paths) == ()
        assert dead.file.read_text() == str(resized_mib * MIB)


def test_the_command_says_what_it_left(dead: Dead) -> None:
    dead.limits(str(400 * MIB), str(200 * MIB))
    dead.file.write_text(str(800 * MIB))
    done = restore_left(dead.journal.path, dead.paths, wait_s=0.1)
    assert (done.undone, done.problems) == ((), ())
    said = f"{dead.file} is {800 * MIB} now, set by another program; left as it is."
    assert done.notes == (said,)
    assert dead.file.read_text() == str(800 * MIB)
    assert not dead.journal.path.exists()


def test_without_the_values_the_original_is_written(dead: Dead) -> None:
    dead.limits(str(400 * MIB), str(200 * MIB))
    dead.file.write_text(str(800 * MIB))
    dead.memory.touch(dead.entry.place)  # by a lever that does not say what it writes
    assert left_alone(dead.memory.in_force([dead.entry])) == {}
    assert restore(dead.memory.in_force([dead.entry]), dead.paths) == ()
    assert dead.file.read_text() == str(400 * MIB)


def test_a_table_of_an_earlier_version_is_not_used(dead: Dead) -> None:
    dead.limits(str(400 * MIB), str(200 * MIB))
    dead.file.write_text(str(800 * MIB))
    touch_path(dead.journal.path).write_bytes(bytes(PLACES + 100))
    touch_path(dead.journal.path).chmod(0o600)
    assert read_touched(dead.journal.path) is None
    done = restore_left(dead.journal.path, dead.paths, wait_s=0.1)
    assert done.undone == (f"{dead.file} = {400 * MIB}",)


def test_a_second_entry_of_unknown_values_has_the_first_original_written(dead: Dead) -> None:
    dead.limits(str(400 * MIB), str(200 * MIB))
    dead.file.write_text(str(800 * MIB))
    both = (*dead.memory.in_force([dead.entry]), FileValue(dead.file, "5"))
    assert restore(both, dead.paths) == ()
    assert dead.file.read_text() == str(400 * MIB)


def test_a_cpu_setting_is_not_rounded(folder: Path) -> None:
    dead = Dead(folder, "cpu.shares")
    dead.limits("1024", "102")
    dead.file.write_text("100")  # the kubelet's
    assert restore(dead.memory.in_force([dead.entry]), dead.paths) == ()
    assert dead.file.read_text() == "100"
    dead.file.write_text("102")
    assert restore(dead.memory.in_force([dead.entry]), dead.paths) == ()
    assert dead.file.read_text() == str(400 * MIB)


def test_the_last_place_has_its_values() -> None:
    entry = Noted(FileValue(Path("/a"), "1"), PLACES - 1)
    table = bytes([1]) * PLACES + bytes(TABLE_BYTES - PLACES)
    (found,) = in_force([entry], table)
    assert isinstance(found, Noted)
    assert found.written == (0, 0)
    (beyond,) = in_force([Noted(FileValue(Path("/a"), "1"), PLACES)], table)
    assert beyond.written == ()  # type: ignore[union-attr]


def test_each_value_has_a_number() -> None:
    assert number_of("0") == 1
    assert number_of("max") == number_of("max\n") != number_of("-1")
    assert number_of("50000  100000") == number_of("50000 100000")
    assert number_of("9" * 30) > 1 << 63
    assert numbers_of(()) == (0, 0)
    assert may_be_ours("cpu.max", "anything", ())
    assert may_be_ours("cpu.max", "anything", (0, 5))
    assert not may_be_ours("cpu.max", "max 100000", numbers_of(("1", "50000 100000")))
    assert may_be_ours("memory.max", "4096", numbers_of(("1", "8191")))
    assert not may_be_ours("memory.max", "8192", numbers_of(("1", "8191")))
