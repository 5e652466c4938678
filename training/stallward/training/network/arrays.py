"""A trained policy as plain arrays: what is evaluated and exported.

The actor is ``log features -> normalise -> tanh(linear) -> tanh(linear) -> linear``. Its output is
the logits of all heads of the action table, one after the other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.action_table import LEVELS, ActionTable
from stallward.agent.control_law.thresholds import as_values
from stallward.agent.controllers.partition import PartitionThresholds
from stallward.agent.observation.encoder import (
    BASIC,
    OBSERVATION_NAMES,
    FeatureSet,
    schema,
    schema_hash,
)
from stallward.training.errors import TrainingError

# ---------- Logarithms of stalls and latencies, so that a network can tell small values apart.
# The share of time stalled ranges from a thousandth, where an application begins to suffer, to a
# half. Scaled linearly by its spread on nodes under pressure, every value below a hundredth looks
# like zero to a network; tuned rules act at 0.003. So the logarithm of these features is taken
# first.

Array = NDArray[np.float32]

_STALL_SCALE: Final = 1000.0
_LATENCY_SCALE: Final = 100.0


def _log_scale(name: str) -> float:
    if "_psi_" in name:
        return _STALL_SCALE
    is_latency = name.startswith("latency_") and ("_ratio" in name or "_over_usual" in name)
    return _LATENCY_SCALE if is_latency else 0.0


LOG_SCALES: Final[Array] = np.array(
    [_log_scale(name) for name in OBSERVATION_NAMES], dtype=np.float32
)
"""The log scale of each feature of an observation; 0 leaves a feature linear."""


def with_log_features(observations: Array, fine: Array) -> Array:
    """Compute ``log(1 + fine * x) / log(1 + fine)``: 0 and 1 stay, small values are spread out.

    Args:
        observations: The observations, ``(N, features)``. Negative values of features with
            a log scale count as 0.
        fine: The log scale of each feature, ``(features,)``; 0 leaves it linear.

    Returns:
        The features, the same shape.
    """
    columns = np.flatnonzero(fine)
    features = observations.copy()
    linear = np.maximum(observations[:, columns], 0.0)
    features[:, columns] = np.log(1.0 + fine[columns] * linear) / np.log(1.0 + fine[columns])
    return features


Weights = NDArray[np.float32]
POLICY_FILE: Final = "policy.zip"
"""The file with a policy, in the folder of its run and in that of its seed."""
SEEDS_FOLDER: Final = "seeds"
"""The folder in a run's folder that holds one folder for each seed."""
TRAINING_FILE: Final = "training.json"
CLIP: Final = 10.0
"""Normalised observations are clipped to this."""
OOD_LIMIT: Final = 0.2
"""Share of features outside their training range above which a policy is not trusted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedPolicy:
    """The weights of a policy and where they come from."""

    fine: Weights
    """The log scale of each feature, ``(features.size,)``; see
    :func:`stallward.training.network.arrays.with_log_features`."""
    mean: Weights
    """The mean of each feature after its logarithm is taken."""
    scale: Weights
    """The scale of each feature after its logarithm is taken."""
    low: Weights
    """The lower end of each feature's range in training."""
    high: Weights
    """The upper end of each feature's range in training."""
    w0: Weights
    """Weights of the first hidden layer, ``(outputs, inputs)`` like all of them."""
    b0: Weights
    """Biases of the first hidden layer."""
    w1: Weights
    """Weights of the second hidden layer."""
    b1: Weights
    """Biases of the second hidden layer."""
    w2: Weights
    """Weights of the output layer."""
    b2: Weights
    """Biases of the output layer."""
    table: ActionTable = LEVELS
    """The action table of the heads."""
    features: FeatureSet = BASIC
    """What it reads of an observation."""
    partition: PartitionThresholds = field(default_factory=PartitionThresholds)
    """The numbers of ``partition`` that it was trained with, if its actions are set-points."""
    ticks_per_action: int
    """For how many ticks a decision holds."""
    parameters: Mapping[str, Weights] = field(default_factory=dict)
    """The same weights as the network of the training has them, by their names there, and those of
    its critic; empty for a policy that only its ONNX file is known of."""
    provenance: Mapping[str, Any]
    """Recordings, twins, seeds, steps, versions and results."""

    def __post_init__(self) -> None:
        """Check shapes and finiteness.

        Raises:
            TrainingError: If an array does not fit the observation or action table, or holds what
                no training gives.
        """
        hidden0, hidden1, inputs = self.w0.shape[0], self.w1.shape[0], self.features.size
        expected = {
            **dict.fromkeys(("fine", "mean", "scale", "low", "high"), (inputs,)),
            "w0": (hidden0, inputs),
            "b0": (hidden0,),
            "w1": (hidden1, hidden0),
            "b1": (hidden1,),
            "w2": (sum(self.table.sizes), hidden1),
            "b2": (sum(self.table.sizes),),
        }
        for name, shape in expected.items():
            array = getattr(self, name)
            if array.shape != shape or not np.isfinite(array).all():
                raise TrainingError(
                    f"The policy's {name} has shape {array.shape} instead of {shape}, or is not "
                    "finite.",
                    next_step="Train again with `stallward train`.",
                )
        if (self.fine < 0.0).any():
            raise TrainingError(
                "The policy's log scale of a feature is negative.",
                next_step="Train again with `stallward train`.",
            )
        if not (self.scale > 0.0).all():
            raise TrainingError(
                "The policy's scale of a feature is not above 0.",
                next_step="Train again with `stallward train`.",
            )

    def logits(self, observations: NDArray[np.float32]) -> NDArray[np.float32]:
        """The logits of a batch of observations, shape ``(N, sum(table.sizes))``.

        Args:
            observations: Shape ``(N, features.size)`` or more; what follows is not read.
        """
        features = with_log_features(observations[:, : self.features.size], self.fine)
        x = np.clip((features - self.mean) / self.scale, -CLIP, CLIP)
        x = np.tanh(x @ self.w0.T + self.b0)
        x = np.tanh(x @ self.w1.T + self.b1)
        return np.asarray(x @ self.w2.T + self.b2, dtype=np.float32)

    def act(self, observations: NDArray[np.float32]) -> NDArray[np.int64]:
        """The likeliest action for each observation, ``(N, len(table.sizes))``."""
        return best_actions(self.logits(observations), self.table)


def metadata_of(policy: TrainedPolicy) -> dict[str, str]:
    """All that a node checks before it runs a policy, as ``parse_metadata`` reads it."""
    return {
        "stallward.schema_hash": schema_hash(policy.table, policy.features),
        "stallward.schema": json.dumps(schema(policy.table, policy.features), sort_keys=True),
        "stallward.partition": json.dumps(as_values(policy.partition), sort_keys=True),
        "stallward.ticks_per_action": str(policy.ticks_per_action),
        "stallward.observation_low": json.dumps([float(v) for v in policy.low]),
        "stallward.observation_high": json.dumps([float(v) for v in policy.high]),
        "stallward.ood_limit": str(OOD_LIMIT),
        "stallward.provenance": json.dumps(policy.provenance, sort_keys=True, default=str),
    }


def best_actions(logits: NDArray[np.float32], table: ActionTable) -> NDArray[np.int64]:
    """The choice with the highest logit in each head, ``(N, len(table.sizes))``."""
    heads = np.split(logits, np.cumsum(table.sizes)[:-1], axis=1)
    return np.stack([head.argmax(axis=1) for head in heads], axis=1).astype(np.int64)
