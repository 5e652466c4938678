"""The terminal tables and the page of a ranking."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from stallward.evaluation.report.charts import COLOURS
from stallward.evaluation.report.experiment_page import (
    ExperimentPage,
    PageChart,
    PageSection,
    PageTable,
    write_experiment_page,
)
from stallward.evaluation.report.text import number
from stallward.research.fidelity.result import RankingResult, ScenarioRanking
from stallward.research.fidelity.scatter import SHADED, Dot, latency_scatter, work_scatter
from stallward.research.fidelity.table import judged

_FITTED: Final = {True: "yes", False: "no", None: "-"}


def scenario_table(result: RankingResult) -> PageTable:
    """A row for each scenario."""
    headers = ("scenario", "fitted", "arms", "signs right", "rank p99", "rank work")
    rows = [
        (
            name,
            _FITTED[one.fitted],
            str(len(one.arms)),
            f"{one.effects_right}/{one.effects_counted}",
            _figure(one.p99_spearman),
            _figure(one.work_spearman),
        )
        for name, one in result.scenarios.items()
    ]
    return PageTable(headers=headers, rows=rows)


def arm_table(result: RankingResult) -> PageTable:
    """A row for each arm of each scenario."""
    headers = (
        "scenario", "arm", "p99 live ms", "p99 twin ms", "err p99", "work live", "work twin",
        "err work",
    )  # fmt: skip
    rows = [
        (
            name,
            arm.arm,
            number(arm.live_p99_ms, "ms"),
            number(arm.twin_p99_ms, "ms"),
            _figure(arm.p99_error),
            number(arm.live_work, "share"),
            number(arm.twin_work, "share"),
            _figure(arm.work_error),
        )
        for name, one in result.scenarios.items()
        for arm in one.arms
    ]
    return PageTable(headers=headers, rows=rows)


def wrong_table(result: RankingResult) -> PageTable:
    """A row for each certain effect that has another sign on the twin."""
    headers = ("scenario", "measure", "arm", "against", "live ratio", "twin ratio")
    rows = [
        (
            name,
            effect.measure,
            effect.arm,
            effect.against,
            f"{_figure(effect.live.low)} to {_figure(effect.live.high)}",
            _figure(effect.twin),
        )
        for name, one in result.scenarios.items()
        for effect in one.wrong
    ]
    return PageTable(headers=headers, rows=rows)


def ranking_notes(result: RankingResult) -> list[str]:
    """The summary in words, each figure with its target."""
    summary, targets = result.summary, result.targets

    def aimed(key: str, value: float | None) -> str:
        return judged(targets.get(key), value)

    return [
        f"signs: of {summary.rank_signs_counted} differences that are certain live the right sign "
        f"have {aimed('rank_signs_right', summary.rank_signs_right)}",
        f"rank correlation of p99: median "
        f"{aimed('p99_spearman_median', summary.p99_spearman_median)}, worst "
        f"{aimed('p99_spearman_worst', summary.p99_spearman_worst)}",
        f"rank correlation of background work: median "
        f"{aimed('work_spearman_median', summary.work_spearman_median)}, worst "
        f"{aimed('work_spearman_worst', summary.work_spearman_worst)}",
        f"scenarios that no fit has seen: median error of p99 "
        f"{aimed('unseen_p99_error_median', summary.unseen_p99_error_median)}, of background work "
        f"{aimed('unseen_work_error_median', summary.unseen_work_error_median)}",
        *(f"not compared: {what}" for what in result.alone),
    ]


def write_ranking_page(result: RankingResult, path: Path) -> None:
    """Write the page of a ranking."""
    write_experiment_page(_page(result), path)


def _page(result: RankingResult) -> ExperimentPage:
    colours = {name: f"var(--c{k % COLOURS})" for k, name in enumerate(result.scenarios)}
    counted, right = result.summary.rank_signs_counted, result.summary.rank_signs_right
    latency = latency_scatter(_dots(result, colours, "ms"), "p99")
    work = work_scatter(_dots(result, colours, "share"))
    return ExperimentPage(
        experiment="fidelity",
        source="arms ranked live and on the twin",
        headline=(
            "No difference between two arms is certain live"
            if right is None
            else f"The twin has the sign of {round(right * counted)} of {counted} certain effects"
        ),
        sections=[
            PageSection(
                title="Twin against live",
                what=SHADED,
                key=colours,
                charts=(
                    PageChart(title="p99 latency, ms", svg=latency),
                    PageChart(title="Background work", svg=work),
                ),
                notes=tuple(ranking_notes(result)),
            ),
            PageSection(title="Scenarios", table=scenario_table(result)),
            PageSection(title="Arms", table=arm_table(result)),
            PageSection(
                title="Certain effects with another sign on the twin", table=wrong_table(result)
            ),
        ],
    )


def _dots(result: RankingResult, colours: dict[str, str], unit: str) -> list[Dot]:
    dots = []
    for name, one in result.scenarios.items():
        for arm, live, twin in _pairs(one, unit):
            if live is not None and twin is not None:
                dots.append(Dot(name=f"{name} {arm}", colour=colours[name], live=live, twin=twin))
    return dots


def _pairs(one: ScenarioRanking, unit: str) -> Sequence[tuple[str, float | None, float | None]]:
    if unit == "ms":
        return [(arm.arm, arm.live_p99_ms, arm.twin_p99_ms) for arm in one.arms]
    return [(arm.arm, arm.live_work, arm.twin_work) for arm in one.arms]


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
