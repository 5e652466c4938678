"""Features of small stalls and latencies are magnified by a logarithm."""

from __future__ import annotations

import gymnasium
import numpy as np
import torch

from stallward.agent.action_table import LEVELS
from stallward.agent.controllers.partition import PartitionThresholds
from stallward.agent.desired import ACTION_SIZES
from stallward.agent.observation.encoder import BASIC
from stallward.training.network.actor import (
    HIDDEN,
    NormalisedObservations,
    SlotPolicy,
    actor_arrays,
)
from stallward.training.network.arrays import LOG_SCALES, TrainedPolicy, with_log_features

AT = {name: i for i, name in enumerate(BASIC.names)}


def test_stalls_latencies_and_their_averages_are_magnified() -> None:
    fine = {name for name, i in AT.items() if LOG_SCALES[i] > 0.0}
    assert {"protected_psi_memory_some_share", "protected_psi_memory_some_share_8s"} <= fine
    assert {"slot3_psi_io_some_share", "latency_mean_ratio", "latency_p95_ratio_1s"} <= fine
    assert {"latency_mean_over_usual", "latency_p95_over_usual_8s"} <= fine
    assert not {name for name in fine if "psi" not in name and "latency" not in name}
    assert not {"latency_known", "latency_age"} & fine


def test_a_stall_of_a_thousandth_is_far_from_none_and_order_is_kept() -> None:
    shares = np.array([0.0, 0.001, 0.003, 0.1, 0.5, 1.0], dtype=np.float32)
    rows = np.zeros((len(shares), BASIC.size), dtype=np.float32)
    rows[:, AT["protected_psi_memory_some_share"]] = shares
    rows[:, AT["zone_usage_ratio"]] = shares
    magnified = with_log_features(rows, LOG_SCALES[: BASIC.size])
    stalls = magnified[:, AT["protected_psi_memory_some_share"]]
    assert (stalls[0], stalls[-1]) == (0.0, 1.0)
    assert (np.diff(stalls) > 0.05).all()
    assert (magnified[:, AT["zone_usage_ratio"]] == shares).all(), "another feature has changed"
    assert (rows[:, AT["protected_psi_memory_some_share"]] == shares).all(), (
        "the argument has changed"
    )


def test_negative_values_of_magnified_features_become_zero() -> None:
    rows = np.full((1, BASIC.size), -0.5, dtype=np.float32)
    magnified = with_log_features(rows, LOG_SCALES[: BASIC.size])
    assert (magnified[0] == np.where(LOG_SCALES[: BASIC.size] > 0.0, 0.0, -0.5)).all()


def test_the_trained_and_the_exported_policy_act_alike() -> None:
    torch.manual_seed(1)
    rng = np.random.default_rng(1)
    mean = rng.normal(0.2, 0.1, BASIC.size).astype(np.float32)
    scale = rng.uniform(0.1, 0.5, BASIC.size).astype(np.float32)
    trained = SlotPolicy(
        gymnasium.spaces.Box(-64.0, 64.0, (BASIC.size,)),
        gymnasium.spaces.MultiDiscrete(list(ACTION_SIZES)),
        lambda _left: 1e-3,
        net_arch=list(HIDDEN),
        features_extractor_class=NormalisedObservations,
        features_extractor_kwargs={"fine": LOG_SCALES[: BASIC.size], "mean": mean, "scale": scale},
        ortho_init=False,
        table=LEVELS,
    )
    bounds = np.ones(BASIC.size, dtype=np.float32)
    exported = TrainedPolicy(
        **actor_arrays(trained),
        low=-bounds,
        high=bounds,
        table=LEVELS,
        features=BASIC,
        partition=PartitionThresholds(),
        ticks_per_action=2,
        provenance={},
    )
    observations = rng.exponential(0.05, (500, BASIC.size)).astype(np.float32)
    actions, _ = trained.predict(observations, deterministic=True)
    assert (actions == exported.act(observations)).all(axis=1).mean() > 0.99
    assert len(np.unique(actions, axis=0)) > 5
