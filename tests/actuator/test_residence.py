"""What the loop does to stay prompt: letting go of code that only starting needed."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import ssl, sqlite3, re
from pathlib import Path
from stallward.actuator.residence import let_go_of_code, stay_in_memory

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
