"""Tests that ``stallward restore`` undoes the changes of a dead daemon and starts none."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
from around_the_guardian import DeadDaemon

from stallward.actuator.guardian import restore_command
from stallward.actuator.guardian.restore_command import (
    RestoreOptions,
    described,
    journal_of,
    main,
)
from stallward.actuator.journal.disk import Journal
from stallward.actuator.journal.entries import (
    GroupThreads,
    JournalEntry,
    KeyedValue,
    Noted,
    ThreadValue,
)
from stallward.actuator.runtime.locks import claim_journal_path


@pytest.fixture
def dead(tmp_path: Path) -> DeadDaemon:
    return DeadDaemon(tmp_path)


def run(dead: DeadDaemon, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str], str]:
    status = main(RestoreOptions(config=dead.config))
    output = capsys.readouterr()
    return status, output.out.splitlines(), output.err


def test_it_undoes_says_so_and_may_be_repeated(
    dead: DeadDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    status, lines, errors = run(dead, capsys)
    assert (status, errors) == (0, "")
    assert lines == [f"{dead.knob} = 60", f"thawed {dead.freeze.parent}"]
    assert (dead.knob.read_text(), dead.freeze.read_text()) == ("60", "0")
    dead.knob.write_text("10")  # the administrator's
    assert run(dead, capsys) == (0, ["nothing to undo"], "")
    assert dead.knob.read_text() == "10"


IO_MAX = KeyedValue(Path("/c/io.max"), "8:0", "rbps=9")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (IO_MAX, "/c/io.max = 8:0 rbps=9"),
        (Noted(IO_MAX, 3), "/c/io.max = 8:0 rbps=9"),
        (ThreadValue("nice", 4711, 5, "0"), "nice of thread 4711 = 0"),
        (GroupThreads("cpus", Path("/c"), "0", "0,1"), "cpus of the threads in /c = 0,1"),
    ],
)
def test_what_is_undone_is_said_in_words(entry: JournalEntry, said: str) -> None:
    assert described(entry) == said


def test_a_mistake_elsewhere_in_the_configuration_does_not_matter(
    dead: DeadDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    dead.write_config('[control]\ncontroller = "none"\nno_such_key = 3\n')
    assert journal_of(dead.config) == (dead.path, dead.paths)
    assert run(dead, capsys)[0] == 0
    assert dead.knob.read_text() == "60"


@pytest.mark.parametrize("text", ["", "[journal", "[journal]\npath = 3", '[journal]\npath = "x"'])
def test_a_configuration_without_a_journal_is_an_error_that_names_it(
    dead: DeadDaemon, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    dead.config.write_text(text)
    status, lines, errors = run(dead, capsys)
    assert (status, lines) == (2, [])
    assert str(dead.config) in errors


def test_a_change_that_cannot_be_undone_stays_in_the_journal(
    dead: DeadDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    dead.knob.unlink()
    dead.knob.mkdir()
    status, _, errors = run(dead, capsys)
    assert status == 1
    assert str(dead.knob) in errors
    assert dead.freeze.read_text() == "0"
    assert len(Journal(dead.path, dead.paths).load()) == 2


def test_a_living_daemon_is_left_alone(
    dead: DeadDaemon, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore_command, "WAIT_S", 0.1)
    lock = claim_journal_path(dead.path)
    status, _, errors = run(dead, capsys)
    os.close(lock)
    assert status == 2
    assert "Another daemon uses" in errors
    assert dead.knob.read_text() == "90"


def test_a_journal_can_be_named_without_a_configuration(
    dead: DeadDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = dead.config.with_name("gone.toml")
    assert main(RestoreOptions(config=nowhere, journal=dead.path, paths=dead.paths)) == 0
    assert f"{dead.knob} = 60" in capsys.readouterr().out
    assert dead.knob.read_text() == "60"


def test_a_lock_of_another_user_keeps_nothing_from_being_undone(
    dead: DeadDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every user can open the folder of the node's settings, and so lock it."""
    proc = dead.paths.proc
    settings = proc / "sys/vm"
    settings.mkdir()
    (proc / "4711").mkdir()
    (proc / "4711/status").write_text("Name:\tx\nUid:\t1000\t1000\t1000\t1000\n")
    inode = settings.stat().st_ino
    (proc / "locks").write_text(f"1: FLOCK  ADVISORY  WRITE 4711 00:05:{inode} 0 EOF\n")
    held = os.open(settings, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    status, lines, errors = run(dead, capsys)
    os.close(held)
    assert (status, errors) == (0, "")
    assert lines == [f"{dead.knob} = 60", f"thawed {dead.freeze.parent}"]
