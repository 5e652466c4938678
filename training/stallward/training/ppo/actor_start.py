"""The actor at the start of a training, and its actions without exploration.

A policy about set-points begins as ``partition``: nearly always, every head chooses *auto*. So it
begins at the baseline that it is compared with, and whatever it does otherwise, it has found to be
better. Nothing needs to be imitated first.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy
from torch import nn

from stallward.training.network.slot_policy import SlotOutputs, SlotPolicy


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
