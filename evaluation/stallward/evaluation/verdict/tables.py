"""The verdict as tables, for the terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stallward.evaluation.blocks.request import MOST_STOLEN_SHARE
from stallward.evaluation.report.text import Kind, cell
from stallward.evaluation.verdict.result import JudgedFigure, ScenarioVerdict, Verdict
from stallward.evaluation.verdict.targets import AGAIN, FIGURES, POLICY, Figure, How

_EACH: Final = (
    "impact_ample_mean", "impact_ample_p99", "slo_points", "slo_points_worst", "work",
    "work_of_oracle", "score",
)  # fmt: skip
"""What is shown of every arm; the rest is said of the policy alone."""
_SHARES: Final = frozenset({How.LEVEL, How.IMPACT, How.LESS, How.MORE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table with its title."""

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def verdict_tables(verdict: Verdict) -> tuple[Table, ...]:
    """The policy's figures by scenario, every arm's, and arms against themselves."""
    scenarios = verdict.scenarios
    whole = verdict.arms[POLICY]
    policy = [
        (
            figure.title,
            whole[figure.name].target,
            _cell(whole[figure.name], figure),
            _said(whole[figure.name]),
            *(_cell(one.arms[POLICY][figure.name], figure) for one in scenarios.values()),
        )
        for figure in FIGURES
    ]
    shown = [figure for figure in FIGURES if figure.name in _EACH]
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
    again = [
        (role, *(_cell(figures[figure.name], figure) for figure in AGAIN))
        for role, figures in verdict.again.items()
    ]
    return (
        Table(
            title=f"{POLICY}, {', '.join(_rounds(name, one) for name, one in scenarios.items())}",
            headers=("figure", "target", "over all", "", *scenarios),
            rows=tuple(policy),
        ),
        Table(
            title="Every arm, over all scenarios",
            headers=("arm", *(figure.title for figure in shown)),
            rows=tuple(arms),
        ),
        Table(
            title="The same twice, the second over (or less) the first",
            headers=("arm", *(figure.title for figure in AGAIN)),
            rows=tuple(again),
        ),
    )


def _said(figure: JudgedFigure) -> str:
    """Whether a target is met, and whether that is certain."""
    if figure.met is None:
        return ""
    if not figure.met:
        return "missed"
    return "met" if figure.surely else "met, not certainly"


def _rounds(name: str, one: ScenarioVerdict) -> str:
    oracle = one.oracle
    said = "no oracle" if oracle is None else f"oracle {oracle.arm}"
    if oracle is not None and not oracle.meets_target:
        said += " misses the target"
    if one.nodes > 1:
        said += f", on {one.nodes} machines"
    for what, counts in (("run again", one.spoiled_blocks), ("ended", one.ended_programs)):
        if counts:
            said += f", {what}: " + ", ".join(f"{role} {n}" for role, n in counts.items())
    disturbed = {r: s for r, s in one.stolen_share_worst.items() if s > MOST_STOLEN_SHARE}
    if disturbed:
        each = ", ".join(f"{role} {100 * share:.0f} %" for role, share in disturbed.items())
        said += f", disturbed by the host: {each}"
    return f"{name} ({one.rounds} rounds, target {one.slo_ms:.3g} ms, {said})"


def _cell(judged: JudgedFigure, figure: Figure) -> str:
    if judged.beyond:
        return "more than nothing"
    is_score = figure.of is None
    kind: Kind = "share" if figure.how in _SHARES and not is_score else "number"
    return cell(judged.interval, kind)
