"""The best actor of a training, judged on the way."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, cast

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy

from stallward.training.network.actor import actor_arrays
from stallward.training.ppo.actor_start import deterministic_actions
from stallward.training.selection.rollout import Act

_FIRST_SHARE: Final = 0.2
"""Share of the training after which actors are judged."""
_TIMES: Final = 40

Judged = Callable[[int, float], None]
"""Called with the decisions so far and the score of the best actor until then."""


class Schedule(Protocol):
    """When actors are judged, besides the last one."""

    def due(self, decisions: int, done: float) -> bool:
        """Whether the actor after so many decisions is judged.

        Args:
            decisions: Decisions so far.
            done: The share of the training that is done; it may be limited by time.
        """


class OftenAfterAFifth:
    """Forty times, evenly, after the first fifth of the training."""

    def __init__(self) -> None:
        self._next = _FIRST_SHARE

    def due(self, decisions: int, done: float) -> bool:
        """See :class:`Schedule`."""
        if done < self._next:
            return False
        self._next = done + (1.0 - _FIRST_SHARE) / _TIMES
        return True


class BestActor:
    """Keeps the best actor of a training, evaluated without exploration.

    Policies get better and worse as prices rise and fall, so the quality of the last one is
    chance. Besides, the longer a policy is trained, the more it overfits.

    Args:
        evaluate: The score of an actor, on the same fresh nodes each time.
        schedule: When actors are judged; by default forty times.
        judged: Called after each time.
    """

    def __init__(
        self,
        evaluate: Callable[[Act], float],
        schedule: Schedule | None = None,
        judged: Judged = lambda _decisions, _score: None,
    ) -> None:
        self._evaluate, self._judged = evaluate, judged
        self._schedule = schedule or OftenAfterAFifth()
        self.arrays: dict[str, NDArray[np.float32]] = {}
        self.score = -np.inf
        self.decisions = 0

    def consider_if_due(self, model: BaseAlgorithm, done: float) -> None:
        """Judge the actor of ``model`` if it is time.

        Args:
            model: The model in training.
            done: The share of the training that is done.
        """
        if self._schedule.due(model.num_timesteps, done):
            self.consider(model)

    def consider(self, model: BaseAlgorithm) -> None:
        """Evaluate the actor of ``model``, and keep it if it is the best so far."""
        score = self._evaluate(partial(deterministic_actions, model))
        if score > self.score:
            self.score, self.decisions = score, model.num_timesteps
            self.arrays = actor_arrays(cast(ActorCriticPolicy, model.policy))
        self._judged(model.num_timesteps, self.score)
