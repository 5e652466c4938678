"""Progress of long steps, where there is a terminal and where there is none."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from stallward.actuator.cli import output

HOSTILE = "a\x1b]0;pw\x07\x9b2J\rb\nc"


def test_what_a_node_says_does_not_reach_the_terminal_as_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.line(f"version {HOSTILE}")
    output.table(("node", "controller"), [(HOSTILE, "x"), ("b", HOSTILE)])
    output.text(f"one {HOSTILE}\ntwo\n")
    output.note(HOSTILE)
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 1 + 4 + 3
    assert all(line.isprintable() for line in (printed.out + printed.err).split("\n"))


def test_a_log_gets_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with output.progress("demo") as report:
        for done in range(500):
            report(f"fit: loss {done}" if done < 120 else f"compare: round {done}", done / 500)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == (
        "demo: 0 % fit, 10 %, 20 %, 30 % compare, 40 %, 50 %, 60 %, 70 %, 80 %, 90 %, "
        "done in 0 s\n"
    )


def test_a_step_that_jumps_names_only_where_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    with output.progress("train") as report:
        report("searching", 0.0)
        report("done", 1.0)
    assert capsys.readouterr().err == "train: 0 % searching, 90 % done, done in 0 s\n"


def test_a_step_without_reports_still_ends_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    with output.progress("short"):
        pass
    assert capsys.readouterr().err == "short: done in 0 s\n"


def test_a_step_that_fails_ends_its_line_too(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        with output.progress("fit") as report:
            report("one", 0.3)
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail()
    assert capsys.readouterr().err == "fit: 30 % one, stopped after 0 s\n"


def test_a_terminal_gets_a_bar_that_stays_on_its_line() -> None:
    code = (
        "from stallward.actuator.cli import output\n"
        "with output.progress('demo') as report:\n"
        "    report('fit: loss 1', 0.1)\n"
        "    report('compare', 0.8)\n"
    )
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen([sys.executable, "-c", code], stderr=theirs, env=environment) as child:
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 4096):
                shown += piece
        except OSError:  # the other end is closed: the child is done
            pass
    os.close(ours)
    assert child.returncode == 0
    assert b"100%" in shown
    assert shown.count(b"\n") == 1
