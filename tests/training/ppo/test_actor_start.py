"""The actor begins as partition: each head makes its first choice with the set probability."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from stable_baselines3 import PPO

from stallward.agent.action_table import SET_POINTS
from stallward.agent.controllers.partition import PartitionThresholds
from stallward.agent.desired import SLOTS
from stallward.agent.observation.encoder import BASIC
from stallward.agent.set_points import AUTO, decode_set_points
from stallward.env.gym.vec_env import TwinVec
from stallward.env.testing import small_twin
from stallward.training.network.actor import actor_arrays
from stallward.training.network.arrays import TrainedPolicy
from stallward.training.ppo.args import Args
from stallward.training.ppo.callback import (
    BestActor,
    TimeBudget,
    deterministic_actions,
    prefer_first_choice,
)
from stallward.training.ppo.model import make_model

ARGS = Args(n_envs=8, n_steps=8, batch_size=64)
ZEROS = np.zeros(BASIC.size, dtype=np.float32)
ONES = np.ones(BASIC.size, dtype=np.float32)


@pytest.fixture(scope="module")
def model() -> PPO:
    """An actor at the start of a training."""
    vec = TwinVec([small_twin()], ARGS.n_envs, ARGS.settings, asymmetric=True, seed=1)
    budget = TimeBudget(float("inf"))
    model = make_model(
        vec, ARGS, ZEROS, ONES, seed=1, budget=budget, critic_features=vec.critic_only
    )
    prefer_first_choice(model.policy, ARGS.auto_share)
    return model


def observations() -> NDArray[np.float32]:
    """Observations of all kinds, some far outside what occurs."""
    rng = np.random.default_rng(1)
    drawn = rng.normal(0.0, 1.0, (500, BASIC.size))
    return (drawn * 10.0 ** rng.uniform(-2.0, 2.0, drawn.shape)).astype(np.float32)


def as_policy(model: PPO) -> TrainedPolicy:
    arrays = actor_arrays(model.policy)
    return TrainedPolicy(
        **arrays,
        low=-ONES,
        high=ONES,
        table=SET_POINTS,
        features=BASIC,
        partition=PartitionThresholds(),
        ticks_per_action=10,
        provenance={},
    )


def test_its_likeliest_action_leaves_everything_to_partition(model: PPO) -> None:
    actions = deterministic_actions(model, observations())
    assert actions.shape == (500, len(SET_POINTS.sizes))
    assert not actions.any()
    assert decode_set_points(actions[0].tolist()) == AUTO
    assert not as_policy(model).act(observations()).any(), "the policy that is saved"


def test_each_head_makes_its_first_choice_with_the_set_probability(model: PPO) -> None:
    logits = torch.from_numpy(as_policy(model).logits(observations()))
    for head in torch.split(logits, list(SET_POINTS.sizes), dim=1):
        chances = head.softmax(dim=1)
        np.testing.assert_allclose(chances[:, 0], ARGS.auto_share, atol=0.02)
        others = (1.0 - ARGS.auto_share) / (head.shape[1] - 1)
        np.testing.assert_allclose(chances[:, 1:], others, rtol=0.25)


def test_it_explores_every_choice(model: PPO) -> None:
    torch.manual_seed(1)
    padded = np.zeros((4000, BASIC.size + 5), dtype=np.float32)
    padded[:, : BASIC.size] = np.resize(observations(), (4000, BASIC.size))
    drawn, _ = model.predict(padded)
    for entry, size in enumerate(SET_POINTS.sizes):
        assert set(np.unique(drawn[:, entry])) == set(range(size)), entry
    assert (drawn[:, SLOTS:] == 0).mean() == pytest.approx(ARGS.auto_share, abs=0.03)


def test_the_best_actor_of_a_training_is_kept_not_the_last() -> None:
    vec = TwinVec([small_twin()], ARGS.n_envs, ARGS.settings, seed=1)
    model = make_model(vec, ARGS, ZEROS, ONES, seed=1, budget=TimeBudget(float("inf")))
    scores = iter((0.1, 0.5, 0.2))
    best = BestActor(lambda _act: next(scores))
    kept = []
    for decisions in (100, 200, 300):
        model.num_timesteps = decisions
        with torch.no_grad():
            for parameter in model.policy.action_net.parameters():
                parameter.add_(1.0)
        best.consider(model)
        kept.append(actor_arrays(model.policy)["b2"])
    assert (best.decisions, best.score) == (200, 0.5)
    np.testing.assert_array_equal(best.arrays["b2"], kept[1])
    assert not np.array_equal(kept[1], kept[2])
