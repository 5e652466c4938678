"""A privileged teacher, which finds the best action by trying candidates on copies of the node.

A node on the twin can be copied in any state. The teacher holds every promising setting for the
next seconds on a copy and compares them by the reward of PPO. It uses what no policy can observe:
the whole state, and what the programs will need next. A policy learns from it whatever can be told
from observations (learning from a privileged expert: Chen et al., Learning by Cheating, 2020). The
states that the policy itself reaches are labelled, too (DAgger: Ross et al., 2011).

The teacher also finds the prices at which the application suffers what is allowed; PPO starts with
these prices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from stallward.env.objective import SUFFERED, Array
from stallward.env.simulation.constraints import Constraints
from stallward.env.simulation.simulation import Simulation, SimulationSettings
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.training.imitation.demonstrations import Actions, Demonstrations
from stallward.training.lagrangian import PriceRange, exponential_average, updated_prices
from stallward.training.selection.rollout import Act
from stallward.training.selection.static_settings import StaticSettings

_HELD_STEPS: Final = 5
"""Decisions between two demonstrations."""
_AVERAGE_WEIGHT: Final = 0.1
"""Weight of the latest values in the moving average of what is suffered."""
_EXPLORING_EVERY: Final = 3
"""One of this many nodes explores, so that the teacher labels states off its own path, too."""
_EXPLORE_CHANCE: Final = 0.3
"""Probability that an exploring node draws a new random action after a demonstration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherSettings:
    """How many demonstrations the teacher gives, and how it finds the best action."""

    nodes: int = 48
    """Nodes of each scenario."""
    lessons: int = 60
    """Demonstrations on each node, one per second."""
    unused_lessons: int = 15
    """How many of the first demonstrations are dropped, while the prices settle."""
    settings: int = 24
    """Candidate settings that are tried for each demonstration."""
    ahead_steps: int = 40
    """For how many decisions each candidate is held."""
    price_rate: float = 0.15
    """How fast the prices follow what is suffered, per demonstration."""


class Teacher:
    """Tries candidate actions on copies of nodes.

    Args:
        twin: The twin that the nodes are drawn from.
        candidates: The candidate actions, ``(K, len(ACTION_SIZES))``.
        settings: The settings of the simulation.
        nodes: The number of nodes.
        ahead_steps: For how many decisions each candidate is held.
        seed: The seed of the copies' randomness, which is the same for all candidates.
    """

    def __init__(
        self,
        twin: FittedTwin,
        candidates: Actions,
        settings: SimulationSettings,
        *,
        nodes: int,
        ahead_steps: int,
        seed: int,
    ) -> None:
        self.candidates = candidates
        self._ahead_steps = ahead_steps
        self._copies = Simulation(
            [twin], nodes * len(candidates), settings, seed=seed, draws=nodes
        )
        self._rows = np.tile(np.arange(nodes), len(candidates))
        self._copy_actions = np.repeat(candidates, nodes, axis=0)

    def action_values(self, nodes: Simulation) -> Array:
        """The mean reward of every candidate on every node, ``(K, nodes)``."""
        copies = self._copies
        copies.copy_from(nodes, self._rows)
        for copied, original in zip(copies.terms, nodes.terms, strict=True):
            copied[:] = original
        value = np.zeros(copies.batch)
        for _ in range(self._ahead_steps):
            value += copies.step(self._copy_actions).reward
        return value.reshape(len(self.candidates), -1) / self._ahead_steps

    def expert_actions(self, nodes: Simulation) -> Actions:
        """The best candidate for every node, ``(nodes, len(ACTION_SIZES))``."""
        return np.asarray(self.candidates[self.action_values(nodes).argmax(axis=0)])


