"""``stallward bench scrape``: what one Prometheus needs for the metrics of many simulated nodes.

The Prometheus is the program of that name on this machine, with a configuration and a database of
its own in a temporary folder. What it needs is what it says of itself.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from stallward.benchmarks.errors import BenchError
from stallward.benchmarks.fleet.running import running_nodes
from stallward.training.progress import Report, part, silent

_READY_S: Final = 30.0
_LOOK_S: Final = 1.0
_ANSWER_S: Final = 30.0
_END_S: Final = 20.0

MEANINGS: Final = {
    "nodes": "simulated nodes whose metrics are scraped",
    "up": "nodes that answered the last scrape",
    "page_bytes": "size of the page of one node",
    "series_per_node": "time series of one node",
    "samples_per_s": "samples taken per second",
    "scrape_p99_s": "how long a scrape took, 99th percentile over nodes",
    "prometheus_cores": "processor time of Prometheus per second",
    "prometheus_rss_mib": "memory of Prometheus at the end",
    "rules_s": "seconds to evaluate all recording rules once; nothing without rules",
    "federated_bytes": "size of what a Prometheus above would take; nothing without rules",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrapeSettings:
    """What is measured."""

    nodes: int = 1000
    length_s: float = 180.0
    interval_s: int = 15
    """The time between two scrapes of a node."""
    first_port: int = 21_000
    """The nodes serve from this port on, and Prometheus at the one before."""
    rules: Path | None = None
    """A file of recording rules."""
    period_s: float = 2.5
    """The time between two ticks of a node."""
    twin: str = "detector-anon"
    seed: int = 1


def bench_scrape(settings: ScrapeSettings, report: Report = silent) -> dict[str, float | None]:
    """Run the nodes and a Prometheus, and return the figures, by the keys of :data:`MEANINGS`.

    Raises:
        BenchError: If there is no Prometheus, or something does not start.
    """
    program = shutil.which("prometheus")
    if program is None:
        raise BenchError(
            "There is no program `prometheus` on this machine.",
            next_step="Install it, e.g. with `apt-get install prometheus`.",
        )
    report("starting nodes", 0.0)
    with running_nodes(
        settings.nodes,
        twin=settings.twin,
        seed=settings.seed,
        period_s=settings.period_s,
        first_metrics_port=settings.first_port,
    ) as nodes:
        with _prometheus(program, nodes.metrics, settings) as address:
            half_s = settings.length_s / 2.0
            _wait(half_s, part(report, 0.0, 0.5))  # the first scrapes make all the series
            before_s, begin_s = _own(address, "process_cpu_seconds_total"), time.monotonic()
            _wait(half_s, part(report, 0.5, 1.0))
            passed_s = time.monotonic() - begin_s
            cores = (_own(address, "process_cpu_seconds_total") - before_s) / passed_s
            figures = _figures(address, nodes.metrics, settings)
        nodes.stop_ticking()
    figures |= {"nodes": float(settings.nodes), "prometheus_cores": cores}
    return {key: figures[key] for key in MEANINGS}


def _wait(length_s: float, report: Report) -> None:
    """Let each node be scraped for some time."""
    begin_s = time.monotonic()
    while (passed_s := time.monotonic() - begin_s) < length_s:
        report("scraping", passed_s / length_s)
        time.sleep(_LOOK_S)


def _figures(
    address: str, metrics: Sequence[str], settings: ScrapeSettings
) -> dict[str, float | None]:
    page = _get(f"http://{metrics[0]}/metrics")
    span = f"[{3 * settings.interval_s}s]"
    rules = settings.rules is not None
    duration = f"max_over_time(scrape_duration_seconds{{job='stallward'}}{span})"
    return {
        "up": _query(address, "sum(up{job='stallward'})"),
        "page_bytes": float(len(page)),
        "series_per_node": _query(address, "avg(scrape_samples_scraped{job='stallward'})"),
        "samples_per_s": _query(address, "sum(scrape_samples_scraped{job='stallward'})", 0.0)
        / settings.interval_s,
        "scrape_p99_s": _query(address, f"quantile(0.99, {duration})"),
        "prometheus_rss_mib": _own(address, "process_resident_memory_bytes") / 2**20,
        "rules_s": _own(address, "prometheus_rule_group_last_duration_seconds") if rules else None,
        "federated_bytes": float(len(_federated(address))) if rules else None,
    }


@contextlib.contextmanager
def _prometheus(program: str, targets: Sequence[str], settings: ScrapeSettings) -> Iterator[str]:
    """Run a Prometheus that scrapes the nodes; gives its address.

    Raises:
        BenchError: If it does not start.
    """
    address = f"127.0.0.1:{settings.first_port - 1}"
    with tempfile.TemporaryDirectory(prefix="scrape") as text:
        folder = Path(text)
        (folder / "nodes.json").write_text(json.dumps([{"targets": list(targets)}]))
        every = f"{settings.interval_s}s"
        config: dict[str, Any] = {
            "global": {"scrape_interval": every, "evaluation_interval": every},
            "scrape_configs": [
                {"job_name": "stallward", "file_sd_configs": [{"files": ["nodes.json"]}]},
            ],
            "rule_files": [] if settings.rules is None else [str(settings.rules.resolve())],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        command = [
            program,
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={address}",
            "--log.level=error",
        ]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                _wait_ready(address, process)
                yield address
            finally:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.communicate(timeout=_END_S)
                process.kill()


def _wait_ready(address: str, process: subprocess.Popen[str]) -> None:
    deadline_s = time.monotonic() + _READY_S
    while True:
        with contextlib.suppress(OSError):
            _get(f"http://{address}/-/ready")
            return
        if process.poll() is not None or time.monotonic() > deadline_s:
            process.kill()
            said = process.communicate()[1].strip()[-300:]
            raise BenchError(
                f"Prometheus did not start at {address}: {said}",
                next_step="Choose another first port with --port.",
            )
        time.sleep(_LOOK_S / 5.0)


def _query(address: str, expression: str, default: float | None = None) -> float:
    """The value of an expression that has one.

    Raises:
        BenchError: If it has none.
    """
    query = urllib.parse.urlencode({"query": expression})
    answer = json.loads(_get(f"http://{address}/api/v1/query?{query}"))
    found = answer["data"]["result"]
    if found:
        return float(found[0]["value"][1])
    if default is None:
        raise BenchError(f"Prometheus has no value of {expression}.")
    return default


def _own(address: str, name: str) -> float:
    """A metric of Prometheus itself, summed over its labels."""
    lines = _get(f"http://{address}/metrics").decode().splitlines()
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in lines
        if line.startswith((f"{name} ", f"{name}{{"))
    )


def _federated(address: str) -> bytes:
    match = urllib.parse.urlencode({"match[]": '{__name__=~"stallward:.*"}'})
    return _get(f"http://{address}/federate?{match}")


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=_ANSWER_S) as answer:  # noqa: S310 - our own
        return bytes(answer.read())
