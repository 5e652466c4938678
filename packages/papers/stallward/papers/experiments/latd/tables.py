"""The tables of the experiments of the latd thesis. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from stallward.evaluation.report.experiment_page import PageTable
from stallward.papers.experiments.figures import factor, milliseconds, percent
from stallward.papers.experiments.latd.published import NOTHING, PUBLISHED
from stallward.papers.experiments.latd.result import (
    LatdExperimentResult,
    SettingFigures,
    SweepPoint,
)
from stallward.papers.experiments.latd.workload import MIB


def scenario_table(result: LatdExperimentResult) -> PageTable:
    """The scenarios: latencies and miss rates of the thesis, and ours."""
    rows = []
    for name, found in result.scenarios.items():
        figures, theirs = found.figures, PUBLISHED.get(name, NOTHING)
        rows.append(
            (
                name,
                milliseconds(figures.p50_ms),
                milliseconds(figures.p95_ms),
                milliseconds(figures.p98_ms),
                milliseconds(figures.p99_ms),
                factor(figures.times_isolated),
                _published(theirs.p95_ms, " ms"),
                _published(theirs.times, " x"),
                percent(figures.miss_share, 1),
                _published(None if theirs.miss_share is None else 100 * theirs.miss_share, " %"),
            )
        )
    return PageTable(
        headers=(
            "scenario",
            "p50",
            "p95",
            "p98",
            "p99",
            "p95 / alone",
            "thesis p95",
            "/ alone",
            "missed",
            "thesis",
        ),
        rows=rows,
    )


def _published(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:g}{unit}"


def memory_table(result: LatdExperimentResult) -> PageTable:
    """The scenarios: memory, and what became of the hog."""
    rows = [
        (
            name,
            _from_to(found.figures.detector_bytes),
            _from_to(found.figures.cache_bytes),
            _from_to(found.figures.hog_bytes),
            percent(found.figures.zone_miss_share, 1),
            _work(found.figures),
            f"{100 * found.figures.stopped_share:.0f} %",
            f"{found.figures.terminated} of {found.figures.runs}",
        )
        for name, found in result.scenarios.items()
    ]
    return PageTable(
        headers=(
            "scenario",
            "detector, MiB",
            "page cache, MiB",
            "hog, MiB",
            "missed, both",
            "hog's work",
            "stopped",
            "hog ended",
        ),
        rows=rows,
    )


def _from_to(sizes: tuple[int, int]) -> str:
    before, after = (size / MIB for size in sizes)
    return f"{before:.0f} to {after:.0f}" if before or after else ""


def _work(figures: SettingFigures) -> str:
    return "" if figures.work_mib_per_s is None else f"{figures.work_mib_per_s:.0f} MiB/s"


def sweep_table(
    points: Mapping[str, tuple[SweepPoint, ...]], value: str, *, share: bool
) -> PageTable:
    """A sweep as a table: name of a hog -> its points."""
    rows = [
        (
            name,
            f"{100 * one.value:.0f} %" if share else f"{one.value:g}",
            milliseconds(one.figures.p50_ms),
            milliseconds(one.figures.p95_ms),
            milliseconds(one.figures.p98_ms),
            factor(one.figures.times_isolated),
            percent(one.figures.miss_share, 1),
            f"{100 * one.figures.used_share_most:.1f} %",
        )
        for name, found in points.items()
        for one in found
    ]
    return PageTable(
        headers=("hog", value, "p50", "p95", "p98", "p95 / alone", "missed", "zone in use"),
        rows=rows,
    )
