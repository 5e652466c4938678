"""Tests of how the guardian starts a child, and of a child that ends or cannot be started."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from around_the_guardian import WAIT_S, ScriptedDaemon, config_in, wait_until

from stallward.actuator import loop
from stallward.actuator.config.load import config_toml
from stallward.actuator.config.tables import RecordConfig, RestartConfig
from stallward.actuator.guardian.children import Channels, Child, Children, Launch
from stallward.actuator.guardian.guardian import EXIT_GAVE_UP
from stallward.actuator.ipc.channels import EXIT_USER
from stallward.actuator.ipc.options import GuardianOptions, Modules
from stallward.actuator.journal.disk import Journal
from stallward.actuator.journal.entries import FileValue
from stallward.actuator.latency.config import StatsdLatency
from stallward.actuator.record.recorder import RecorderOptions
from stallward.actuator.runtime.process_start import command_line

QUICK = RestartConfig(delay_s=0.01, max_delay_s=0.02, max_per_minute=4)


def refused(*_: object, **__: object) -> int:
    raise OSError(11, "Resource temporarily unavailable")


@pytest.mark.parametrize("where", ["Popen", "pidfd_open"])
def test_a_child_that_cannot_be_started_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    before = psutil.Process().children()  # other tests of this process may have left some
    ours, theirs = socket.socketpair()
    options = RecorderOptions(fd=0, path=Path(), max_bytes=1 << 30)
    launch = Launch(module="http", options=options, fds=(), handed_over=(theirs,))
    child = Child(name="loop", launch=lambda: launch, policy=RestartConfig())
    monkeypatch.setattr(subprocess if where == "Popen" else os, where, refused)
    ours.settimeout(5.0)
    with ours:
        with pytest.raises(OSError, match="temporarily"):
            child.start(0.0)
        assert ours.recv(1) == b"", "the other end is closed"
    assert (child.process, child.pidfd) == (None, -1)
    assert set(psutil.Process().children()) <= set(before)


def test_a_child_has_its_environment_beside_that_of_the_guardian(tmp_path: Path) -> None:
    script = "loop.note(os.environ['OPENBLAS_NUM_THREADS']); loop.note(os.environ['ODD'])"
    first = "import os; os.environ.update(ODD='kept', OPENBLAS_NUM_THREADS='64')"
    with ScriptedDaemon(tmp_path, script, first=first) as daemon:
        daemon.wait_for("kept")
        assert daemon.notes == ["loop 0", "1", "kept"]


def test_the_processes_import_the_tree_that_is_tested(tmp_path: Path) -> None:
    """And not one that is installed, which would be tested in its place."""
    script = "import stallward.actuator.loop as package; loop.note(package.__file__)"
    with ScriptedDaemon(tmp_path, script) as daemon:
        daemon.wait_for(str(loop.__file__))


NO_ROOM = """
import subprocess

class Refusing(subprocess.Popen):
    tries = 0

    def __init__(self, command, **options):
        if "scripted_loop" in command:
            Refusing.tries += 1
            with (folder / "notes").open("a") as notes:
                notes.write(f"try {{Refusing.tries}}\\n")
            if Refusing.tries <= {refused}:
                raise OSError(11, "Resource temporarily unavailable")
        super().__init__(command, **options)

subprocess.Popen = Refusing
"""
"""The process table is full when the loop is started, ``refused`` times."""


def test_a_child_that_cannot_be_started_now_is_tried_later(tmp_path: Path) -> None:
    first = NO_ROOM.format(refused=3)
    with ScriptedDaemon(tmp_path, "loop.beat()", first=first, restart=QUICK) as daemon:
        daemon.wait_until_said("The loop ticks.")
        assert daemon.notes == ["try 1", "try 2", "try 3", "try 4", "loop 3"]
        assert daemon.stop() == 0


def test_a_child_that_can_never_be_started_ends_the_daemon(tmp_path: Path) -> None:
    first = NO_ROOM.format(refused=1_000_000)
    with ScriptedDaemon(tmp_path, "", first=first, restart=QUICK) as daemon:
        assert daemon.process.wait(WAIT_S) == EXIT_GAVE_UP
        assert len(daemon.notes) == QUICK.max_per_minute + 1


def test_a_child_that_dies_too_often_ends_the_daemon(tmp_path: Path) -> None:
    rarely = replace(QUICK, max_per_minute=2)
    with ScriptedDaemon(tmp_path, "loop.die()", restart=rarely) as daemon:
        assert daemon.process.wait(WAIT_S) == EXIT_GAVE_UP
        assert len(daemon.notes) == rarely.max_per_minute + 1


def test_the_death_of_a_process_that_other_users_can_cause_ends_no_daemon(tmp_path: Path) -> None:
    """The loop alone is needed; the others meet ports, files and sockets of other users."""
    config = config_in(
        tmp_path, record=RecordConfig(dir=tmp_path), latency=StatsdLatency(metric="x")
    )
    channels = Channels(config, (), 0.0, Modules())
    with contextlib.closing(channels):
        children = Children(config, channels, channels.launch_service)
        assert [child.name for child in children.all if child.vital] == ["loop"]
        service = children.service
        for number in range(config.restart.max_per_minute + 2):
            assert service.plan_restart(number * 0.1)
        assert service.due_s == number * 0.1 + config.restart.max_delay_s


def test_a_mistake_at_the_first_start_is_final(tmp_path: Path) -> None:
    with ScriptedDaemon(tmp_path, f"sys.exit({EXIT_USER})", restart=QUICK) as daemon:
        assert daemon.process.wait(WAIT_S) == EXIT_USER
        assert daemon.notes == ["loop 0"]


def test_only_the_loops_own_mistake_is_final(tmp_path: Path) -> None:
    """What the service finds where its sockets belong may be the application's."""
    starts = tmp_path / "starts"
    first = f"import os; os.environ['MISTAKEN_SERVICE'] = {str(starts)!r}"
    with ScriptedDaemon(tmp_path, "", first=first, restart=QUICK) as daemon:
        daemon.wait_for("loop 0")
        wait_until(lambda: starts.exists() and len(starts.read_text().splitlines()) > 1)
        assert daemon.process.poll() is None
        assert daemon.notes == ["loop 0"]
        assert daemon.stop() == 0


@pytest.mark.slow
def test_a_mistake_at_a_later_start_may_pass(tmp_path: Path) -> None:
    script = f"if loop.number < 2: sys.exit(loop.number * {EXIT_USER} or 1)"
    with ScriptedDaemon(tmp_path, script, restart=QUICK) as daemon:
        daemon.wait_for("loop 2")
        assert daemon.said.count("The loop ended with status 2; everything is put back.") == 1
        assert daemon.stop() == 0


@pytest.mark.parametrize(
    ("fault", "status"), [("left behind", EXIT_GAVE_UP), ("configuration", EXIT_USER)]
)
def test_only_a_mistake_in_the_configuration_is_the_users(
    tmp_path: Path, fault: str, status: int
) -> None:
    config = config_in(tmp_path)
    boot = config.node.paths.proc / "sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text("this-boot\n")
    stuck = tmp_path / "knob"
    stuck.mkdir()  # it cannot be written now
    Journal(config.journal.path, config.node.paths).append((FileValue(stuck, "60"),))
    file = tmp_path / "daemon.toml"
    file.write_text("?" if fault == "configuration" else config_toml(config))
    command = command_line(Modules().guardian, GuardianOptions(config=file))
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == status, done.stderr
    assert config.journal.path.exists()
