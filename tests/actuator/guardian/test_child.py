"""Starting the guardian's children, and what is made of one that ends or cannot be started."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from around_the_guardian import config_in

from stallward.actuator.config.load import config_toml
from stallward.actuator.config.tables import RestartConfig
from stallward.actuator.guardian.child import Child, Launch
from stallward.actuator.guardian.guardian import EXIT_GAVE_UP, Guardian
from stallward.actuator.ipc.channels import EXIT_USER
from stallward.actuator.ipc.options import GuardianOptions, Modules
from stallward.actuator.journal.disk import Journal
from stallward.actuator.journal.entries import FileValue
from stallward.actuator.record.recorder import RecorderOptions
from stallward.actuator.runtime.process_start import command_line


def refused(*_: object, **__: object) -> int:
    raise OSError(11, "Resource temporarily unavailable")


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[Guardian]:
    made = Guardian(config_in(tmp_path, 0.1))
    yield made
    made._shut_down()


@pytest.mark.parametrize("where", ["Popen", "pidfd_open"])
def test_a_child_that_cannot_be_started_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    ours, theirs = socket.socketpair()
    launch = Launch(
        module="http", options=RecorderOptions(fd=0, path=Path()), fds=(), handed_over=(theirs,)
    )
    child = Child(name="loop", launch=lambda: launch, policy=RestartConfig())
    monkeypatch.setattr(subprocess if where == "Popen" else os, where, refused)
    ours.settimeout(5.0)
    with ours:
        with pytest.raises(OSError, match="temporarily"):
            child.start(0.0)
        assert ours.recv(1) == b"", "the other end is closed"
    assert (child.process, child.pidfd) == (None, -1)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_a_child_that_cannot_be_started_again_is_tried_later(
    parent: Guardian, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, write = os.pipe()
    parent.loop.due_s = 0.0
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", refused)
        parent._wait(read)
    assert parent._stop_status is None
    assert parent.loop.process is None
    assert (parent.loop.due_s or 0.0) > time.monotonic() - 1.0
    os.close(read)
    os.close(write)


def test_a_child_that_can_never_be_started_ends_the_daemon(
    parent: Guardian, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", refused)
    for _ in range(parent.loop.policy.max_per_minute + 1):
        assert parent._stop_status is None
        parent._start(parent.loop, time.monotonic())
    assert parent._stop_status == EXIT_GAVE_UP


@pytest.mark.parametrize(("restarts", "status"), [(0, EXIT_USER), (1, None)])
def test_a_mistake_is_final_only_at_the_first_start(
    parent: Guardian, restarts: int, status: int | None
) -> None:
    parent.loop.restarts = restarts
    parent._on_death(parent.loop, EXIT_USER, time.monotonic())
    assert parent._stop_status == status
    assert (parent.loop.due_s is not None) is (status is None)


@pytest.mark.parametrize(
    ("fault", "status"), [("left behind", EXIT_GAVE_UP), ("configuration", EXIT_USER)]
)
def test_what_may_pass_is_no_mistake_of_the_user(tmp_path: Path, fault: str, status: int) -> None:
    config = config_in(tmp_path, 0.1)
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
