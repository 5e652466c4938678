"""The oracle: the static setting that is best in hindsight, found by searching a grid.

A static setting that is chosen with the scenario's results at hand is an upper bound for all
static settings, and the yardstick for controllers that change over time. The grid is screened on
the scenario's twin, and the best settings are compared live (``stallward compare``). From that
comparison, :func:`best_meeting_target` takes the arm that does most work among those that keep the
target as well as ample memory does.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stallward.evaluation.errors import EvaluationError, ResultError
from stallward.evaluation.results.comparison import ComparisonResult
from stallward.evaluation.results.interval import Interval
from stallward.evaluation.results.serialise import load
from stallward.research.screening import SLACK


@dataclass(frozen=True, slots=True, kw_only=True)
class Hindsight:
    """The oracle of a live comparison: the static arm that did best."""

    arm: str
    """The arm's label."""
    meets_target: bool
    """Whether it keeps the target. If not, no static arm does, and this one does most often."""


def best_meeting_target(result: ComparisonResult, *, chosen: str = "") -> Hindsight:
    """The oracle of a live comparison: the static arm with most work that keeps the target.

    Args:
        result: The comparison; its arms with the controller ``static`` are the candidates.
        chosen: The label of an oracle that was chosen elsewhere, the only candidate then.

    Raises:
        EvaluationError: If the comparison has no static arm.
    """
    arms = {
        label: arm.metrics
        for label, arm in result.table.arms.items()
        if arm.facts.controller.partition(":")[0] == "static" and chosen in ("", label)
    }
    if not arms:
        raise EvaluationError(
            "No static arm was compared.",
            next_step="Run `stallward oracle` for arms to compare.",
        )
    ample = _value(result.table.references.ample.slo_attainment)

    def attainment(label: str) -> float:
        return _value(arms[label].slo_attainment)

    keeping = [label for label in arms if attainment(label) >= ample - SLACK]
    if not keeping:
        return Hindsight(arm=max(arms, key=attainment), meets_target=False)
    best = max(keeping, key=lambda label: _value(arms[label].background_work))
    return Hindsight(arm=best, meets_target=True)


def _value(figure: Interval) -> float:
    return float("-inf") if figure.value is None else figure.value


def oracle_of(file: Path, scenario: str) -> Hindsight:
    """The static arm that was best in hindsight, of the result of a comparison of ``scenario``.

    Raises:
        EvaluationError: If the file cannot be read, or is of another scenario.
    """
    try:
        result = load(ComparisonResult, file)
    except ResultError as error:
        raise EvaluationError(
            f"{file} is no result of a comparison: {error.cause}",
            next_step="Name the result.json that `stallward compare` wrote.",
        ) from error
    if result.scenario != scenario:
        raise EvaluationError(
            f"{file} is the result of {result.scenario!r:.80}, not of {scenario!r}."
        )
    return best_meeting_target(result)
