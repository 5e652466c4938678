"""Evaluation of policies and settings on the twin, with lower confidence bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from stallward.agent.action_table import LEVELS, SET_POINTS, ActionTableName
from stallward.agent.controllers.partition import PartitionThresholds
from stallward.env.objective import SUFFERED, constrained_score
from stallward.env.simulation.constraints import BURN_IN_S, Constraints, steps_in
from stallward.env.simulation.simulation import SimulationSettings
from stallward.env.twin.inputs.fitted import FittedTwin

Act = Callable[[NDArray[np.float32]], NDArray[np.int64]]
"""Observations ``(N, OBSERVATION_SIZE)`` to actions ``(N, entries of the action table)``."""
_Z95: Final = 1.645


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a policy on the twin, as means over episodes."""

    score: float
    """Background progress less penalties for what is suffered beyond what is allowed, the mean
    over scenarios."""
    score_low: float
    """One-sided 95 % lower confidence bound of the score, over episodes (each its own draw)."""
    progress: float
    """Background progress, relative to having the node to itself."""
    window_violated: float
    """Share of windows that miss the target."""
    excess: float
    """Mean latency beyond that with ample memory, relative to the latter."""
    slow: float
    """Share of requests slower than 1.15 times the p99 with ample memory."""
    switches_per_s: float
    """Lever moves per second."""

    def as_json(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return asdict(self)


def evaluate(
    act: Act,
    twins: Sequence[FittedTwin],
    settings: SimulationSettings,
    *,
    constraints: Constraints,
    episodes: int,
    seed: int,
    seconds: float = 60.0,
) -> Outcome:
    """Run ``act`` on ``episodes`` nodes drawn from ``twins`` for ``seconds`` after a burn-in.

    Args:
        act: The policy.
        twins: The twins that nodes are drawn from.
        settings: The settings of the simulation.
        constraints: What the applications of the same twins may suffer.
        episodes: The number of nodes.
        seed: The seed; the same seed draws the same nodes for every policy.
        seconds: How long each node runs after the burn-in.
    """
    simulation = constraints.simulate(twins, episodes, settings, seed=seed)
    observation = simulation.observation
    total = rollout_steps(seconds, settings)
    steps = steps_in(seconds, settings)
    sums = np.zeros((2 + len(SUFFERED), episodes))
    for k in range(total):
        result = simulation.step(act(observation))
        observation = result.observation
        if k >= total - steps:
            sums += (result.progress, result.moved, *result.suffered)
    progress, moved, *rows = sums / steps
    suffered = np.array(rows)
    score, spread = constrained_score(progress, suffered, simulation.scenario, constraints.allowed)
    return Outcome(
        score=score,
        score_low=score - _Z95 * spread,
        progress=float(progress.mean()),
        switches_per_s=float(moved.mean() / (0.1 * settings.ticks_per_action)),
        **dict(zip(SUFFERED, suffered.mean(axis=1).tolist(), strict=True)),
    )


def rollout_steps(seconds: float, settings: SimulationSettings) -> int:
    """How many decisions :func:`evaluate` makes on each node, with those of the burn-in."""
    return steps_in(BURN_IN_S, settings) + steps_in(seconds, settings)


def constant(action: NDArray[np.int64]) -> Act:
    """A policy that always takes the same action."""
    return lambda observations: np.tile(action, (len(observations), 1))


# ---------- Controllers on twins: how one acts on a batch of nodes, and what its actions mean

RULE_TICKS: Final = 2
"""The ticks between two decisions of a rule on the twin."""
SET_POINT_TICKS: Final = 10
"""The ticks between two decisions about set-points, a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A controller on twins."""

    make: Callable[[int], Act]
    """Makes it for a batch of this many nodes."""
    action_table: ActionTableName = "levels"
    ticks_per_action: int = RULE_TICKS
    partition: PartitionThresholds = field(default_factory=PartitionThresholds)
    """The numbers of ``partition``, where actions are set-points."""

    def on(self, settings: SimulationSettings) -> SimulationSettings:
        """The settings of a simulation that takes the actions of this arm."""
        return replace(
            settings,
            action_table=self.action_table,
            ticks_per_action=self.ticks_per_action,
            partition=self.partition,
        )

    @classmethod
    def holding(cls, action: NDArray[np.int64]) -> Self:
        """An action of the table of limit levels that is held."""
        return cls(make=lambda _nodes: constant(action))

    @classmethod
    def of_partition(cls, thresholds: PartitionThresholds | None = None) -> Self:
        """``partition`` with these numbers, or with its own."""
        auto = np.zeros(len(SET_POINTS.sizes), dtype=np.int64)
        return cls(
            make=lambda _nodes: constant(auto),
            action_table=SET_POINTS.name,
            ticks_per_action=SET_POINT_TICKS,
            partition=thresholds or PartitionThresholds(),
        )


IDLE: Final = np.zeros(len(LEVELS.sizes), dtype=np.int64)
"""The action that does nothing, of the table of limit levels."""


# ---------- What the application may suffer under a policy that is compared with another controller

_NODES: Final = 128


def allow_as_much(
    constraints: Constraints,
    arm: Arm,
    twins: Sequence[FittedTwin],
    settings: SimulationSettings,
    *,
    seed: int,
) -> Constraints:
    """Allow what the application suffers under a controller, where that is more.

    A verdict asks which of two controllers does more work while the target is met as often. A
    policy that may suffer less than the other one pays for that with work.

    Args:
        constraints: The constraints so far, on the same twins.
        arm: The controller.
        twins: The twins.
        settings: The settings of the simulation.
        seed: Everything random follows from it.
    """
    outcomes = [
        evaluate(
            arm.make(_NODES),
            [twin],
            arm.on(settings),
            constraints=constraints.one(k),
            episodes=_NODES,
            seed=seed,
        )
        for k, twin in enumerate(twins)
    ]
    suffered = np.array([[getattr(outcome, name) for outcome in outcomes] for name in SUFFERED])
    return replace(constraints, allowed=np.maximum(constraints.allowed, suffered))
