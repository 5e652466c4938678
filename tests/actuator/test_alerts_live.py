"""A real Prometheus over a real daemon that holds the background back: no alert is raised."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from free_port import free_port
from prometheus_server import alerts, prometheus, value
from test_daemon_live import LittleSandbox, data, little_sandbox

from stallward.actuator.client.daemon_process import Daemon
from stallward.actuator.config.tables import ControlConfig
from stallward.actuator.latency.config import LinesLatency

pytestmark = pytest.mark.live
__all__ = ["data", "little_sandbox"]
WATCHED_S = 25.0
"""Longer than the longest window of the hurried rules, and what they wait for."""


def write_requests(path: Path, done: threading.Event) -> None:
    """Write what an application that answers in time writes, until ``done``."""
    with path.open("a", buffering=1) as log:
        number = 0
        while not done.wait(0.02):
            number += 1
            log.write(f"GET / 200 {0.002 + 1e-6 * (number % 997):.6f}\n")


def test_a_healthy_session_under_pressure_raises_no_alert(
    little_sandbox: LittleSandbox, tmp_path: Path
) -> None:
    """Minutes of the rules are seconds; the kubelet's is left out, since there is none."""
    log, done = tmp_path / "access.log", threading.Event()
    log.touch()
    target = f"127.0.0.1:{free_port()}"
    plain = little_sandbox.config("partition:far_ratio=0")
    config = replace(
        plain,
        control=ControlConfig(slo_ms=60.0),
        latency=LinesLatency(path=log, latency="3", latency_unit_s=1.0),
        service=replace(plain.service, metrics=target),
    )
    rules = [Path(__file__).parents[2] / "docs/reference/alerts.yml"]
    application = threading.Thread(target=write_requests, args=(log, done))
    application.start()
    try:
        with (
            Daemon(config),
            prometheus(tmp_path, [target], rules, hurried=True) as address,
        ):
            until_s = time.monotonic() + 20.0
            while value(address, "stallward_requests_total > 50") is None:
                assert time.monotonic() < until_s, "the daemon is scraped"
                time.sleep(0.2)
            time.sleep(2.0)  # what was raised before the first scrape is resolved
            raised: dict[str, set[str]] = {}
            until_s = time.monotonic() + WATCHED_S
            while time.monotonic() < until_s:
                raised |= alerts(address, "pending", "firing")
                time.sleep(0.5)
            assert raised == {}
            moves = value(address, 'sum(stallward_lever_moves_total{ok="true"})')
            assert moves, "it has held something back"
            assert value(address, "stallward_problems") == 0.0
            assert value(address, 'stallward_target_seconds_total{met="true"} > 10')
    finally:
        done.set()
        application.join()
