"""PPO with the network and the export of the recipe finds a known optimum."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices

from stallward.agent.action_table import LEVELS
from stallward.agent.controllers.partition import PartitionThresholds
from stallward.agent.desired import ACTION_SIZES, LIMIT_RATIOS, PROFILES, SLOTS
from stallward.agent.observation.encoder import BASIC
from stallward.env.simulation.simulation import SimulationSettings
from stallward.training.network.actor import actor_arrays
from stallward.training.network.arrays import TrainedPolicy
from stallward.training.ppo.args import Args
from stallward.training.ppo.callback import TimeBudget
from stallward.training.ppo.model import make_model

PRESENT = 2
"""Slots with a program; what is chosen for the others must not matter."""
BREAKS_AT, BREAKDOWN_COST = 2, 5.0
"""A program that has run twice without a pause breaks down, whatever is done then."""
MATCH = 0.25
"""Reward for the limit that a slot asks for, and for the profile that the node asks for."""

OPTIMUM = PRESENT * (0.5 + MATCH) + MATCH
"""Reward of a step: run and pause by turns, and match all that is asked for."""
RANDOM = PRESENT * (-2 / 7 + MATCH / len(LIMIT_RATIOS)) + MATCH / len(PROFILES)
"""Reward of a step under random choices.

