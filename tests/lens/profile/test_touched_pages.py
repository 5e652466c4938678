"""What the processes of a group touch, in windows."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from stallward.actuator.kernel.cgroups import Cgroup
from stallward.lens.profile.touched_pages import TouchedPages

MIB = 1 << 20
# Holds 24 MiB, and touches the first of them that it is told to. A change of their protection has
# the processor forget which pages it has marked as referenced.
PROGRAM = """
import ctypes, mmap, sys
size = 24 << 20
held = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
held.madvise(mmap.MADV_NOHUGEPAGE)
held.write(bytes(size))
start = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(held)))
protect = ctypes.CDLL(None).mprotect
print(flush=True)
for line in sys.stdin:
    for protection in (mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_WRITE):
        protect(start, ctypes.c_size_t(size), protection)
    for place in range(0, int(line) << 20, 4096):
        held[place] = 1
    print(flush=True)
"""


class SomeProcesses:
    """A group as far as its processes are asked for."""

    def __init__(self) -> None:
        self.members: list[int] = []

    def pids(self, *, recursive: bool = False) -> list[int]:
        assert recursive
        return self.members


class Program:
    """A program that touches what it is told to."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def touch(self, mib: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{mib}\n")
        self.process.stdin.flush()
        self._answer()

    def _answer(self) -> None:
        assert self.process.stdout is not None
        self.process.stdout.readline()


@pytest.fixture
def programs() -> Iterator[list[Program]]:
    made = [Program(), Program()]
    yield made
    for program in made:
        program.process.kill()
        program.process.communicate()


def test_windows_grow_until_the_bits_are_cleared_again(programs: list[Program]) -> None:
    first, second = programs
    group = SomeProcesses()
    group.members = [first.process.pid]
    watch = TouchedPages(cast("Cgroup", group), Path("/proc"))
    watch._look()
    for mib in (4, 12, 0, 0, 0, 2):
        first.touch(mib)
        watch._look()
    looks = [one.looks for one in watch.since(0.0)]
    assert looks == [1, 2, 3, 4, 5, 1]
    touched = [one.touched_bytes for one in watch.since(0.0)]
    # With it comes what the interpreter itself touches.
    assert touched[1] - touched[0] == pytest.approx(8 * MIB, abs=MIB)
    assert touched[1] - MIB <= touched[4] <= touched[1] + 8 * MIB, "the same pages as before"
    assert touched[4] - touched[5] == pytest.approx(10 * MIB, abs=4 * MIB), "of five windows"
    group.members = [first.process.pid, second.process.pid, 4194000]
    before = watch.since(0.0)[-1].touched_bytes
    watch._look()  # the second one is new, and all of it counts; the third has ended
    assert watch.since(0.0)[-1].touched_bytes - before > 20 * MIB
