"""What the loop does to stay prompt: code that only starting needed, threads that hold a lock."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from stallward.actuator.loop import policy_loader
from stallward.actuator.loop.policy_loader import Loaded, PolicyLoader
from stallward.actuator.runtime.process_setup import run_first

PROGRAM = """
import ssl, sqlite3, re
from pathlib import Path
from stallward.actuator.runtime.process_setup import let_go_of_code, stay_in_memory

def resident_kib():
    text = Path("/proc/self/smaps_rollup").read_text()
    return int(re.search(r"Rss: +(\\d+)", text)[1])

if {locked}:
    stay_in_memory()
before = resident_kib()
let_go_of_code()
after = resident_kib()
connection = sqlite3.connect(":memory:")
print(before, after, connection.execute("select 6 * 7").fetchone()[0])
"""


def run(*, locked: bool) -> tuple[int, int, int]:
    program = PROGRAM.format(locked=locked)
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    before, after, answer = map(int, done.stdout.split())
    return before, after, answer


def test_code_is_let_go_and_comes_back_when_it_is_called() -> None:
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

    def load(*_: object) -> Loaded:
        note_priority()
        return Loaded(ticket=7)

    def go_first() -> None:
        run_first()
        note_priority()

    first = threading.Thread(target=go_first)
    first.start()
    first.join()
    monkeypatch.setattr(policy_loader, "load", load)
    loader = PolicyLoader(None)
    loader.start("any", 7)
    deadline_s = time.monotonic() + 5.0
    while (loaded := loader.collect()) is None and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert loaded == Loaded(ticket=7)
    assert seen[0] == seen[1]
