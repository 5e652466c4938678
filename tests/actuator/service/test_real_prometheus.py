"""A real Prometheus scrapes the service, evaluates the example alerts, and answers queries."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from free_port import free_port
from service_without_loop import WAIT_S, Service

ROOT = Path(__file__).parents[3]
ALERTS = ROOT / "docs/reference/alerts.yml"


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[str]:
    """Run one that scrapes ``target`` every second; yields its address."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("Prometheus is not installed (Debian package prometheus)")
    config = folder / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
        f"rule_files: [{ALERTS}]\n"
        "scrape_configs:\n"
        f"  - {{job_name: stallward, static_configs: [{{targets: ['{target}']}}]}}\n"
    )
    address = f"127.0.0.1:{free_port()}"
    log = folder / "prometheus.log"
    with log.open("wb") as lines:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={address}",
            ],
            stdout=lines,
            stderr=lines,
        )
        try:
            yield address
        except BaseException as error:
            error.add_note(log.read_text()[-2000:])
            raise
        finally:
            process.terminate()
            process.wait(WAIT_S)


def ask(address: str, path: str, **parameters: str) -> Any:
    """The data of an answer; ``None`` while there is none."""
    url = f"http://{address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.load(answer)["data"]
    except (urllib.error.URLError, ConnectionError):
        return None


def value(address: str, expression: str) -> float | None:
    """The value of an expression that has one series."""
    answer = ask(address, "query", query=expression)
    if answer is None or not answer["result"]:
        return None
    return float(answer["result"][0]["value"][1])


def test_it_scrapes_the_metrics_and_evaluates_the_alerts(
    tmp_path: Path, start: Callable[..., Service]
) -> None:
    target = f"127.0.0.1:{free_port()}"
    service = start(metrics=target)
    with prometheus(tmp_path, target) as address:
        deadline_s = time.monotonic() + WAIT_S
        seen: dict[str, float | None] = {}
        health: set[str] = set()
        while not (seen and all(v is not None for v in seen.values()) and health == {"ok"}):
            assert time.monotonic() < deadline_s, (seen, health)
            service.tick()
            time.sleep(0.2)
            seen = {
                name: value(address, name)
                for name in ("up", "stallward_ticks_total", "stallward_slo_seconds")
            }
            groups = (ask(address, "rules") or {"groups": []})["groups"]
            health = {rule["health"] for group in groups for rule in group["rules"]}
        assert seen["up"] == 1.0
        assert seen["stallward_slo_seconds"] == pytest.approx(0.06)
        ticks = seen["stallward_ticks_total"]
        assert ticks is not None
        assert ticks > 0
        kinds = ask(address, "targets/metadata")
        assert {one["type"] for one in kinds if one["metric"] == "stallward_ticks"} == {"counter"}
