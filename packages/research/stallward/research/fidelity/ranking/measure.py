"""``stallward fidelity --results``: comparisons on twins beside live ones of the same arms.

Nothing is run: ``stallward compare`` wrote the results, with ``--live`` and with ``--twin``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from stallward.evaluation.errors import EvaluationError
from stallward.evaluation.results.comparison import (
    RESULT_FILE,
    ArmResult,
    ComparisonResult,
    Contrast,
)
from stallward.evaluation.results.interval import Interval
from stallward.evaluation.results.serialise import load
from stallward.research.fidelity.distances import finite, log_error, spearman
from stallward.research.fidelity.result import (
    Measure,
    RankedArm,
    RankingResult,
    RankingSummary,
    ScenarioRanking,
    WrongEffect,
)
from stallward.research.fidelity.targets import load_fidelity_targets

# ---------- Signs, ranks and errors of the arms of two comparisons, live and on a twin.

_MEASURES: Final[tuple[Measure, ...]] = ("p99", "background work")


def rank_arms(live: ComparisonResult, twin: ComparisonResult) -> ScenarioRanking:
    """Lay the arms that both comparisons of a scenario have beside each other."""
    labels = [label for label in live.table.arms if label in twin.table.arms]
    arms = [_arm(label, live.table.arms[label], twin.table.arms[label]) for label in labels]
    certain = list(_certain(live.table.contrasts, twin.table.arms, labels))
    wrong = tuple(effect for effect in certain if not _agrees(effect))
    return ScenarioRanking(
        fitted=twin.method.twin_fitted,
        arms=tuple(arms),
        p99_spearman=_ranks([(a.live_p99_ms, a.twin_p99_ms) for a in arms]),
        work_spearman=_ranks([(a.live_work, a.twin_work) for a in arms]),
        effects_right=len(certain) - len(wrong),
        effects_counted=len(certain),
        wrong=wrong,
    )


def summarise_ranking(scenarios: Mapping[str, ScenarioRanking]) -> RankingSummary:
    """Summarise the rankings of all scenarios."""
    rankings = list(scenarios.values())
    counted = sum(one.effects_counted for one in rankings)
    right = sum(one.effects_right for one in rankings)
    p99 = [one.p99_spearman for one in rankings if one.p99_spearman is not None]
    work = [one.work_spearman for one in rankings if one.work_spearman is not None]
    unseen = [arm for one in rankings if one.fitted is False for arm in one.arms]
    return RankingSummary(
        rank_signs_right=right / counted if counted else None,
        rank_signs_counted=counted,
        p99_spearman_median=_median(p99),
        p99_spearman_worst=min(p99, default=None),
        work_spearman_median=_median(work),
        work_spearman_worst=min(work, default=None),
        unseen_p99_error_median=_median([a.p99_error for a in unseen]),
        unseen_work_error_median=_median([a.work_error for a in unseen]),
    )


def _arm(label: str, live: ArmResult, twin: ArmResult) -> RankedArm:
    live_p99, twin_p99 = _value("p99", live), _value("p99", twin)
    live_work, twin_work = _value("background work", live), _value("background work", twin)
    return RankedArm(
        arm=label,
        live_p99_ms=live_p99,
        twin_p99_ms=twin_p99,
        live_work=live_work,
        twin_work=twin_work,
        p99_error=_error(twin_p99, live_p99),
        work_error=_error(twin_work, live_work),
    )


def _value(measure: Measure, arm: ArmResult) -> float | None:
    metrics = arm.metrics
    return metrics.p99_ms.value if measure == "p99" else metrics.background_work.value


def _certain(
    contrasts: Sequence[Contrast], twin: Mapping[str, ArmResult], labels: Sequence[str]
) -> Iterator[WrongEffect]:
    """The differences between two of the arms whose live interval excludes no difference."""
    for contrast in contrasts:
        if contrast.arm not in labels or contrast.against not in labels:
            continue
        for measure in _MEASURES:
            live = contrast.p99_ratio if measure == "p99" else contrast.background_work_ratio
            if _sign(live):
                one, two = (_value(measure, twin[k]) for k in (contrast.arm, contrast.against))
                yield WrongEffect(
                    measure=measure,
                    arm=contrast.arm,
                    against=contrast.against,
                    live=live,
                    twin=one / two if one is not None and two else None,
                )


def _sign(ratio: Interval) -> int:
    """The sign of an effect; 0 if its interval contains a ratio of 1, or is unknown."""
    if ratio.low is None or ratio.high is None:
        return 0
    return (ratio.low > 1.0) - (ratio.high < 1.0)


def _agrees(effect: WrongEffect) -> bool:
    """Whether the twin has the sign as well. What it does not know is wrong."""
    return effect.twin is not None and np.sign(effect.twin - 1.0) == _sign(effect.live)


def _ranks(pairs: Sequence[tuple[float | None, float | None]]) -> float | None:
    known = np.array([[np.nan if v is None else v for v in pair] for pair in pairs]).reshape(-1, 2)
    return finite(spearman(known[:, 0], known[:, 1]))


def _error(twin: float | None, live: float | None) -> float | None:
    return finite(log_error(*(np.nan if v is None else v for v in (twin, live))))


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def measure_ranking(places: Sequence[Path]) -> RankingResult:
    """Measure whether twins rank arms as live comparisons do.

    Args:
        places: Results of comparisons, or directories with some below them.

    Raises:
        EvaluationError: If there is no scenario with a result of both kinds and two arms in both,
            or two results of one kind.
        ResultError: If a result cannot be read.
    """
    live: dict[str, ComparisonResult] = {}
    twin: dict[str, ComparisonResult] = {}
    for path in _result_files(places):
        result = load(ComparisonResult, path)
        side = live if result.mode == "live" else twin
        if result.scenario in side:
            raise EvaluationError(
                f"{path} is a second {result.mode} comparison of {result.scenario}.",
                next_step="Arms of two comparisons share no rounds: give one of each kind.",
            )
        side[result.scenario] = result
    pairs = {name: (live[name], twin[name]) for name in live if name in twin}
    scenarios = {name: rank_arms(*pair) for name, pair in pairs.items()}
    scenarios = {name: one for name, one in scenarios.items() if len(one.arms) >= 2}
    if not scenarios:
        raise EvaluationError(
            "No scenario was compared both live and on a twin, with two arms in both.",
            next_step="Run `stallward compare SCENARIO --arms ... --live`, and the same with "
            "`--twin` into another directory.",
        )
    summary = summarise_ranking(scenarios)
    return RankingResult(
        scenarios=scenarios,
        alone=tuple(_alone(live, twin)),
        summary=summary,
        targets=load_fidelity_targets().judge_ranking(summary),
    )


def _result_files(places: Sequence[Path]) -> list[Path]:
    """The files of results at ``places``, each once."""
    files: list[Path] = []
    for place in places:
        found = [place] if place.is_file() else sorted(place.rglob(RESULT_FILE))
        if not found:
            raise EvaluationError(
                f"There is no {RESULT_FILE} at or below {place}.",
                next_step="Name the directory of a `stallward compare`.",
            )
        files += found
    return list({path.resolve(): path for path in files}.values())


def _alone(live: dict[str, ComparisonResult], twin: dict[str, ComparisonResult]) -> Iterator[str]:
    """Scenarios and arms that only one side has."""
    for name in dict.fromkeys((*live, *twin)):
        if name not in live or name not in twin:
            yield f"{name}: {'live' if name in live else 'twin'} only"
            continue
        here, there = live[name].table.arms, twin[name].table.arms
        yield from (f"{name} {arm}: live only" for arm in here if arm not in there)
        yield from (f"{name} {arm}: twin only" for arm in there if arm not in here)
