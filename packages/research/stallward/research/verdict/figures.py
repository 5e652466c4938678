"""The figures of every arm from live comparisons of held-out scenarios, and their targets. Pure.

All scenarios are resampled together: a resample takes the same rounds of every scenario and of
every arm. So the figures over all scenarios have an interval like any other. The interval holds
for these scenarios, not for others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import numpy as np

from stallward.evaluation.arms import ALONE, AMPLE
from stallward.evaluation.errors import EvaluationError
from stallward.evaluation.measures.estimates import Estimate
from stallward.evaluation.measures.intervals import (
    Scale,
    impact_interval,
    interval,
    rounds_for,
    share_difference_interval,
    spread_per_round,
)
from stallward.evaluation.results.interval import UNKNOWN, Interval
from stallward.research.verdict.result import JudgedFigure, ScenarioVerdict, Shipped, Verdict
from stallward.research.verdict.scenario_comparison import ScenarioComparison, common_roles
from stallward.research.verdict.targets import (
    FIGURES,
    KEPT_AS_PARTITION,
    LEAST_EFFECT,
    PARTITION,
    POLICY,
    REPEAT_FIGURES,
    SPREAD,
    SPREAD_OF_SEEDS,
    WORK_AGAIN,
    WORK_OF_PARTITION,
    WORST_POINTS,
    Figure,
    How,
    Target,
)

# ---------- Figures of one arm over one scenario or several, judged by their targets.

_OTHER_SEED: Final = "onnx:"
"""How the label of another seed of the policy begins: such an arm runs a policy file."""


class Judging:
    """Computes figures and judges them by their targets.

    Args:
        targets: Name of a figure -> its target.
    """

    def __init__(self, targets: Mapping[str, Target]) -> None:
        self._targets = targets

    def figures(
        self, scenarios: Sequence[ScenarioComparison], role: str
    ) -> dict[str, JudgedFigure]:
        """All figures of an arm, over one scenario or several."""
        special = (WORST_POINTS, SPREAD, SPREAD_OF_SEEDS)
        figures = {
            figure.name: self.figure(scenarios, figure, role, figure.against)
            for figure in FIGURES
            if figure not in special and figure.against != role
        }
        figures[WORST_POINTS.name] = self._worst_round(scenarios, role)
        figures[SPREAD.name] = self._spread(scenarios, [role], SPREAD)
        if role == POLICY:
            seeds = [
                one
                for one in common_roles(scenarios)
                if one == POLICY or one.startswith(_OTHER_SEED)
            ]
            several = seeds if len(seeds) > 1 else []
            figures[SPREAD_OF_SEEDS.name] = self._spread(scenarios, several, SPREAD_OF_SEEDS)
        return {name: self._where_met(name, figures) for name in figures}

    def _where_met(self, name: str, figures: Mapping[str, JudgedFigure]) -> JudgedFigure:
        """Return a figure; it meets its target only if the figure it depends on does as well."""
        figure, target = figures[name], self._targets.get(name)
        if target is None or target.where_met is None:
            return figure
        other = figures.get(target.where_met)
        if other is None:
            return figure
        return replace(
            figure,
            met=other.met if figure.met else figure.met,
            surely=other.surely if figure.surely else figure.surely,
        )

    def figure(
        self,
        scenarios: Sequence[ScenarioComparison],
        figure: Figure,
        role: str,
        against: str | None,
    ) -> JudgedFigure:
        """One figure of an arm, over one scenario or several."""
        pairs = [
            _Pair(
                scenario=scenario,
                one=one,
                two=None if against is None else scenario.estimate(against, figure),
            )
            for scenario in scenarios
            if (one := scenario.estimate(role, figure)) is not None
        ]
        usable = [pair for pair in pairs if against is None or pair.two is not None]
        if not usable:
            return self._judged(figure, UNKNOWN)
        combined = _combined(figure.how, usable)
        rounds = min(pair.scenario.estimates.rounds for pair in usable)
        if figure.counts_windows:
            whole = _interval_of_shares(usable, combined, rounds)
        else:
            whole = _interval(figure.how, combined, rounds)
        known = [
            value for pair in usable if np.isfinite(value := _combined(figure.how, [pair]).value)
        ]
        worst = None
        if len(scenarios) > 1 and known:
            worst = min(known) if figure.more_is_better else max(known)
        return self._judged(
            figure,
            whole,
            beyond=_is_beyond_nothing(usable),
            worst=worst,
            left_out=len(scenarios) - len(usable),
        )

    def _worst_round(self, scenarios: Sequence[ScenarioComparison], role: str) -> JudgedFigure:
        """How far attainment is below ample's in the same round, in the worst round of all.

        Resampling gives no interval for a worst value. One more missed window in a block is more
        than one point, so the figure holds for these blocks only.
        """
        under = [
            scenario.by_round(AMPLE)[1] - scenario.by_round(role)[1] for scenario in scenarios
        ]
        value = float(np.max(np.concatenate(under)))
        points = Interval(value=value, low=None, high=None) if np.isfinite(value) else UNKNOWN
        worst = value if len(scenarios) > 1 and np.isfinite(value) else None
        return self._judged(WORST_POINTS, points, worst=worst)

    def _spread(
        self, scenarios: Sequence[ScenarioComparison], roles: Sequence[str], figure: Figure
    ) -> JudgedFigure:
        """The standard deviation of the p99 over ample's, over rounds and arms.

        It is computed for each scenario; the figure is the mean over scenarios.
        """
        rounds = min(scenario.estimates.rounds for scenario in scenarios)
        if rounds < 2 or not roles or AMPLE in roles:
            return self._judged(figure, UNKNOWN)
        each = []
        for scenario in scenarios:
            ratios = np.array([scenario.by_round(role)[0] for role in roles])
            once = np.ones((1, ratios.shape[1]), dtype=np.int64)
            counts = np.concatenate([scenario.estimates.conditions[AMPLE].counts, once])
            mean = counts @ ratios.sum(axis=0) / ratios.size
            square = counts @ np.square(ratios).sum(axis=0) / ratios.size - np.square(mean)
            each.append(np.sqrt(np.maximum(square, 0.0) * ratios.size / (ratios.size - 1)))
        rows = np.mean(each, axis=0)
        spread = interval(float(rows[-1]), rows[:-1], blocks=rounds, scale=Scale.LOG)
        return self._judged(figure, spread)

    def _judged(
        self,
        figure: Figure,
        figure_interval: Interval,
        *,
        beyond: bool = False,
        worst: float | None = None,
        left_out: int = 0,
    ) -> JudgedFigure:
        target = self._targets.get(figure.name)
        return JudgedFigure(
            interval=figure_interval,
            worst=worst,
            beyond=beyond,
            left_out_scenarios=left_out,
            target="" if target is None else target.in_words(),
            met=None if target is None else target.met(figure_interval, beyond=beyond),
            surely=(None if target is None else target.surely(figure_interval, beyond=beyond)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """The estimate of an arm in one scenario, and the estimate that it is compared with."""

    scenario: ScenarioComparison
    one: Estimate
    two: Estimate | None


def _is_beyond_nothing(pairs: Sequence[_Pair]) -> bool:
    """Whether an arm did something while the other one did nothing at all."""
    others = [pair.two.value for pair in pairs if pair.two is not None]
    return bool(others) and sum(others) == 0.0 < sum(pair.one.value for pair in pairs)


def _combined(how: How, pairs: Sequence[_Pair]) -> Estimate:
    """A figure over one scenario or several, with its draws."""
    a = [np.append(pair.one.draws, pair.one.value) for pair in pairs]
    b = [np.append(pair.two.draws, pair.two.value) for pair in pairs if pair.two is not None]
    with np.errstate(divide="ignore", invalid="ignore"):
        if how is How.LEVEL:
            rows = np.mean(a, axis=0)
        elif how is How.SHARE:
            rows = np.sum(a, axis=0) / np.sum(b, axis=0)
        elif how is How.RATIO:
            rows = np.exp(np.mean(np.log(np.array(a) / np.array(b)), axis=0))
        elif how is How.IMPACT:
            rows = np.mean(np.array(a) / np.array(b), axis=0) - 1.0
        else:
            sign = 1.0 if how is How.MORE else -1.0
            rows = sign * np.mean(np.array(a) - np.array(b), axis=0)
    return Estimate(value=float(rows[-1]), draws=rows[:-1])


def _interval(how: How, figure: Estimate, rounds: int) -> Interval:
    if how is How.IMPACT:
        return impact_interval(figure.value + 1.0, figure.draws + 1.0, blocks=rounds)
    scale = Scale.LOG if how in {How.RATIO, How.SHARE} else Scale.LINEAR
    return interval(figure.value, figure.draws, blocks=rounds, scale=scale)


def _interval_of_shares(pairs: Sequence[_Pair], less: Estimate, rounds: int) -> Interval:
    """The interval of the shares of windows of others less those of an arm, over scenarios."""

    def mean(shares: Sequence[Estimate]) -> tuple[float, int]:
        return float(np.mean([one.value for one in shares])), sum(one.trials for one in shares)

    others = mean([pair.two for pair in pairs if pair.two is not None])
    arms = mean([pair.one for pair in pairs])
    return share_difference_interval(others, arms, less.draws, units=rounds)


_Count = TypeVar("_Count", int, float)


def judge(
    scenarios: Mapping[str, ScenarioComparison],
    targets: Sequence[Target],
    failed: Mapping[str, str] | None = None,
) -> Verdict:
    """Compute the figures of every arm, judge them by the targets, and say what ships.

    Args:
        scenarios: Name of a scenario -> its comparison.
        targets: The targets of the figures, the same for every arm.
        failed: Name of a scenario that could not be run -> why.

    Raises:
        EvaluationError: If the policy is not among the arms.
    """
    for name, scenario in scenarios.items():
        if POLICY not in scenario.roles:
            raise EvaluationError(f"The comparison of {name} has no arm {POLICY!r}.")
    judging = Judging({target.figure: target for target in targets})
    comparisons = list(scenarios.values())
    roles = [role for role in common_roles(comparisons) if role != ALONE]
    arms = {role: judging.figures(comparisons, role) for role in roles}
    repeats = {
        role: {
            figure.name: judging.figure(comparisons, figure, role, role.partition("#")[0])
            for figure in REPEAT_FIGURES
        }
        for role in roles
        if "#" in role
    }
    return Verdict(
        scenarios={
            name: _scenario(judging, scenario, roles) for name, scenario in scenarios.items()
        },
        arms=arms,
        again=repeats,
        ships=_ships(arms),
        failed=dict(failed or {}),
        rounds_needed=_rounds_needed(
            repeats, min(scenario.estimates.rounds for scenario in comparisons)
        ),
    )


def _scenario(
    judging: Judging, scenario: ScenarioComparison, roles: Sequence[str]
) -> ScenarioVerdict:
    return ScenarioVerdict(
        rounds=scenario.estimates.rounds,
        slo_ms=scenario.estimates.target.ms,
        slo_quantile=scenario.estimates.target.quantile,
        slo_source=scenario.slo_source,
        oracle=scenario.oracle,
        roles=dict(scenario.roles),
        nodes=scenario.nodes,
        run=scenario.provenance,
        spoiled_blocks=_by_role(scenario, scenario.invalid_blocks),
        ended_programs=_by_role(scenario, scenario.terminated),
        stolen_share_worst=_by_role(scenario, scenario.steal_shares),
        arms={
            role: judging.figures([scenario], role) for role in roles if role in scenario.labels
        },
    )


def _by_role(scenario: ScenarioComparison, counts: Mapping[str, _Count]) -> dict[str, _Count]:
    return {role: counts[label] for role, label in scenario.roles.items() if counts.get(label)}


def _rounds_needed(repeats: Mapping[str, Mapping[str, JudgedFigure]], rounds: int) -> int | None:
    """The rounds that show the least effect on work, by the policy and its second run."""
    again = next((one for role, one in repeats.items() if role.startswith(f"{POLICY}#")), None)
    if again is None:
        return None
    spread = spread_per_round(again[WORK_AGAIN.name].interval, rounds)
    return None if spread is None else rounds_for(LEAST_EFFECT, spread)


def _ships(arms: Mapping[str, Mapping[str, JudgedFigure]]) -> Shipped:
    """The controller that decides by default: the policy only where it is certainly better."""
    work, kept = (arms[POLICY][one.name] for one in (WORK_OF_PARTITION, KEPT_AS_PARTITION))
    if PARTITION not in arms:
        why = "the policy was not compared with partition"
    elif not (work.target and kept.target):
        why = "the plan does not say what the policy has to reach beside partition"
    elif not kept.met:
        why = "the policy does not certainly keep the target as often as partition"
    elif work.interval.value is None:
        why = "partition did no work that the policy's could be compared with"
    elif not work.met:
        why = "the policy does not certainly let more work be done than partition"
    else:
        certainly = "certainly " if work.surely else ""  # a plan need not ask for certainty
        why = f"it keeps the target as often as partition and {certainly}lets more work be done"
        return Shipped(controller=POLICY, why=why)
    return Shipped(controller=PARTITION, why=why)
