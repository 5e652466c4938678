"""The tables of the experiment of DASEC. Pure."""

from __future__ import annotations

from stallward.evaluation.report.experiment_page import PageTable
from stallward.papers.experiments.dasec.published import MEAN_LOWER, P99_LOWER
from stallward.papers.experiments.dasec.result import (
    CellFigures,
    DasecExperimentResult,
    ThreadFigures,
)
from stallward.papers.experiments.dasec.texts import ARM_LABELS, FOLLOWED
from stallward.papers.experiments.figures import factor, percent, ratio, three_digits


def summary_table(result: DasecExperimentResult) -> PageTable:
    """Each controller over all applications and ratios, beside the source."""
    theirs = (
        "source: DASEC",
        f"{100 * MEAN_LOWER:.0f} %",
        f"{100 * P99_LOWER:.0f} %",
        "",
        "",
    )
    ours = (
        (
            ARM_LABELS[arm],
            percent(one.mean_lower),
            percent(one.p99_lower),
            percent(one.batch_lower),
            str(one.cases),
        )
        for arm, one in result.summary.items()
    )
    return PageTable(
        headers=("controller", "mean lower", "p99 lower", "batch CPU time lower", "cases"),
        rows=(theirs, *ours),
    )


def latency_table(result: DasecExperimentResult) -> PageTable:
    """Latencies, service rate and batch work of every cell."""
    rows = [
        _latency_row(application, 0, "alone", figures)
        for application, figures in result.alone.items()
    ]
    rows += [
        _latency_row(application, at.ratio, ARM_LABELS[arm], figures)
        for application, by_ratio in result.beside.items()
        for at in by_ratio
        for arm, figures in at.arms.items()
    ]
    return PageTable(
        headers=(
            "application",
            "batch threads per CPU",
            "controller",
            "mean, ms",
            "p50, ms",
            "p99, ms",
            "mean / alone",
            "p99 / alone",
            "p99 / none",
            "served",
            "batch / none",
        ),
        rows=rows,
    )


def _latency_row(application: str, number: int, arm: str, figures: CellFigures) -> tuple[str, ...]:
    return (
        application,
        str(number),
        arm,
        three_digits(figures.mean_ms),
        three_digits(figures.p50_ms),
        three_digits(figures.p99_ms),
        factor(figures.mean_times_alone),
        factor(figures.p99_times_alone),
        ratio(figures.p99_ratio) if number else "",
        f"{100 * figures.answered_share:.0f} %",
        ratio(figures.batch_ratio) if number else "",
    )


def thread_table(result: DasecExperimentResult) -> PageTable:
    """How often threads on the critical path were delayed, interrupted, or lacked share."""
    rows = [
        _thread_row(application, 0, "alone", figures.threads)
        for application, figures in result.alone.items()
        if figures.threads is not None
    ]
    rows += [
        _thread_row(application, at.ratio, ARM_LABELS[arm], figures.threads)
        for application, by_ratio in result.beside.items()
        for at in by_ratio
        for arm, figures in at.arms.items()
        if arm in FOLLOWED and figures.threads is not None
    ]
    return PageTable(
        headers=(
            "application",
            "batch threads per CPU",
            "controller",
            "threads",
            "running",
            "waiting",
            "critical",
            "delayed",
            "interrupted",
            "lacks share",
        ),
        rows=rows,
    )


def _thread_row(
    application: str, number: int, arm: str, threads: ThreadFigures
) -> tuple[str, ...]:
    return (
        application,
        str(number),
        arm,
        f"{threads.threads:.0f}",
        f"{threads.running:.2f}",
        f"{threads.waiting:.2f}",
        f"{threads.critical:.1f}",
        f"{100 * threads.delayed_share:.0f} %",
        f"{100 * threads.interrupted_share:.0f} %",
        f"{100 * threads.lacking_share:.0f} %",
    )
