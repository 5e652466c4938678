"""The tables of several instances side by side, and the list of their runs. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Final

from stallward.evaluation.report.experiment_page import PageTable
from stallward.evaluation.results.interval import Interval
from stallward.papers.experiments.dasec.instances.result import (
    ArmFigures,
    CellFigures,
    InstancesResult,
    InstancesRun,
)
from stallward.papers.experiments.dasec.instances.steps import CellRun
from stallward.papers.experiments.dasec.published import MEAN_LOWER, P99_LOWER
from stallward.papers.experiments.dasec.texts import ARM_LABELS
from stallward.papers.experiments.figures import one_minus, percent, ratio

RUNS_FILE: Final = "instances.csv"
_COLUMNS: Final = (
    "mix",
    "instances",
    "load",
    "arm",
    "round",
    "instance",
    "application",
    "requests",
    "answered_share",
    "mean_ms",
    "p50_ms",
    "p99_ms",
    "cpu_services",
    "cpu_generators",
    "cpu_machine",
    "stolen_share",
)


def runs_csv(runs: Mapping[CellRun, InstancesRun]) -> str:
    """Every instance of every run, in lines; shares of CPU time are those of the whole run."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(_COLUMNS)
    ordered = sorted(runs, key=lambda step: (step.cell.name, step.controller, step.repeat))
    for step in ordered:
        run = runs[step]
        shares = (run.cpu.services, run.cpu.generators, run.cpu.machine, run.stolen_share)
        for number, one in enumerate(run.instances):
            writer.writerow(
                (
                    step.cell.mix,
                    len(run.instances),
                    f"{step.cell.load:g}",
                    step.controller,
                    step.repeat,
                    number,
                    one.application,
                    one.requests,
                    f"{one.answered_share:.4f}",
                    *(f"{value:.4f}" for value in (one.mean_ms, one.p50_ms, one.p99_ms)),
                    *(f"{share:.3f}" for share in shares),
                )
            )
    return file.getvalue()


def over_cells_table(result: InstancesResult) -> PageTable:
    """Each controller over all cells, beside the source."""
    theirs = (f"{100 * MEAN_LOWER:.0f} %", f"{100 * P99_LOWER:.0f} %", "")
    ours = (
        (
            ARM_LABELS[arm],
            percent(one_minus(one.mean_ratio)),
            percent(one_minus(one.p99_ratio)),
            str(one.cells),
        )
        for arm, one in result.summary.items()
    )
    return PageTable(
        headers=("controller", "mean lower", "p99 lower", "cells"),
        rows=(("source: DASEC", *theirs), *ours),
    )


def cells_table(result: InstancesResult) -> PageTable:
    """Latencies relative to no control, and the CPU use that was reached, of every cell."""
    return PageTable(
        headers=(
            "instances",
            "load",
            "controller",
            "CPUs: services",
            "generators",
            "machine",
            "mean, ms",
            "p99, ms",
            "mean / none",
            "p99 / none",
            "answered",
        ),
        rows=tuple(
            (
                instances_of(cell),
                f"{100 * cell.load:.0f} %",
                ARM_LABELS[arm],
                *_used(figures),
                _ms(figures.mean_ms),
                _ms(figures.p99_ms),
                ratio(figures.mean_ratio),
                ratio(figures.p99_ratio),
                _share(figures.answered_share),
            )
            for cell in result.cells
            for arm, figures in cell.arms.items()
        ),
    )


def instances_table(result: InstancesResult) -> PageTable:
    """Mean and p99 of every instance of every cell."""
    return PageTable(
        headers=("instances", "load", "controller", "instance", "mean, ms", "p99, ms"),
        rows=tuple(
            (
                instances_of(cell),
                f"{100 * cell.load:.0f} %",
                ARM_LABELS[arm],
                f"{one.application} {number}",
                _ms(one.mean_ms),
                _ms(one.p99_ms),
            )
            for cell in result.cells
            for arm, figures in cell.arms.items()
            for number, one in enumerate(figures.instances)
        ),
    )


def instances_of(cell: CellFigures) -> str:
    """How many instances, of what."""
    return f"{cell.instances} {cell.mix}"


def _used(figures: ArmFigures) -> tuple[str, ...]:
    cpu = figures.cpu
    return tuple(map(_share, (cpu.services, cpu.generators, cpu.machine)))


def _share(share: float) -> str:
    return f"{100 * share:.0f} %"


def _ms(figure: Interval) -> str:
    return "-" if figure.value is None else f"{figure.value:.3g}"
