"""Applications of sub-tasks: they end, report their times, and say what is wrong."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from stallward.env.errors import WorkloadError
from stallward.env.workloads.native.subtasks import ORDERS, SubtaskProgram, parse_times

PROGRAM = SubtaskProgram(name="one", mib=4, subtasks=7, rounds=2, compute=1, order="random")


def run(programs: Path, *options: str) -> subprocess.CompletedProcess[str]:
    argv = [str(programs / "subtasks"), *options]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("subtasks", [1, 7, 1024])
def test_it_works_and_reports_when_it_ran(
    programs: Path, tmp_path: Path, subtasks: int, order: str
) -> None:
    report = tmp_path / "times"
    options = ("--mib", "4", "--subtasks", str(subtasks), "--rounds", "2", "--order", order)
    done = run(programs, *options, "--report", str(report))
    assert (done.returncode, done.stderr) == (0, "")
    start_s, end_s = parse_times(report.read_text(), "one")
    assert 0.0 < start_s < end_s


def test_its_command_has_every_option_that_it_takes(programs: Path, tmp_path: Path) -> None:
    values = {"{workloads}": str(programs), "{run}": str(tmp_path), "{seed}": "3"}
    argv = list(PROGRAM.argv)
    for name, value in values.items():
        argv = [word.replace(name, value) for word in argv]
    assert subprocess.run(argv, check=True, timeout=30).returncode == 0
    assert (tmp_path / "one.times").exists()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--mib", "0", "--report", "r"), "--mib: 0 is not a number from 1"),
        (("--mib", "4x", "--report", "r"), "4x is not a number"),
        (("--mib", "4"), "missing option"),
        (("--mib",), "option without a value"),
        (("--order", "up", "--mib", "4", "--report", "r"), "unknown option or value: --order"),
        (("--mib", "4", "--report", "/absent/r"), "/absent/r: No such file"),
    ],
)
def test_a_wrong_option_is_named(programs: Path, options: tuple[str, ...], complaint: str) -> None:
    done = run(programs, *options)
    assert done.returncode == 2
    assert complaint in done.stderr


@pytest.mark.parametrize("text", ["", "1.0", "1.0 x", "1 2 3"])
def test_a_report_that_was_cut_off_is_no_report(text: str) -> None:
    with pytest.raises(WorkloadError, match="one did not report its times"):
        parse_times(text, "one")


def test_times_that_run_backwards_are_refused() -> None:
    with pytest.raises(WorkloadError, match="ran from 2 to 1 s"):
        parse_times("2.0 1.0\n", "one")
