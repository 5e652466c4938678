"""Which of several trained policies, or rules found, is kept: what is surest to do well.

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
from typing import Any, Final

from stallward.env.objective import Slack
from stallward.env.simulation.constraints import Constraints
from stallward.env.simulation.simulation import SimulationSettings
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.training.selection.rollout import Act, Outcome, evaluate
from stallward.training.selection.static_settings import make_constraints

_CHOICE_SEED: Final = 10_000
_FRESH_SEED: Final = 40_000
"""Added to that of the choice."""

MakeAct = Callable[[int], Act]
"""Makes a policy for so many nodes side by side."""


def memoryless(act: Act) -> MakeAct:
    """What needs not be made afresh."""
    return lambda _nodes: act


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

    def outcomes(self, make: MakeAct) -> dict[str, Outcome]:
        """How a policy does in each scenario, for each of which it is made afresh."""
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

    def allowed(self) -> dict[str, dict[str, float]]:
        """What costs nothing, by scenario."""
        return self.constraints.as_json([twin.scenario.name for twin in self.twins])


@dataclass(frozen=True, slots=True, kw_only=True)
class Merit:
    """How good a policy is.

    Attributes:
        value: What counts: the higher, the better.
        low: The lower confidence bound in the worst scenario of strangers.
    """

    value: float
    low: float


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

    def merit(self, make: MakeAct) -> Merit:
        """How good a policy is, and what is made of it."""
        low = worst_low(self.strangers.outcomes(make))
        if self.known is None:
            return Merit(value=low, low=low)
        lows = [outcome.score_low for outcome in self.known.outcomes(make).values()]
        return Merit(value=0.5 * low + 0.5 * sum(lows) / len(lows), low=low)

    def outcomes(self, make: MakeAct) -> dict[str, Outcome]:
        """How a policy does in each scenario, strangers first."""
        return {name: o for judge in self._judges() for name, o in judge.outcomes(make).items()}

    def allowed(self) -> dict[str, dict[str, float]]:
        """What costs nothing, by scenario."""
        return {name: costs for judge in self._judges() for name, costs in judge.allowed().items()}

    def judged_on(self) -> list[str]:
        """Scenarios of strangers."""
        return [twin.scenario.name for twin in self.strangers.twins]

    def with_nodes(self, episodes: int, seed: int) -> Selection:
        """The same on other nodes, so many of each scenario."""
        strangers = replace(self.strangers, episodes=episodes, seed=seed)
        known = self.known and replace(self.known, episodes=episodes, seed=seed)
        return Selection(strangers=strangers, known=known)

    def on_fresh_nodes(self) -> Selection:
        """The same on as many nodes that have chosen nothing.

        On those that chose it the best of several would look better than it is.
        """
        return self.with_nodes(self.strangers.episodes, _FRESH_SEED + self.strangers.seed)

    def _judges(self) -> tuple[Judge, ...]:
        return (self.strangers,) if self.known is None else (self.strangers, self.known)


def make_selection(
    learned_on: Sequence[FittedTwin],
    judged_on: Sequence[FittedTwin],
    settings: SimulationSettings,
    *,
    slack: Slack,
    episodes: int,
    seed: int,
) -> Selection:
    """A choice that allows ``slack`` beyond ample memory.

    Args:
        learned_on: Where policies learn.
        judged_on: Strangers; may be empty.
        settings: Of the simulation.
        slack: What is allowed.
        episodes: Nodes, over all strangers; as many for each that is known.
        seed: Of the choice: nothing learns on its nodes.
    """
    strangers = judged_on or learned_on

    def judge(twins: Sequence[FittedTwin]) -> Judge:
        constraints, _ = make_constraints(twins, settings, slack, seed=_CHOICE_SEED + seed)
        return Judge(
            twins=tuple(twins),
            constraints=constraints,
            settings=settings,
            episodes=max(episodes // len(strangers), 8),
            seed=_CHOICE_SEED + seed,
        )

    return Selection(strangers=judge(strangers), known=judge(learned_on) if judged_on else None)


def worst_low(outcomes: Mapping[str, Outcome]) -> float:
    """The lower confidence bound of the score in the scenario where it is lowest."""
    return min(outcome.score_low for outcome in outcomes.values())


def as_json(outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """The form that goes into a policy's provenance."""
    return {name: outcome.as_json() for name, outcome in outcomes.items()}
