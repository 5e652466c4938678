"""The verdict as tables, for the terminal."""

from __future__ import annotations

from typing import Final

from stallward.evaluation.blocks.request import MOST_STEAL_SHARE
from stallward.evaluation.report.experiment_page import PageTable
from stallward.evaluation.report.text import Kind, cell
from stallward.research.verdict.result import JudgedFigure, ScenarioVerdict, Verdict
from stallward.research.verdict.targets import (
    FIGURES,
    LEAST_EFFECT,
    POLICY,
    REPEAT_FIGURES,
    Figure,
    How,
)

_EVERY_ARM: Final = (
    "impact_ample_mean", "impact_ample_p99", "slo_points", "slo_points_worst", "work",
    "work_of_oracle", "work_of_rule", "slo_points_of_partition", "work_of_partition", "score",
)  # fmt: skip
"""Names of the figures that are shown for every arm; the others are shown for the policy only."""
_SHARES: Final = frozenset({How.LEVEL, How.IMPACT, How.LESS, How.MORE})


def verdict_tables(verdict: Verdict) -> tuple[PageTable, ...]:
    """The tables: the policy by scenario, every arm, and arms compared with themselves."""
    scenarios = verdict.scenarios
    overall = verdict.arms[POLICY]
    policy = [
        (
            figure.title,
            overall[figure.name].target,
            _cell(overall[figure.name], figure),
            _met_in_words(overall[figure.name]),
            *(_cell(one.arms[POLICY][figure.name], figure) for one in scenarios.values()),
        )
        for figure in FIGURES
    ]
    shown = [figure for figure in FIGURES if figure.name in _EVERY_ARM]
    arms = [
        (
            role,
            *(
                _cell(figures[figure.name], figure) if figure.name in figures else ""
                for figure in shown
            ),
        )
        for role, figures in verdict.arms.items()
    ]
    repeats = [
        (role, *(_cell(figures[figure.name], figure) for figure in REPEAT_FIGURES))
        for role, figures in verdict.again.items()
    ]
    described = ", ".join(_scenario_in_words(name, one) for name, one in scenarios.items())
    return (
        PageTable(
            title=f"{POLICY}, {described}",
            headers=("figure", "target", "over all", "", *scenarios),
            rows=policy,
        ),
        PageTable(
            title="Every arm, over all scenarios",
            headers=("arm", *(figure.title for figure in shown)),
            rows=arms,
        ),
        PageTable(
            title=_repeats_in_words(verdict),
            headers=("arm", *(figure.title for figure in REPEAT_FIGURES)),
            rows=repeats,
        ),
    )


def _repeats_in_words(verdict: Verdict) -> str:
    words = "Arms run twice: the second run over (for the score: less) the first"
    if verdict.rounds_needed is None:
        return words
    return f"{words}; {verdict.rounds_needed} rounds show {100 * LEAST_EFFECT:g} % more work"


def _met_in_words(figure: JudgedFigure) -> str:
    """Say whether a figure meets its target, and whether that is certain; empty without one."""
    if figure.met is None:
        return ""
    if not figure.met:
        return "missed"
    return "met" if figure.surely else "met, not certainly"


def _scenario_in_words(name: str, scenario: ScenarioVerdict) -> str:
    oracle = scenario.oracle
    words = "no oracle" if oracle is None else f"oracle {oracle.arm}"
    if oracle is not None and not oracle.meets_target:
        words += " misses the target"
    if scenario.nodes > 1:
        words += f", on {scenario.nodes} machines"
    counted = (("run again", scenario.spoiled_blocks), ("terminated", scenario.ended_programs))
    for what, counts in counted:
        if counts:
            words += f", {what}: " + ", ".join(f"{role} {n}" for role, n in counts.items())
    disturbed = {r: s for r, s in scenario.stolen_share_worst.items() if s > MOST_STEAL_SHARE}
    if disturbed:
        each = ", ".join(f"{role} {100 * share:.0f} %" for role, share in disturbed.items())
        words += f", disturbed by the host: {each}"
    source = f" ({scenario.slo_source})" if scenario.slo_source else ""
    target = f"target {scenario.slo_ms:.3g} ms{source}"
    return f"{name} ({scenario.rounds} rounds, {target}, {words})"


def _cell(judged: JudgedFigure, figure: Figure) -> str:
    if judged.beyond:
        return "more than nothing"
    is_score = figure.of is None
    kind: Kind = "share" if figure.how in _SHARES and not is_score else "number"
    return cell(judged.interval, kind)
