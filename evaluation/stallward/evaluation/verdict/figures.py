"""The figures of every arm from live comparisons of held-out scenarios, and their targets. Pure.

All scenarios are resampled together: a resample takes the same rounds of every scenario and of
every arm. So the figures over all scenarios have an interval like any other. The interval holds
for these scenarios, not for others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from stallward.evaluation.arms import ALONE
from stallward.evaluation.errors import EvaluationError
from stallward.evaluation.measures.power import rounds_for, spread_per_round
from stallward.evaluation.verdict.judging import Judging
from stallward.evaluation.verdict.result import (
    JudgedFigure,
    ScenarioVerdict,
    Shipped,
    Verdict,
)
from stallward.evaluation.verdict.scenario_comparison import ScenarioComparison, common_roles
from stallward.evaluation.verdict.targets import (
    KEPT_AS_PARTITION,
    LEAST_EFFECT,
    PARTITION,
    POLICY,
    REPEAT_FIGURES,
    WORK_AGAIN,
    WORK_OF_PARTITION,
    Target,
)

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
        ships=_ships(arms[POLICY]),
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


def _ships(policy: Mapping[str, JudgedFigure]) -> Shipped:
    """The controller that decides by default: the policy only where it is certainly better."""
    work, kept = policy[WORK_OF_PARTITION.name], policy[KEPT_AS_PARTITION.name]
    if work.interval.value is None:
        why = "the policy was not compared with partition"
    elif work.met is None or kept.met is None:
        why = "the plan does not say what the policy has to reach beside partition"
    elif not kept.met:
        why = "the policy does not certainly keep the target as often as partition"
    elif not work.met:
        why = "the policy does not certainly let more work be done than partition"
    else:
        why = "it keeps the target as often as partition and certainly lets more work be done"
        return Shipped(controller=POLICY, why=why)
    return Shipped(controller=PARTITION, why=why)
