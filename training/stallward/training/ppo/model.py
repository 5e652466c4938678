"""The PPO model of stable-baselines3 with the network and the settings of the recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
from stable_baselines3 import PPO
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import VecEnv

from stallward.agent.action_table import ACTION_TABLES
from stallward.training.network.actor import SlotPolicy, policy_kwargs
from stallward.training.network.arrays import Weights
from stallward.training.ppo.args import Args
from stallward.training.ppo.callback import TimeBudget


def make_model(
    vec: VecEnv | gymnasium.Env[Any, Any],
    args: Args,
    mean: Weights,
    scale: Weights,
    *,
    seed: int,
    budget: TimeBudget | None,
    logs: Path | None = None,
    critic_features: int = 0,
) -> PPO:
    """Make a PPO model with the recipe's network and settings, before any training.

    Args:
        vec: The environments to train on, with the observations and actions of a node.
        args: The settings of the recipe.
        mean: The mean of every feature, for the normalisation.
        scale: The scale of every feature, for the normalisation.
        seed: The seed of everything random.
        budget: The time for the training; the learning rate falls as it runs out. Without one it
            stays what it is at the end of a training.
        logs: The folder for TensorBoard curves; without one, nothing is written.
        critic_features: The number of features after the observation that only the critic reads.
    """

    def learning_rate(progress_remaining: float) -> float:
        assert budget is not None
        return args.learning_rate * (0.1 + 0.9 * min(progress_remaining, budget.remaining))

    model = PPO(
        SlotPolicy,
        vec,
        n_steps=args.n_steps,
        batch_size=args.batch_size,
        n_epochs=args.n_epochs,
        learning_rate=0.1 * args.learning_rate if budget is None else learning_rate,
        gamma=args.gamma,
        gae_lambda=args.gae_lambda,
        ent_coef=args.ent_coef,
        clip_range=args.clip_range,
        seed=seed,
        device="cpu",
        tensorboard_log=None if logs is None else str(logs),
        policy_kwargs={
            **policy_kwargs(mean, scale, critic_features=critic_features),
            "table": ACTION_TABLES[args.settings.action_table],
            "features": args.feature_set,
            "held_decisions": args.held_decisions,
        },
    )
    if logs is None:
        # The library's own logger makes a folder in the temporary directory even if it is silent.
        model.set_logger(Logger(folder=None, output_formats=[]))
    return model
