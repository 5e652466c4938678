"""The part of the page of DASEC that has several instances is made from a result."""

from __future__ import annotations

import csv
import runpy
from collections import defaultdict
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from example_results import NODE, figure

from stallward.papers.experiments.dasec.instances.result import (
    ArmFigures,
    CellFigures,
    CpuUse,
    InstancesResult,
    OverCells,
    RequestCost,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts/dasec_instances.py"))


def arm(mean_ratio: float) -> ArmFigures:
    return ArmFigures(
        runs=3,
        instances=(),
        mean_ms=figure(0.25 * mean_ratio),
        p99_ms=figure(2.5 * mean_ratio),
        mean_ratio=figure(mean_ratio, mean_ratio - 0.1, mean_ratio + 0.1),
        p99_ratio=figure(0.9),
        answered_share=1.0,
        cpu=CpuUse(services=0.5, generators=0.41, machine=0.93),
    )


RESULT = InstancesResult(
    node=NODE,
    seed=1,
    division="thread",
    measured_s=4.0,
    done_runs=5,
    planned_runs=24,
    costs={"memcached": RequestCost(service_us=40.2, generator_us=30.1)},
    cells=(
        CellFigures(
            mix="mixed", instances=6, load=0.95, arms={"none": arm(1.0), "dasec": arm(0.75)}
        ),
        CellFigures(mix="ordered", instances=6, load=0.95, arms={"dasec": arm(0.75)}),
    ),
    summary={"dasec": OverCells(cells=1, mean_ratio=figure(0.75), p99_ratio=figure(1.25))},
    stolen_share_worst=0.01,
)


def test_it_has_how_much_lower_latencies_are_than_without_control(script: dict[str, Any]) -> None:
    lines = script["part"](RESULT, date(2026, 12, 1)).splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert rows[2] == "| 6 mixed | 95 % | 91 % | 0.25 | 25 % [15..35] |  |  |"
    assert rows[3] == "| all |  |  |  | 25 % |  |  |"
    assert rows[7] == "| all |  |  |  | -25 % |  |  |"
    assert len(rows) == 8, "without a run without control there is nothing to compare with"
    text = " ".join(lines)
    assert "(1 December 2026; " in text
    assert "40 us to memcached (and 30 us to its load generator)" in text
    assert "5 of 24 runs of 4 s are finished" in text
    assert max(len(line) for line in lines if not line.startswith("|")) <= 100


def test_the_page_says_how_much_more_cpu_time_control_takes(script: dict[str, Any]) -> None:
    """The daemon's part: what neither services nor generators use, over that without control."""
    runs = script["PAGE"].with_suffix("") / "instances.csv"
    rest = {
        (row["mix"], row["round"], row["arm"]): float(row["cpu_machine"])
        - float(row["cpu_services"])
        - float(row["cpu_generators"])
        for row in csv.DictReader(runs.read_text("utf-8").splitlines())
        if row["load"] == "0.7"
    }
    more: defaultdict[str, list[float]] = defaultdict(list)
    for (mix, number, arm), share in rest.items():
        more[arm].append(100.0 * (share - rest[mix, number, "none"]))
    text = " ".join(script["PAGE"].read_text("utf-8").split())
    for arm, words in (
        ("dasec", "under `dasec` ({mean} % on average)"),
        ("dasec:answers=latency", "with the answer to delays alone"),
        ("bvt", "under `bvt`"),
    ):
        low, high = min(more[arm]), max(more[arm])
        mean = f"{sum(more[arm]) / len(more[arm]):.1f}"
        span = f"by {low:.1f} to {high:.1f} % of both CPUs " if arm == "dasec" else ""
        assert (span or f"by {low:.1f} to {high:.1f} % ") + words.format(mean=mean) in text


def test_only_what_is_between_its_marks_is_written(script: dict[str, Any]) -> None:
    page = script["PAGE"].read_text("utf-8")
    begin, end = script["BEGIN"], script["END"]
    assert (page.count(begin), page.count(end)) == (1, 1)
    new = script["put"](page, script["part"](RESULT, date(2026, 12, 1)))
    assert "| 6 mixed | 95 % |" in new
    assert new.partition(begin)[0] == page.partition(begin)[0]
    assert new.partition(end)[2] == page.partition(end)[2]
    assert script["put"](new, page[page.index(begin) : page.index(end) + len(end)]) == page
