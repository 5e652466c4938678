"""The actor in PyTorch: between stable-baselines3 and the plain arrays of a policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

from stallward.agent.observation.encoder import OBSERVATION_SIZE
from stallward.training.network.arrays import CLIP, TrainedPolicy, Weights
from stallward.training.network.log_features import FINE
from stallward.training.network.slot_policy import SlotLayers, SlotOutputs, dense

HIDDEN = (64, 64)
"""Of the critic; the actor's (``torch_slots``) are as many."""


class Inputs(nn.Module):
    """Magnifies and normalises observations as :class:`TrainedPolicy` does.

    Args:
        fine, mean, scale: Per feature.
    """

    def __init__(self, fine: Weights, mean: Weights, scale: Weights) -> None:
        super().__init__()
        self.register_buffer("fine", torch.as_tensor(fine))
        self.register_buffer("mean", torch.as_tensor(mean))
        self.register_buffer("scale", torch.as_tensor(scale))
        columns = torch.as_tensor(np.flatnonzero(fine))
        self.register_buffer("columns", columns, persistent=False)
        self.register_buffer("factors", torch.as_tensor(fine)[columns], persistent=False)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """What the first layer sees."""
        columns, factors = self.get_buffer("columns"), self.get_buffer("factors")
        small = torch.clamp(observations.index_select(1, columns), min=0.0)
        fine = torch.log(1.0 + factors * small) / torch.log(1.0 + factors)
        seen = observations.index_copy(1, columns, fine)
        mean, scale = self.get_buffer("mean"), self.get_buffer("scale")
        return torch.clamp((seen - mean) / scale, -CLIP, CLIP)


class Normalised(BaseFeaturesExtractor):
    """Normalises observations with fixed statistics, inside the policy.

    Args:
        observation_space: The raw observation.
        fine: How much each feature is magnified.
        mean, scale: Per feature, measured before training.
    """

    def __init__(
        self,
        observation_space: gymnasium.Space[Any],
        fine: Weights,
        mean: Weights,
        scale: Weights,
    ) -> None:
        super().__init__(observation_space, features_dim=len(mean))
        self.inputs = Inputs(fine, mean, scale)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Magnified, normalised and clipped."""
        found: torch.Tensor = self.inputs(observations)
        return found


def policy_settings(mean: Weights, scale: Weights, *, told: int = 0) -> dict[str, Any]:
    """What a :class:`SlotPolicy` is made with.

    Args:
        mean: Of each feature of an observation, ``(OBSERVATION_SIZE,)``.
        scale: The same shape.
        told: Numbers behind them that the critic takes as they are.
    """
    as_it_is = np.zeros(told, dtype=np.float32)
    return {
        "net_arch": list(HIDDEN),
        "features_extractor_class": Normalised,
        "features_extractor_kwargs": {
            "fine": np.concatenate([FINE, as_it_is]),
            "mean": np.concatenate([mean, as_it_is]),
            "scale": np.concatenate([scale, as_it_is + 1.0]),
        },
    }


class Actor(nn.Module):
    """The actor of a :class:`TrainedPolicy`, for parity tests and imitation."""

    def __init__(self, policy: TrainedPolicy) -> None:
        super().__init__()
        self.inputs = Inputs(policy.fine, policy.mean, policy.scale)
        layers: list[nn.Module] = []
        for k, (weight, bias) in enumerate(
            ((policy.w0, policy.b0), (policy.w1, policy.b1), (policy.w2, policy.b2))
        ):
            linear = nn.Linear(weight.shape[1], weight.shape[0])
            linear.weight.data = torch.as_tensor(weight)
            linear.bias.data = torch.as_tensor(bias)
            layers += [linear] if k == len(HIDDEN) else [linear, nn.Tanh()]
        self.layers = nn.Sequential(*layers)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Logits."""
        out: torch.Tensor = self.layers(self.inputs(observations))
        return out


def actor_arrays(policy: ActorCriticPolicy) -> dict[str, Weights]:
    """Weights of a trained :class:`SlotPolicy` by the names of :class:`TrainedPolicy`."""
    state: Mapping[str, torch.Tensor] = policy.state_dict()

    layers, outputs = policy.mlp_extractor.policy_net, policy.action_net
    assert isinstance(layers, SlotLayers)
    assert isinstance(outputs, SlotOutputs)

    def array(name: str) -> NDArray[np.float32]:
        return state[name].detach().cpu().numpy().astype(np.float32).copy()

    return {
        **{
            name: array(f"features_extractor.inputs.{name}")[:OBSERVATION_SIZE]
            for name in ("fine", "mean", "scale")
        },
        **dense(layers, outputs),
    }
