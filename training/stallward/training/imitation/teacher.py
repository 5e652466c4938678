"""A teacher for policies: what would have been best, found by trying it on copies of the node.

A node on the twin can be copied as it stands, so the promising settings can all be held for the
next seconds and compared by the reward that PPO gets. The teacher sees what no policy can: the
whole state, and what the programs will want next. Policies learn from it what can be told from
their observations (learning from a privileged expert: Chen et al., Learning by Cheating, 2020; the
pupil's own states are labelled, too: Ross et al., DAgger, 2011).

It looks for the prices at which it costs the application what is allowed; training begins with
those.
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
from stallward.training.lagrangian import PriceRange, moved_prices, smoothed
from stallward.training.selection.rollout import Act
from stallward.training.selection.static_settings import StaticSettings

_HELD_STEPS: Final = 5
"""Decisions between two lessons."""
_NEWEST: Final = 0.1
"""Weight of the last lesson in what is taken to be suffered."""
_WANDERING: Final = 3
"""Of so many nodes one does anything, so that the way back from anywhere is taught."""
_WANDER_CHANCE: Final = 0.3
"""With which a wandering node does something else after a lesson."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Teaching:
    """How much is taught."""

    nodes: int = 48
    """Of each scenario."""
    lessons: int = 60
    """One a second."""
    unused_lessons: int = 15
    """Before prices have settled."""
    settings: int = 24
    """That are tried for each lesson."""
    ahead_steps: int = 40
    """Decisions that each is held for."""
    price_rate: float = 0.15
    """How fast prices follow, per lesson."""


class Teacher:
    """Tries settings on copies of nodes.

    Args:
        twin: Whose nodes they are.
        candidates: Settings, ``(K, len(ACTION_SIZES))``.
        settings: Of the simulation.
        nodes: How many there are.
        ahead_steps: Decisions that each setting is held for.
        seed: Of the copies' luck, the same for all settings.
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
        self._wanted = np.repeat(candidates, nodes, axis=0)

    def worth(self, nodes: Simulation) -> Array:
        """The reward of every setting on every node, ``(K, nodes)``."""
        copies = self._copies
        copies.become(nodes, self._rows)
        for mine, theirs in zip(copies.terms, nodes.terms, strict=True):
            mine[:] = theirs
        value = np.zeros(copies.batch)
        for _ in range(self._ahead_steps):
            value += copies.step(self._wanted).reward
        return value.reshape(len(self.candidates), -1) / self._ahead_steps

    def best(self, nodes: Simulation) -> Actions:
        """What should be done on every node, ``(nodes, len(ACTION_SIZES))``."""
        return np.asarray(self.candidates[self.worth(nodes).argmax(axis=0)])


def teach(
    twins: Sequence[FittedTwin],
    statics: StaticSettings,
    constraints: Constraints,
    settings: SimulationSettings,
    teaching: Teaching,
    *,
    seed: int,
    price_range: PriceRange,
    act: Act | None = None,
    prices: Array | None = None,
    report: Callable[[str, float], None] = lambda _said, _share: None,
) -> Demonstrations:
    """Lessons on nodes of all twins.

    Args:
        twins: Where nodes are drawn from.
        statics: Of the same twins.
        constraints: What may be suffered.
        settings: Of the simulation.
        teaching: How much.
        seed: Everything random follows from it.
        price_range: Bounds of every price.
        act: What the nodes do; what the teacher says by default.
        prices: To begin with, ``(len(COSTS), len(twins))``; those of ``settings`` by default.
        report: Told how far it is.
    """
    found = []
    for k, twin in enumerate(twins):
        report(f"teaching, {twin.scenario.name}", k / len(twins))
        school = _School(twin, k, statics, constraints.one(k), settings, teaching, seed)
        if prices is not None:
            school.nodes.terms.prices[:, 0] = prices[:, k]
        found.append(school.run(act, price_range))
    return Demonstrations.of_all(found)


class _School:
    """The nodes of one twin."""

    def __init__(
        self,
        twin: FittedTwin,
        index: int,
        statics: StaticSettings,
        constraints: Constraints,
        settings: SimulationSettings,
        teaching: Teaching,
        seed: int,
    ) -> None:
        self._teaching, self._allowed = teaching, constraints.allowed
        self._rng = np.random.default_rng(seed)
        self.nodes = constraints.simulate([twin], teaching.nodes, settings, seed=seed)
        slots = len(twin.scenario.slots)
        self._teacher = Teacher(
            twin,
            statics.promising(index, slots, constraints.allowed[:, 0], teaching.settings),
            settings,
            nodes=teaching.nodes,
            ahead_steps=teaching.ahead_steps,
            seed=seed + 1,
        )
        self._wanders = np.arange(teaching.nodes) % _WANDERING == 0
        self._smoothed = np.full((len(SUFFERED), 1), np.nan)

    def run(self, act: Act | None, price_range: PriceRange) -> Demonstrations:
        teaching, nodes, wanders = self._teaching, self.nodes, self._wanders
        seen, taught, did = [], [], []
        action = np.tile(self._teacher.candidates[:1], (teaching.nodes, 1))
        for lesson in range(teaching.lessons):
            right = self._teacher.best(nodes)
            if lesson >= teaching.unused_lessons:
                seen.append(nodes.observation.copy())
                taught.append(right)
            elsewhere = wanders & (self._rng.random(teaching.nodes) < _WANDER_CHANCE)
            anything = self._rng.integers(len(self._teacher.candidates), size=teaching.nodes)
            action[~wanders] = right[~wanders]
            action[elsewhere] = self._teacher.candidates[anything[elsewhere]]
            figures = self._hold(action, act)
            if lesson >= teaching.unused_lessons:
                did.append(figures)
            self._follow(figures[1:, None], price_range)
        progress, *suffered = np.mean(did, axis=0)
        return Demonstrations(
            observations=np.concatenate(seen),
            actions=np.concatenate(taught),
            prices=nodes.terms.prices.copy(),
            progress=np.array([progress]),
            suffered=np.array(suffered)[:, None],
        )

    def _hold(self, action: Actions, act: Act | None) -> Array:
        """Let a second pass; progress and what was suffered by nodes that do not wander."""
        figures = np.zeros(1 + len(SUFFERED))
        for _ in range(_HELD_STEPS):
            if act is not None:
                action[~self._wanders] = act(self.nodes.observation)[~self._wanders]
            result = self.nodes.step(action)
            each = (result.progress, *result.suffered)
            figures += [value[~self._wanders].mean() / _HELD_STEPS for value in each]
        return figures

    def _follow(self, new: Array, price_range: PriceRange) -> None:
        self._smoothed = smoothed(self._smoothed, new, _NEWEST)
        prices = self.nodes.terms.prices
        prices[:] = moved_prices(
            prices, self._smoothed, self._allowed, self._teaching.price_rate, price_range
        )
