"""A real Prometheus that scrapes daemons of tests and evaluates the alerts."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from free_port import free_port

ALERTS: Final = tuple(
    Path(__file__).parents[2] / f"docs/reference/{name}.yml"
    for name in ("alerts", "alerts-kubernetes")
)
_WAIT_S: Final = 30.0
_LEAST_S: Final = 3
"""Prometheus needs some scrapes for a rate."""
_HOUR_S: Final = 12
_DURATION: Final = re.compile(r"(?<=\[)\d+[mh](?=\])|(?<=for: )\d+[mh]")


def in_seconds(rules: str) -> str:
    """The same rules with a second for each minute of their windows, 3 at least and 12 at most."""

    def shorter(found: re.Match[str]) -> str:
        number, unit = int(found[0][:-1]), found[0][-1]
        return f"{_HOUR_S if unit == 'h' else max(number, _LEAST_S)}s"

    return _DURATION.sub(shorter, rules)


@contextmanager
def prometheus(
    folder: Path, targets: Sequence[str], rules: Sequence[Path] = ALERTS, *, hurried: bool = False
) -> Iterator[str]:
    """Run one that scrapes ``targets`` every second; yields its address.

    Args:
        folder: Where its files are.
        targets: The addresses of the daemons' metrics.
        rules: The files of its rules.
        hurried: Whether minutes of the rules are seconds.
    """
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("Prometheus is not installed (Debian package prometheus)")
    if hurried:
        shorter = [folder / f"hurried-{path.name}" for path in rules]
        for path, rule in zip(shorter, rules, strict=True):
            path.write_text(in_seconds(rule.read_text()))
        rules = shorter
    config = folder / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
        f"rule_files: {json.dumps([str(path) for path in rules])}\n"
        "scrape_configs:\n"
        f"  - {{job_name: stallward, static_configs: [{{targets: {json.dumps(list(targets))}}}]}}\n"
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
            process.wait(_WAIT_S)


def ask(address: str, path: str, **parameters: str) -> Any:
    """The data of an answer; ``None`` while there is none."""
    url = f"http://{address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.load(answer)["data"]
    except (urllib.error.URLError, ConnectionError):
        return None


def alerts(address: str, *states: str) -> dict[str, set[str]]:
    """The names of the alerts in one of ``states``, by instance; empty for those without one."""
    found: dict[str, set[str]] = {}
    for alert in (ask(address, "alerts") or {"alerts": []})["alerts"]:
        if alert["state"] in states:
            labels = alert["labels"]
            found.setdefault(labels.get("instance", ""), set()).add(labels["alertname"])
    return found


def value(address: str, expression: str) -> float | None:
    """The value of an expression that has one series."""
    answer = ask(address, "query", query=expression)
    if answer is None or not answer["result"]:
        return None
    return float(answer["result"][0]["value"][1])