Programs are fresh, strained and broken down in 4/7, 2/7 and 1/7 of the steps, so that each
earns 3/7 by running half the time and loses 5/7.
"""

AT = {name: k for k, name in enumerate(BASIC.names)}
Actions = NDArray[np.int64]


class RunAndRest(VecEnv):
    """Programs that earn while they run and break down unless they are paused in time.

    A breakdown costs its reward one step later, so that a policy which looks only at the next
    reward always runs, and loses. Actions and observations have the meaning that they have on a
    node.
    """

    def __init__(self, nodes: int, *, steps: int, seed: int) -> None:
        self.render_mode = None
        super().__init__(
            nodes,
            gymnasium.spaces.Box(-64.0, 64.0, (BASIC.size,), np.float32),
            gymnasium.spaces.MultiDiscrete(list(ACTION_SIZES)),
        )
        self._rng = np.random.default_rng(seed)
        self._steps, self._step = steps, 0
        self._strain = np.zeros((nodes, PRESENT), dtype=np.int64)
        self._levels = np.zeros((nodes, PRESENT), dtype=np.int64)
        self._profiles = np.zeros(nodes, dtype=np.int64)
        self._actions = np.zeros((nodes, len(ACTION_SIZES)), dtype=np.int64)

    def reset(self) -> NDArray[np.float32]:
        self._step = 0
        self._strain[:] = 0
        return self._ask()

    def step_async(self, actions: Actions) -> None:
        self._actions = actions

    def step_wait(
        self,
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        paused, levels = (
            self._actions[:, 0 : 2 * PRESENT : 2],
            self._actions[:, 1 : 2 * PRESENT : 2],
        )
        broken = self._strain == BREAKS_AT
        runs = (paused == 0) & ~broken
        of_slots = runs - BREAKDOWN_COST * broken + MATCH * (levels == self._levels)
        rewards = of_slots.sum(axis=1) + MATCH * (self._actions[:, -1] == self._profiles)
        self._strain = np.where(runs, self._strain + 1, 0)
        self._step += 1
        observations = self._ask()
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        done = np.full(self.num_envs, self._step >= self._steps)
        if done.all():
            for info, last in zip(infos, observations, strict=True):
                info.update({"terminal_observation": last, "TimeLimit.truncated": True})
            observations = self.reset()
        return observations, rewards.astype(np.float32), done, infos

    def _ask(self) -> NDArray[np.float32]:
        """Ask for new limits and another profile; returns the observations of the nodes."""
        self._levels = self._rng.integers(len(LIMIT_RATIOS), size=self._levels.shape)
        self._profiles = self._rng.integers(len(PROFILES), size=self.num_envs)
        observations = np.zeros((self.num_envs, BASIC.size), dtype=np.float32)
        observations[:, AT["zone_usage_ratio"]] = self._profiles - 1.0
        for slot in range(PRESENT):
            observations[:, AT[f"slot{slot}_present"]] = 1.0
            observations[:, AT[f"slot{slot}_usage_ratio"]] = self._strain[:, slot] - 1.0
            observations[:, AT[f"slot{slot}_limit_ratio"]] = 0.6 * self._levels[:, slot] - 1.5
        return observations

    def close(self) -> None:
        """Do nothing, because nothing is open."""

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        return [getattr(self, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        raise NotImplementedError

    def env_method(
        self, method_name: str, *args: Any, indices: VecEnvIndices = None, **kwargs: Any
    ) -> list[Any]:
        raise NotImplementedError

    def env_is_wrapped(
        self, wrapper_class: type[Any], indices: VecEnvIndices = None
    ) -> list[bool]:
        return [False for _ in self._get_indices(indices)]


def reward_per_step(act: Callable[[NDArray[np.float32]], Actions]) -> float:
    """The mean reward of a step, over more steps than an episode of the training has."""
    environment = RunAndRest(32, steps=1000, seed=5)
    observations, rewards = environment.reset(), []
    for _ in range(100):
        environment.step_async(act(observations))
        observations, reward, _, _ = environment.step_wait()
        rewards.append(reward.mean())
    return float(np.mean(rewards))


def test_random_choices_earn_what_the_closed_form_says() -> None:
    rng = np.random.default_rng(1)
    heads = len(ACTION_SIZES)
    earned = reward_per_step(
        lambda observations: rng.integers(ACTION_SIZES, size=(len(observations), heads))
    )
    assert earned == pytest.approx(RANDOM, abs=0.1)


@pytest.mark.slow
def test_ppo_learns_to_rest_in_time_and_to_match_what_is_asked_for() -> None:
    torch.set_num_threads(1)
    args = Args(
        n_envs=128, n_steps=32, batch_size=1024, n_epochs=4, learning_rate=1e-2, gamma=0.8,
        gae_lambda=0.9, settings=SimulationSettings(),
    )  # fmt: skip
    vec = RunAndRest(args.n_envs, steps=64, seed=1)
    mean, scale = (np.full(BASIC.size, value, dtype=np.float32) for value in (0.0, 1.0))
    # The policy tells present slots from absent ones by this.
    mean[[AT[f"slot{slot}_present"] for slot in range(SLOTS)]] = 0.5
    model = make_model(vec, args, mean, scale, seed=1, budget=TimeBudget(float("inf")))

    def reward_of_policy() -> float:
        policy = TrainedPolicy(
            **actor_arrays(model.policy),
            low=mean,
            high=mean,
            table=LEVELS,
            features=BASIC,
            partition=PartitionThresholds(),
            ticks_per_action=2,
            provenance={},
        )
        return reward_per_step(policy.act)

    before = reward_of_policy()
    model.learn(80_000)
    after = reward_of_policy()
    assert before < 0.5 * OPTIMUM, "the policy is good before it learns"
    assert after > 0.95 * OPTIMUM, f"{after:.2f} of {OPTIMUM:.2f}, at first {before:.2f}"
    assert after > RANDOM + 0.9 * (OPTIMUM - RANDOM)


def test_learning_leaves_nothing_in_the_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first optimiser of a process imports torch's compiler, which makes a cache of its own.
    torch.optim.Adam([torch.zeros(1, requires_grad=True)])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    args = Args(n_envs=4, n_steps=4, batch_size=16, settings=SimulationSettings())
    vec = RunAndRest(args.n_envs, steps=64, seed=1)
    mean, scale = (np.full(BASIC.size, value, dtype=np.float32) for value in (0.0, 1.0))
    model = make_model(vec, args, mean, scale, seed=1, budget=TimeBudget(float("inf")))
    model.learn(16)
    assert list(tmp_path.iterdir()) == []
