"""What follows pods is found by entry points, and only where the configuration has pods."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from around_the_guardian import config_in

from stallward.actuator.cli.serve import serve
from stallward.actuator.client.daemon_process import Daemon
from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.load import config_toml
from stallward.actuator.config.tables import SlotConfig
from stallward.actuator.doctor.finding import PodsFound, examine_pods
from stallward.actuator.errors import ConfigError
from stallward.actuator.ipc.channels import EXIT_USER
from stallward.actuator.ipc.options import GuardianOptions, Modules
from stallward.actuator.runtime.process_start import command_line
from stallward.actuator.targets.config import PodConfig
from stallward.actuator.targets.sources import TARGETS_GROUP, follower_of_pods
from stallward.agent.errors import UnbelievedFileError

INSTALL = r"names pods, and what follows them is not installed\. Run `pip install 'stallward\[kub"


def with_pods(folder: Path) -> DaemonConfig:
    slot = SlotConfig(name="bg", pod=PodConfig(selector="app=batch"))
    return config_in(folder, background=(slot,))


@pytest.fixture
def lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no package have what follows pods."""
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: ())


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[DaemonConfig], str]:
    """Serves a configuration; returns the options of the guardian that would be started."""
    started: list[str] = []
    monkeypatch.setattr(os, "execv", lambda _program, command: started.append(command[-1]))

    def serving(config: DaemonConfig) -> str:
        file = tmp_path / "daemon.toml"
        file.write_text(config_toml(config))
        serve(config=file)
        return started[-1]

    return serving


def test_the_guardian_is_told_what_follows_pods(
    tmp_path: Path, served: Callable[[DaemonConfig], str]
) -> None:
    assert '"pods_module":"stallward.kubernetes.watcher"' in served(with_pods(tmp_path)).replace(
        ": ", ":"
    )


def test_where_no_target_is_a_pod_nothing_is_looked_for(
    tmp_path: Path, served: Callable[[DaemonConfig], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", None)
    assert "kubernetes.watcher" not in served(config_in(tmp_path))


@pytest.mark.usefixtures("lacking")
def test_no_daemon_starts_that_could_not_follow_its_pods(
    tmp_path: Path, served: Callable[[DaemonConfig], str]
) -> None:
    config = with_pods(tmp_path)
    with pytest.raises(ConfigError, match=INSTALL):
        served(config)
    with pytest.raises(ConfigError, match=INSTALL):
        Daemon(config).start()


def test_neither_does_a_guardian_that_was_not_told(tmp_path: Path) -> None:
    file = tmp_path / "daemon.toml"
    file.write_text(config_toml(with_pods(tmp_path)))
    command = command_line(Modules().guardian, GuardianOptions(config=file))
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == EXIT_USER
    assert "pip install 'stallward[kubernetes]'" in done.stderr


@pytest.mark.usefixtures("lacking")
def test_the_doctor_says_what_is_missing(tmp_path: Path) -> None:
    found = examine_pods(with_pods(tmp_path))
    (missing,) = found.findings
    assert (missing.name, missing.state) == ("pods", "missing")
    assert "pip install 'stallward[kubernetes]'" in missing.next_step
    assert found.obstacle
    assert examine_pods(config_in(tmp_path)) == PodsFound()


@pytest.fixture
def following(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a package that follows pods."""
    file = tmp_path / "following.py"
    file.write_text("examine = print\n")
    points = {
        "pods": importlib.metadata.EntryPoint("pods", "following", TARGETS_GROUP),
        "pods.doctor": importlib.metadata.EntryPoint(
            "pods.doctor", "following:examine", TARGETS_GROUP
        ),
    }
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: tuple(points.values()))
    return file


def test_root_starts_nothing_that_others_can_write(
    following: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    following.chmod(0o666)
    with pytest.raises(UnbelievedFileError, match="others may have written it"):
        follower_of_pods()
    found = examine_pods(with_pods(tmp_path))
    assert "others may have written it" in found.obstacle
    assert "following" not in sys.modules
    following.chmod(0o644)
    assert follower_of_pods() == "following"


def test_the_doctor_looks_at_pods_by_the_package(tmp_path: Path) -> None:
    assert "does not run in a cluster" in examine_pods(with_pods(tmp_path)).obstacle