def collect_demonstrations(
    twins: Sequence[FittedTwin],
    static_settings: StaticSettings,
    constraints: Constraints,
    settings: SimulationSettings,
    teaching: TeacherSettings,
    *,
    seed: int,
    price_range: PriceRange,
    act: Act | None = None,
    prices: Array | None = None,
    report: Callable[[str, float], None] = lambda _message, _share: None,
) -> Demonstrations:
    """Collect the teacher's demonstrations on nodes of all twins.

    Args:
        twins: The twins that nodes are drawn from.
        static_settings: Static settings measured on the same twins.
        constraints: What the applications may suffer.
        settings: The settings of the simulation.
        teaching: The settings of the teacher.
        seed: The seed of everything random.
        price_range: The bounds of every price.
        act: The policy that the nodes follow, by default the teacher's actions.
        prices: The first prices, ``(len(COSTS), len(twins))``, by default those of ``settings``.
        report: Called with the progress.
    """
    parts = []
    for k, twin in enumerate(twins):
        report(f"collecting demonstrations, {twin.scenario.name}", k / len(twins))
        collection = _Collection(
            twin, k, static_settings, constraints.one(k), settings, teaching, seed
        )
        if prices is not None:
            collection.nodes.terms.prices[:, 0] = prices[:, k]
        parts.append(collection.run(act, price_range))
    return Demonstrations.concatenate(parts)


class _Collection:
    """Collects demonstrations on the nodes of one twin."""

    def __init__(
        self,
        twin: FittedTwin,
        index: int,
        static_settings: StaticSettings,
        constraints: Constraints,
        settings: SimulationSettings,
        teaching: TeacherSettings,
        seed: int,
    ) -> None:
        self._teaching, self._allowed = teaching, constraints.allowed
        self._rng = np.random.default_rng(seed)
        self.nodes = constraints.simulate([twin], teaching.nodes, settings, seed=seed)
        slots = len(twin.scenario.slots)
        self._teacher = Teacher(
            twin,
            static_settings.promising(index, slots, constraints.allowed[:, 0], teaching.settings),
            settings,
            nodes=teaching.nodes,
            ahead_steps=teaching.ahead_steps,
            seed=seed + 1,
        )
        self._exploring = np.arange(teaching.nodes) % _EXPLORING_EVERY == 0
        self._average = np.full((len(SUFFERED), 1), np.nan)

    def run(self, act: Act | None, price_range: PriceRange) -> Demonstrations:
        teaching, nodes, exploring = self._teaching, self.nodes, self._exploring
        observations, expert_actions, figures = [], [], []
        action = np.tile(self._teacher.candidates[:1], (teaching.nodes, 1))
        for lesson in range(teaching.lessons):
            expert_action = self._teacher.expert_actions(nodes)
            if lesson >= teaching.unused_lessons:
                observations.append(nodes.observation.copy())
                expert_actions.append(expert_action)
            redrawn = exploring & (self._rng.random(teaching.nodes) < _EXPLORE_CHANCE)
            drawn = self._rng.integers(len(self._teacher.candidates), size=teaching.nodes)
            action[~exploring] = expert_action[~exploring]
            action[redrawn] = self._teacher.candidates[drawn[redrawn]]
            latest = self._step_nodes(action, act)
            if lesson >= teaching.unused_lessons:
                figures.append(latest)
            self._update_prices(latest[1:, None], price_range)
        progress, *suffered = np.mean(figures, axis=0)
        return Demonstrations(
            observations=np.concatenate(observations),
            actions=np.concatenate(expert_actions),
            prices=nodes.terms.prices.copy(),
            progress=np.array([progress]),
            suffered=np.array(suffered)[:, None],
        )

    def _step_nodes(self, action: Actions, act: Act | None) -> Array:
        """Step the nodes for a second.

        Returns:
            Progress, then each of ``SUFFERED``, as means over the nodes that do not explore.
        """
        figures = np.zeros(1 + len(SUFFERED))
        for _ in range(_HELD_STEPS):
            if act is not None:
                action[~self._exploring] = act(self.nodes.observation)[~self._exploring]
            result = self.nodes.step(action)
            values = (result.progress, *result.suffered)
            figures += [value[~self._exploring].mean() / _HELD_STEPS for value in values]
        return figures

    def _update_prices(self, suffered: Array, price_range: PriceRange) -> None:
        self._average = exponential_average(self._average, suffered, _AVERAGE_WEIGHT)
        prices = self.nodes.terms.prices
        prices[:] = updated_prices(
            prices, self._average, self._allowed, self._teaching.price_rate, price_range
        )
