"""A Prometheus scrapes a few simulated nodes, and its rules find them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from free_port import free_port

from stallward.benchmarks.errors import BenchError
from stallward.benchmarks.fleet.scraping import MEANINGS, ScrapeSettings, bench_scrape

pytestmark = pytest.mark.reaches(
    "actuator/stallward/actuator/service/", "models/", "docs/reference/fleet-rules.yml"
)

RULES = Path(__file__).parents[2] / "docs/reference/fleet-rules.yml"


@pytest.mark.slow
def test_a_prometheus_scrapes_all_nodes_and_evaluates_the_rules() -> None:
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed (Debian package prometheus)")
    settings = ScrapeSettings(
        nodes=4, length_s=12.0, interval_s=1, first_port=free_port(), rules=RULES, period_s=0.2
    )
    figures = bench_scrape(settings)
    assert figures.keys() == MEANINGS.keys()
    assert figures["up"] == 4.0
    assert (figures["federated_bytes"] or 0.0) > 500.0
    assert (figures["series_per_node"] or 0.0) > 50.0


def test_without_a_prometheus_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BenchError, match="no program `prometheus`"):
        bench_scrape(ScrapeSettings(nodes=1))
