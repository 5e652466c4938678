"""Which of several trained policies is kept: the one whose worst scenario is surest to do well.

Trainings differ by luck, and their best run flatters (Agarwal et al., 2021). Each is judged on the
same fresh draws, half by twins that none was trained on, where there are such, and there by the
lower confidence bound of its score in the scenario where that is lowest; half by the mean of those
bounds where it was trained: what is good beside strangers alone may be so by doing little. The
score of a policy that misses the target more often than it may falls steeply, so that one of them
is kept only if all do.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """By which policies are chosen.

    Args:
        strangers: Judges on twins that they do not learn from, or, where there are none, on those
            that they do.
        known: Judges on those that they do learn from, where there are others.
    """

    strangers: Judge
    known: Judge | None = None

    def merit(self, act: Act) -> tuple[float, float]:
        """What counts, and the lower confidence bound in the worst scenario of strangers."""
        low = worst_low(self.strangers.outcomes(act))
        if self.known is None:
            return low, low
        lows = [outcome.score_low for outcome in self.known.outcomes(act).values()]
        return 0.5 * low + 0.5 * sum(lows) / len(lows), low

    def with_nodes(self, episodes: int, seed: int) -> Selection:
        """The same on other nodes, so many of each scenario."""
        strangers = replace(self.strangers, episodes=episodes, seed=seed)
        known = self.known and replace(self.known, episodes=episodes, seed=seed)
        return Selection(strangers=strangers, known=known)


def worst_low(outcomes: Mapping[str, Outcome]) -> float:
    """The lower confidence bound of the score in the scenario where it is lowest."""
    return min(outcome.score_low for outcome in outcomes.values())


def as_json(outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """The form that goes into a policy's provenance."""
    return {name: outcome.as_json() for name, outcome in outcomes.items()}
