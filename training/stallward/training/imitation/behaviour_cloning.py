"""Behaviour cloning: before PPO the actor learns to imitate the teacher (see ``teacher``).

Which groups to hold back is a choice between symmetric options. An actor that starts without a
preference ends up holding back all of them: random exploration hardly ever holds back all groups
but one for several seconds, so it never sees that one at full speed with the application unharmed.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.base_class import BaseAlgorithm

from stallward.training.imitation.demonstrations import Demonstrations
from stallward.training.network.softmax_heads import Heads

_BATCH: Final = 1024
_LEARNING_RATE: Final = 2e-3


def imitate(
    model: PPO,
    demonstrations: Demonstrations,
    *,
    smoothing: float,
    gradient_steps: int,
    seed: int,
) -> None:
    """Train the actor to choose the demonstrated actions, with label smoothing.

    Args:
        model: The model; its actor is trained, its critic is left alone.
        demonstrations: Observations and the teacher's actions.
        smoothing: The probability in each head that is spread evenly over all choices, so that PPO
            can explore.
        gradient_steps: How many batches to train on.
        seed: The seed of the choice of batches.
    """
    rng = np.random.default_rng(seed)
    policy = model.policy
    actor = [p for name, p in policy.named_parameters() if is_actor_parameter(name)]
    optimiser = torch.optim.Adam(actor, lr=_LEARNING_RATE)
    observations, actions = (
        torch.as_tensor(pad_for_critic(model, demonstrations.observations)),
        torch.as_tensor(demonstrations.actions),
    )
    for step in range(gradient_steps):
        for group in optimiser.param_groups:
            group["lr"] = _LEARNING_RATE * (1.0 - step / gradient_steps)
        rows = torch.as_tensor(rng.integers(len(observations), size=_BATCH))
        heads = policy.get_distribution(observations[rows])
        assert isinstance(heads, Heads)
        loss = -heads.smoothed_log_prob(actions[rows], smoothing).mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()


def deterministic_actions(
    model: BaseAlgorithm, observations: NDArray[np.float32]
) -> NDArray[np.int64]:
    """The actor's likeliest actions, without exploration."""
    actions, _ = model.predict(pad_for_critic(model, observations), deterministic=True)
    return np.asarray(actions, dtype=np.int64)


def pad_for_critic(model: BaseAlgorithm, observations: NDArray[np.float32]) -> NDArray[np.float32]:
    """Append zeros for the features that only the critic reads."""
    space = model.observation_space
    assert space is not None
    assert space.shape is not None
    padded = np.zeros((len(observations), *space.shape), dtype=np.float32)
    padded[:, : observations.shape[1]] = observations
    return padded


def is_actor_parameter(name: str) -> bool:
    """Whether a parameter of the policy belongs to the actor."""
    return name.startswith(("mlp_extractor.policy_net", "action_net"))
