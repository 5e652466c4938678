"""``stallward fidelity --results``: comparisons on twins beside live ones of the same arms.

Nothing is run: ``stallward compare`` wrote the results, with ``--live`` and with ``--twin``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from stallward.evaluation.errors import EvaluationError
from stallward.evaluation.fidelity.ranking.ranks import rank_arms, summarise_ranking
from stallward.evaluation.fidelity.ranking.result import RankingResult
from stallward.evaluation.fidelity.targets import load_fidelity_targets
from stallward.evaluation.results.comparison import RESULT_FILE, ComparisonResult
from stallward.evaluation.results.serialise import load


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
