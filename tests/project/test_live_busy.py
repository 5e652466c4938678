"""Live tests beside a busy core: failures are counted, and repeated tests are reported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from live_busy import busy_core, read_run, report

ROOT = Path(__file__).parents[2]

PASSED = "== 12 passed, 1 rerun in 7.00s =="
OUTPUT = f"""..R.
== short test summary info ==
RERUN tests/a_live.py::test_that_was_late
{PASSED}
"""
FAILED = """F
FAILED tests/a_live.py::test_that_fails - assert False
ERROR tests/b_live.py::test_without_a_group
== 1 failed, 1 error in 3.00s ==
"""


def test_failed_and_repeated_tests_are_counted_by_name() -> None:
    passed = read_run(OUTPUT, status=0, took_s=7.0)
    failed = read_run(FAILED, status=1, took_s=3.0)
    assert passed.summary == PASSED.strip("= ")
    assert report([passed, failed, failed]).splitlines() == [
        "2 of 3 runs failed.",
        "failed 2 times: tests/a_live.py::test_that_fails",
        "failed 2 times: tests/b_live.py::test_without_a_group",
        "repeated 1 times: tests/a_live.py::test_that_was_late",
    ]


def test_a_run_without_output_counts_by_its_exit_status() -> None:
    assert report([read_run("", status=3, took_s=0.0)]) == "1 of 1 runs failed.\n"


def test_the_busy_process_ends_with_its_context() -> None:
    with busy_core() as pid:
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


FLAKY = """
import pytest
tries = []

@pytest.mark.live
def test_at_the_second_try():
    tries.append(1)
    print("saw the try", len(tries))
    assert len(tries) == 2

@pytest.mark.live
def test_at_the_fourth_try():
    tries.append(1)
    assert len(tries) == 99
"""


@pytest.mark.slow
def test_a_live_test_is_repeated_twice_at_most_and_what_it_saw_is_printed(tmp_path: Path) -> None:
    conftest = (ROOT / "tests/conftest.py").read_text()
    written = tmp_path / "reruns.txt"
    (tmp_path / "conftest.py").write_text(
        conftest.replace("Reruns()", f"Reruns(Path({str(written)!r}))")
        + "\n_why_not_live = lambda: ''\n"
    )
    (tmp_path / "test_flaky.py").write_text(FLAKY)
    (tmp_path / "pytest.ini").write_text(
        f"[pytest]\nmarkers = live\npythonpath = {ROOT / 'tests/suite'}\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rR", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed, 1 passed, 3 rerun" in done.stdout, done.stdout + done.stderr
    assert "repeated: test_flaky.py::test_at_the_second_try" in done.stdout
    assert "saw the try 1" in done.stdout
    assert [line.split()[1] for line in written.read_text().splitlines()] == [
        "test_flaky.py::test_at_the_fourth_try",
        "test_flaky.py::test_at_the_second_try",
    ]
