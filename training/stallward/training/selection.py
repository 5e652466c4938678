"""Which of several trained policies is kept: the one whose worst scenario is surest to do well.

Trainings differ by luck, and their best run flatters (Agarwal et al., 2021). Each is judged on the
same fresh draws of twins that none was trained on, where there are such; by the lower confidence
bound of its score in the scenario where that is lowest. The score of a policy that misses the
target more often than it may falls steeply, so that one of them is kept only if all do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stallward.env.simulation import SimulationSettings
from stallward.env.twin.fitted import FittedTwin
from stallward.training.constraints import Constraints, Slack
from stallward.training.rollout import Act, Outcome, evaluate
from stallward.training.statics import make_constraints

MakeAct = Callable[[int], Act]
"""Makes a policy for so many nodes side by side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """What policies are judged on.

    Args:
        twins: Their scenarios.
        constraints: What is allowed in each.
        settings: Of the simulation.
        episodes: Nodes for each scenario.
        seed: Of their draws.
    """

    twins: tuple[FittedTwin, ...]
    constraints: Constraints
    settings: SimulationSettings
    episodes: int
    seed: int

    def outcomes(self, act: Act) -> dict[str, Outcome]:
        """How a policy does in each scenario."""
        return self.outcomes_of(lambda _nodes: act)

    def outcomes_of(self, make: MakeAct) -> dict[str, Outcome]:
        """The same of what has a memory: it is made afresh for each scenario."""
        return {
            twin.scenario.name: evaluate(
                make(self.episodes),
                [twin],
                self.settings,
                constraints=self.constraints.one(k),
                episodes=self.episodes,
                seed=self.seed,
            )
            for k, twin in enumerate(self.twins)
        }

    def on(self, twins: Sequence[FittedTwin], constraints: Constraints) -> Judge:
        """The same on other twins, where ``constraints`` hold."""
        return replace(self, twins=tuple(twins), constraints=constraints)

    def allowed(self) -> dict[str, dict[str, float]]:
        """What costs nothing, by scenario."""
        return self.constraints.as_json([twin.scenario.name for twin in self.twins])


def make_judge(
    twins: Sequence[FittedTwin],
    settings: SimulationSettings,
    *,
    slack: Slack,
    episodes: int,
    seed: int,
) -> Judge:
    """A judge who allows ``slack`` beyond ample memory."""
    constraints, _ = make_constraints(twins, settings, slack, seed=seed)
    return Judge(
        twins=tuple(twins),
        constraints=constraints,
        settings=settings,
        episodes=max(episodes // len(twins), 8),
        seed=seed,
    )


def worst_low(outcomes: Mapping[str, Outcome]) -> float:
    """The lower confidence bound of the score in the scenario where it is lowest."""
    return min(outcome.score_low for outcome in outcomes.values())


def as_json(outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """The form that goes into a policy's provenance."""
    return {name: outcome.as_json() for name, outcome in outcomes.items()}
