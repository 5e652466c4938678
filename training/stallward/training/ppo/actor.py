"""The best actor of a training, judged on the way."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy
from torch import nn

from stallward.env.simulation.simulation import SimulationSettings
from stallward.training.network.actor import SlotOutputs, SlotPolicy, actor_arrays
from stallward.training.network.arrays import TrainedPolicy
from stallward.training.selection.rollout import Act, Arm

# ---------- The actor at the start of a training, and its actions without exploration.
# A policy about set-points begins as ``partition``: nearly always, every head chooses *auto*. So it
# begins at the baseline that it is compared with, and whatever it does otherwise, it has found to be
# better. Nothing needs to be imitated first.


def prefer_first_choice(policy: ActorCriticPolicy, share: float) -> None:
    """Let every head choose its first option with this probability, whatever is observed.

    Args:
        policy: The policy; the biases of its output layer are set.
        share: The probability, the rest is spread evenly.
    """
    outputs = policy.action_net
    assert isinstance(outputs, SlotOutputs)
    table = outputs.table
    for layer, sizes in ((outputs.slot, table.slot_sizes), (outputs.node, table.node_sizes)):
        _set_biases(layer, sizes, share)


def _set_biases(layer: nn.Linear, sizes: tuple[int, ...], share: float) -> None:
    with torch.no_grad():
        layer.bias.zero_()
        first = 0
        for size in sizes:
            layer.bias[first] = math.log(share * (size - 1) / (1.0 - share))
            first += size


def deterministic_actions(
    model: BaseAlgorithm, observations: NDArray[np.float32]
) -> NDArray[np.int64]:
    """The actor's likeliest actions, without exploration."""
    actions, _ = model.predict(pad_for_critic(model, observations), deterministic=True)
    return np.asarray(actions, dtype=np.int64)


def pad_for_critic(model: BaseAlgorithm, observations: NDArray[np.float32]) -> NDArray[np.float32]:
    """Leave out what the actor does not read, and append zeros for what only the critic reads."""
    space, policy = model.observation_space, model.policy
    assert isinstance(policy, SlotPolicy)
    assert space is not None
    assert space.shape is not None
    padded = np.zeros((len(observations), *space.shape), dtype=np.float32)
    count = policy.features.size
    padded[:, :count] = observations[:, :count]
    return padded


def is_actor_parameter(name: str) -> bool:
    """Whether a parameter of the policy belongs to the actor."""
    return name.startswith(("mlp_extractor.policy_net", "action_net"))


# ---------- Policies on twins, as arms that are compared with rules and settings


def arm_of_policy(policy: TrainedPolicy) -> Arm:
    """A trained policy, which needs no memory of its own."""
    return Arm(
        make=lambda _nodes: policy.act,
        action_table=policy.table.name,
        ticks_per_action=policy.ticks_per_action,
        partition=policy.partition,
    )


def arm_of_actor(act: Act, settings: SimulationSettings) -> Arm:
    """An actor during its training.

    Args:
        act: Its likeliest actions.
        settings: The settings that it is trained with.
    """
    return Arm(
        make=lambda _nodes: act,
        action_table=settings.action_table,
        ticks_per_action=settings.ticks_per_action,
        partition=settings.partition,
    )


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
