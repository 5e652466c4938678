"""Policies with the network of a training and weights at random."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from stallward.agent.action_table import SET_POINTS, ActionTable
from stallward.agent.controllers.partition import PartitionThresholds
from stallward.agent.observation.encoder import BASIC, FeatureSet
from stallward.env.gym.spaces import spaces
from stallward.training.network.actor import SlotPolicy, actor_arrays, policy_kwargs
from stallward.training.network.arrays import TrainedPolicy
from stallward.training.selection.rollout import SET_POINT_TICKS


def slot_policy(
    seed: int = 3,
    table: ActionTable = SET_POINTS,
    features: FeatureSet = BASIC,
    partition: PartitionThresholds | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> TrainedPolicy:
    """A policy that decides by what it sees."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    mean = rng.normal(0.0, 0.5, features.size).astype(np.float32)
    scale = rng.uniform(0.1, 2.0, features.size).astype(np.float32)
    network = SlotPolicy(
        *spaces(table, features),
        lambda _left: 1e-3,
        table=table,
        features=features,
        **policy_kwargs(mean, scale),
    )
    with torch.no_grad():
        for weight in network.action_net.parameters():
            weight.mul_(100.0)
    ones = np.ones(features.size, dtype=np.float32)
    return TrainedPolicy(
        **actor_arrays(network),
        low=-ones,
        high=ones,
        table=table,
        features=features,
        partition=partition or PartitionThresholds(),
        ticks_per_action=SET_POINT_TICKS,
        provenance=provenance or {"seed": seed},
    )


def observations(count: int, features: FeatureSet = BASIC) -> NDArray[np.float32]:
    """Observations of all magnitudes: shares, ratios and seconds."""
    rng = np.random.default_rng(5)
    drawn = rng.normal(0.0, 1.0, (count, features.size))
    return (drawn * 10.0 ** rng.uniform(-3.0, 2.0, drawn.shape)).astype(np.float32)
