"""Tests that ``stallward restore --watch`` undoes what a daemon leaves as soon as it is dead."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from around_the_guardian import DeadDaemon

from stallward.actuator.guardian.restore_command import EXIT_LEFT, EXIT_NOT_TRIED
from stallward.actuator.guardian.restorer import Restorer, RestorerOptions
from stallward.actuator.ipc.options import Modules
from stallward.actuator.journal.disk import Journal
from stallward.actuator.journal.entries import FileValue
from stallward.actuator.journal.kept_files import KeptFiles
from stallward.actuator.journal.restore import run_bounded
from stallward.actuator.runtime.locks import claim_journal_path
from stallward.actuator.runtime.process_start import command_line

WAIT_S = 60.0


@pytest.fixture
def dead(tmp_path: Path) -> DeadDaemon:
    return DeadDaemon(tmp_path)


def test_it_leaves_a_living_daemon_alone_and_undoes_what_a_dead_one_left(
    dead: DeadDaemon, capfd: pytest.CaptureFixture[str]
) -> None:
    restorer = Restorer(dead.path, dead.paths)
    lock = claim_journal_path(dead.path)
    assert restorer.look() is None
    assert (dead.knob.read_text(), dead.freeze.read_text()) == ("90", "1")
    os.close(lock)
    assert restorer.look() == 0
    assert (dead.knob.read_text(), dead.freeze.read_text()) == ("60", "0")
    assert capfd.readouterr().err.splitlines() == [
        f"stallward restorer: undid: {dead.knob} = 60",
        f"stallward restorer: undid: thawed {dead.freeze.parent}",
    ]


def test_what_is_set_after_that_stays_until_another_daemon_has_noted_it(dead: DeadDaemon) -> None:
    restorer = Restorer(dead.path, dead.paths)
    assert restorer.look() == 0
    dead.knob.write_text("10")  # the administrator's
    assert restorer.look() == 0
    assert dead.knob.read_text() == "10"
    journal = Journal(dead.path, dead.paths)
    journal.append((FileValue(dead.knob, "10"),))
    journal.close()
    dead.knob.write_text("90")
    assert restorer.look() == 0
    assert dead.knob.read_text() == "10"


def test_a_journal_that_cannot_be_emptied_is_undone_once(
    dead: DeadDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, length: int) -> None:
        raise OSError(30, "Read-only file system")

    restorer = Restorer(dead.path, dead.paths)
    monkeypatch.setattr(os, "truncate", refuse)
    assert restorer.look() == 0
    assert dead.knob.read_text() == "60"
    dead.knob.write_text("10")
    assert restorer.look() == 0
    assert dead.knob.read_text() == "10"


def test_what_cannot_be_undone_is_said_once_and_tried_again(
    dead: DeadDaemon, capfd: pytest.CaptureFixture[str]
) -> None:
    restorer = Restorer(dead.path, dead.paths)
    dead.knob.unlink()
    dead.knob.mkdir()
    assert restorer.look() == EXIT_LEFT
    assert dead.freeze.read_text() == "0"
    assert str(dead.knob) in capfd.readouterr().err
    assert restorer.look() == EXIT_LEFT
    assert capfd.readouterr().err == ""
    dead.knob.rmdir()
    dead.knob.write_text("90")
    assert restorer.look() == 0
    assert dead.knob.read_text() == "60"


def test_a_write_that_the_kernel_still_blocks_is_not_begun_again(
    dead: DeadDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(run_bounded.__kwdefaults__ or {}, "give_up_s", 0.8)
    go_on, write = threading.Event(), KeptFiles.write
    tries: list[str] = []

    def block(kept: KeptFiles, path: Path, value: str) -> None:
        if path == dead.knob:
            tries.append(value)
            assert go_on.wait(30.0)
        write(kept, path, value)

    monkeypatch.setattr(KeptFiles, "write", block)
    restorer = Restorer(dead.path, dead.paths)
    for _ in range(5):
        assert restorer.look() == EXIT_LEFT
        assert dead.freeze.read_text() == "0"
        dead.freeze.write_text("1")
    assert tries == ["60"], "each further try would take a thread for as long as this lasts"
    go_on.set()
    until_s = time.monotonic() + WAIT_S
    while restorer.look() != 0:
        assert time.monotonic() < until_s
    assert (dead.knob.read_text(), dead.freeze.read_text()) == ("60", "0")


def test_a_journal_that_others_may_have_written_is_refused(
    dead: DeadDaemon, capfd: pytest.CaptureFixture[str]
) -> None:
    dead.path.chmod(0o666)
    assert Restorer(dead.path, dead.paths).look() == EXIT_LEFT
    assert str(dead.path) in capfd.readouterr().err
    assert dead.knob.read_text() == "90"


def test_without_a_journal_it_waits(dead: DeadDaemon) -> None:
    dead.path.unlink()
    assert Restorer(dead.path, dead.paths).look() == 0
    assert not dead.path.with_name("journal.lock").exists()


def test_it_is_ended_only_when_the_daemon_is_dead_and_everything_is_undone(
    dead: DeadDaemon,
) -> None:
    lock = claim_journal_path(dead.path)
    options = RestorerOptions(config=dead.config)
    command = command_line(Modules().restorer, options)
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert b"watching" in process.stderr.readline()
        process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        assert dead.knob.read_text() == "90"
        os.close(lock)
        assert process.wait(WAIT_S) == 0
    assert (dead.knob.read_text(), dead.freeze.read_text()) == ("60", "0")


def test_a_second_signal_ends_it_beside_a_daemon(dead: DeadDaemon) -> None:
    lock = claim_journal_path(dead.path)
    options = RestorerOptions(config=Path("/nowhere"), journal=dead.path, paths=dead.paths)
    with subprocess.Popen(
        command_line(Modules().restorer, options), stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        assert b"watching" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == EXIT_NOT_TRIED
    os.close(lock)
    assert dead.knob.read_text() == "90"


def test_a_configuration_without_a_journal_is_an_error_that_names_it(dead: DeadDaemon) -> None:
    dead.config.write_text("[journal")
    command = command_line(Modules().restorer, RestorerOptions(config=dead.config))
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WAIT_S)
    assert done.returncode == EXIT_NOT_TRIED
    assert str(dead.config) in done.stderr
