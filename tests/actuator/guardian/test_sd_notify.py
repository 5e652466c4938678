"""Tests of the messages to the service manager, over real sockets."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from own_names import own_name

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.load import config_toml
from stallward.actuator.config.tables import (
    ControlConfig,
    JournalConfig,
    NodeConfig,
    ProtectedConfig,
    RestartConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.guardian.loop_watch import LoopHealth
from stallward.actuator.guardian.sd_notify import Notifier
from stallward.actuator.ipc.channels import SILENCE_S
from stallward.actuator.ipc.options import GuardianOptions, Modules
from stallward.actuator.kernel.hierarchies import detect
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.runtime.process_start import command_line


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """A service manager's socket, and its address in ``NOTIFY_SOCKET``."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        if request.param == "path":
            address = str(tmp_path / "notify")
            listening.bind(address)
        else:
            address = f"@{own_name()}"
            listening.bind(f"\0{address[1:]}")
        listening.settimeout(20.0)
        yield listening, address


@pytest.fixture
def notify(manager: tuple[socket.socket, str]) -> Iterator[Callable[[float], Notifier]]:
    """A function that makes a notifier with a watchdog of the given seconds."""
    with contextlib.ExitStack() as made:

        def make(watchdog_s: float) -> Notifier:
            notifier = Notifier(manager[1], watchdog_s)
            made.callback(notifier.close)
            return notifier

        yield make


def config_in(folder: Path, **control: float) -> DaemonConfig:
    return DaemonConfig(
        node=NodeConfig(zone="z"),
        protected=ProtectedConfig(group="z/app"),
        background=(SlotConfig(name="bg", group="z/bg"),),
        service=ServiceConfig(socket=folder / "s.sock"),
        journal=JournalConfig(path=folder / "journal"),
        control=ControlConfig(**control),  # type: ignore[arg-type]
        restart=RestartConfig(max_delay_s=2.0),
    )


def messages(listening: socket.socket) -> list[str]:
    """The messages that have arrived."""
    received = []
    listening.setblocking(False)
    try:
        while True:
            received.append(listening.recv(4096).decode())
    except BlockingIOError:
        return received


def test_the_address_is_taken_from_the_environment_and_hidden_from_children(
    manager: tuple[socket.socket, str],
) -> None:
    listening, address = manager
    environment = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "4000000", "HOME": "/"}
    notifier = Notifier.from_environment(environment)
    assert environment == {"HOME": "/"}
    assert notifier.watchdog_s == 4.0
    notifier.send("READY=1", "STATUS=x")
    assert messages(listening) == ["READY=1\nSTATUS=x"]
    notifier.close()
    notifier.send("READY=1")


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"NOTIFY_SOCKET": ""},
        {"NOTIFY_SOCKET": "relative"},
        {"NOTIFY_SOCKET": "/nowhere/at/all"},
        {"WATCHDOG_USEC": "junk"},
        {"WATCHDOG_USEC": "5", "WATCHDOG_PID": "1"},
    ],
)
def test_without_a_manager_nothing_happens(environment: dict[str, str]) -> None:
    notifier = Notifier.from_environment(environment)
    assert notifier.watchdog_s is None
    notifier.status("x")
    notifier.feed()
    notifier.allow(10.0)


def test_a_manager_that_does_not_read_is_not_waited_for(
    notify: Callable[[float], Notifier],
) -> None:
    notifier = notify(30.0)
    for number in range(10_000):
        notifier.status(f"{number} {'x' * 1000}")


def test_ready_comes_with_the_first_tick_and_the_watchdog_lives_on_ticks_alone(
    manager: tuple[socket.socket, str], notify: Callable[[float], Notifier], tmp_path: Path
) -> None:
    listening, _ = manager
    health = LoopHealth(config_in(tmp_path), notify(0.001))
    needed_s = SILENCE_S + 2.0 + 15.0
    assert messages(listening) == [f"WATCHDOG_USEC={int(needed_s * 1e6)}"], "time to recover"
    health = LoopHealth(config_in(tmp_path), notify(1000.0))
    health.heard()
    assert messages(listening) == [], "a loop that is starting is not ready"
    health.beat()
    assert messages(listening) == ["READY=1", "STATUS=The loop ticks.", "WATCHDOG=1"]
    health.heard()
    assert messages(listening) == []
    health.forget("The loop ended.")
    health.beat()
    assert messages(listening) == ["STATUS=The loop ended.", "STATUS=The loop ticks."]


def test_ticks_far_apart_get_a_longer_watchdog(
    manager: tuple[socket.socket, str], notify: Callable[[float], Notifier], tmp_path: Path
) -> None:
    listening, _ = manager
    config = config_in(tmp_path, tick_period_s=10.0, calm_tick_period_s=10.0)
    LoopHealth(config, notify(30.0))
    assert messages(listening) == ["WATCHDOG_USEC=47000000"]


@pytest.fixture
def quiet_groups() -> Iterator[str]:
    hierarchy = detect(Paths())
    zone = hierarchy.group(f"{own_name()}-notify")
    groups = [zone, zone.child("app"), zone.child("bg")]
    for group in groups:
        group.create()
    yield zone.name
    for group in reversed(groups):
        group.remove()


def until(listening: socket.socket, wanted: str) -> list[str]:
    """Messages up to one that starts with ``wanted``."""
    listening.settimeout(20.0)
    received = [listening.recv(4096).decode()]
    while not received[-1].startswith(wanted):
        received.append(listening.recv(4096).decode())
    return received


@pytest.mark.live
def test_the_daemon_reports_to_its_manager_and_a_stopped_loop_starves_the_watchdog(
    manager: tuple[socket.socket, str], quiet_groups: str, tmp_path: Path
) -> None:
    listening, address = manager
    config = config_in(tmp_path)
    text = config_toml(config).replace('"z', f'"{quiet_groups}')
    (tmp_path / "daemon.toml").write_text(text)
    environment = {**os.environ, "NOTIFY_SOCKET": address, "WATCHDOG_USEC": "60000000"}
    options = GuardianOptions(config=tmp_path / "daemon.toml")
    daemon = subprocess.Popen(command_line(Modules().guardian, options), env=environment)
    try:
        assert until(listening, "READY=1") == ["READY=1"]
        assert until(listening, "WATCHDOG=1")[-1] == "WATCHDOG=1"
        loop = next(
            pid
            for pid in map(
                int, Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().split()
            )
            if b"stallward.actuator.loop" in Path(f"/proc/{pid}/cmdline").read_bytes()
        )
        assert b"NOTIFY_SOCKET" not in Path(f"/proc/{loop}/environ").read_bytes()
        os.kill(loop, signal.SIGSTOP)
        time.sleep(1.2)
        messages(listening)
        silent = until(listening, "STATUS=The loop hung")
        assert silent == silent[-1:], "nothing feeds the watchdog"
        assert until(listening, "STATUS=The loop ticks")
        daemon.send_signal(signal.SIGTERM)
        assert until(listening, "STOPPING=1")
        assert daemon.wait(20) == 0
    finally:
        daemon.kill()
        daemon.wait()
