"""The actor in PyTorch, and the conversion between stable-baselines3 and a policy's arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

from stallward.training.network.arrays import CLIP, LOG_SCALES, Weights
from stallward.training.network.slot_policy import SlotLayers, SlotOutputs, dense_weights

HIDDEN = (64, 64)
"""Units of the critic's hidden layers; the actor (``slot_policy``) has as many layers."""


class NormalisedObservations(BaseFeaturesExtractor):
    """Takes logarithms and normalises observations as :class:`TrainedPolicy` does.

    Args:
        observation_space: The space of raw observations.
        fine: The log scale of each feature.
        mean: The mean of each feature, measured before training.
        scale: The scale of each feature, measured before training.
    """

    def __init__(
        self,
        observation_space: gymnasium.Space[Any],
        fine: Weights,
        mean: Weights,
        scale: Weights,
    ) -> None:
        super().__init__(observation_space, features_dim=len(mean))
        self.register_buffer("fine", torch.as_tensor(fine))
        self.register_buffer("mean", torch.as_tensor(mean))
        self.register_buffer("scale", torch.as_tensor(scale))
        columns = torch.as_tensor(np.flatnonzero(fine))
        self.register_buffer("columns", columns, persistent=False)
        self.register_buffer("factors", torch.as_tensor(fine)[columns], persistent=False)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """The inputs of the first layer: features, normalised and clipped."""
        columns, factors = self.get_buffer("columns"), self.get_buffer("factors")
        linear = torch.clamp(observations.index_select(1, columns), min=0.0)
        logarithms = torch.log(1.0 + factors * linear) / torch.log(1.0 + factors)
        features = observations.index_copy(1, columns, logarithms)
        mean, scale = self.get_buffer("mean"), self.get_buffer("scale")
        return torch.clamp((features - mean) / scale, -CLIP, CLIP)


def policy_kwargs(mean: Weights, scale: Weights, *, critic_features: int = 0) -> dict[str, Any]:
    """The ``policy_kwargs`` of a :class:`~stallward.training.network.slot_policy.SlotPolicy`.

    Args:
        mean: The mean of each feature that the actor reads.
        scale: The scale of each feature, the same shape.
        critic_features: The number of features after the observation that only the critic reads,
            without normalisation.
    """
    unchanged = np.zeros(critic_features, dtype=np.float32)
    return {
        "net_arch": list(HIDDEN),
        "features_extractor_class": NormalisedObservations,
        "features_extractor_kwargs": {
            "fine": np.concatenate([LOG_SCALES[: len(mean)], unchanged]),
            "mean": np.concatenate([mean, unchanged]),
            "scale": np.concatenate([scale, unchanged + 1.0]),
        },
    }


def actor_arrays(policy: ActorCriticPolicy) -> dict[str, Weights]:
    """The weights of a trained ``SlotPolicy``, by the fields of :class:`TrainedPolicy`."""
    state: Mapping[str, torch.Tensor] = policy.state_dict()

    layers, outputs = policy.mlp_extractor.policy_net, policy.action_net
    assert isinstance(layers, SlotLayers)
    assert isinstance(outputs, SlotOutputs)

    def array(name: str) -> NDArray[np.float32]:
        return state[name].detach().cpu().numpy().astype(np.float32).copy()

    return {
        **{
            name: array(f"features_extractor.{name}")[: layers.features.size]
            for name in ("fine", "mean", "scale")
        },
        **dense_weights(layers, outputs),
    }
