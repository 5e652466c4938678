"""Setting up processes: unused code is released, threads share a heap, priority is raised."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import threading
import time

import pytest

from stallward.actuator.loop import policy_loader
from stallward.actuator.loop.policy_loader import LoadResult, PolicyLoader
from stallward.actuator.runtime.process_setup import raise_priority

PROGRAM = """
import ssl, sqlite3, re
from pathlib import Path
from stallward.actuator.runtime.process_setup import release_code_pages, lock_memory

def resident_kib():
    text = Path("/proc/self/smaps_rollup").read_text()
    return int(re.search(r"Rss: +(\\d+)", text)[1])

if {locked}:
    lock_memory()
before = resident_kib()
release_code_pages()
after = resident_kib()
connection = sqlite3.connect(":memory:")
print(before, after, connection.execute("select 6 * 7").fetchone()[0])
"""


HEAPS = """
import ctypes, threading
from stallward.actuator.runtime.process_setup import use_one_heap

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
if {one}:
    use_one_heap()
together = threading.Barrier(6)

def allocate():
    together.wait()
    for _ in range(1000):
        libc.malloc(ctypes.c_size_t(2000))
    together.wait()  # a thread that ends leaves its heap to the next one

threads = [threading.Thread(target=allocate) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
libc.fflush(None)
"""


def heaps(*, one: bool) -> int:
    """How many heaps glibc makes for six threads."""
    program = HEAPS.format(one=one)
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    return done.stdout.count("<heap nr=")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_threads_share_one_heap() -> None:
    assert heaps(one=True) == 1
    assert heaps(one=False) > 1


def run(*, locked: bool) -> tuple[int, int, int]:
    program = PROGRAM.format(locked=locked)
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    before, after, answer = map(int, done.stdout.split())
    return before, after, answer


def test_code_pages_are_released_and_come_back_when_called() -> None:
    before, after, answer = run(locked=False)
    assert after < before - 2048
    assert answer == 42


def test_locked_code_still_runs_afterwards() -> None:
    before, after, answer = run(locked=True)
    assert after <= before
    assert answer == 42


def test_a_policy_is_loaded_at_the_priority_of_the_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def note_priority() -> None:
        seen.append(os.sched_getscheduler(0))

    def load(*_: object, **__: object) -> LoadResult:
        note_priority()
        return LoadResult(ticket=7)

    def go_first() -> None:
        raise_priority()
        note_priority()

    first = threading.Thread(target=go_first)
    first.start()
    first.join()
    monkeypatch.setattr(policy_loader, "load", load)
    loader = PolicyLoader()
    loader.start("any", 7, time.monotonic())
    deadline_s = time.monotonic() + 5.0
    while (loaded := loader.collect(time.monotonic())) is None and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert loaded == LoadResult(ticket=7)
    assert seen[0] == seen[1]
