"""The speed of training: decisions per second, and the shares of twin and update."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numpy as np
import torch

from stallward.env.gym.vec_env import TwinVec
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.training.ppo.args import Args
from stallward.training.ppo.callback import TimeBudget
from stallward.training.ppo.model import make_model

_P = ParamSpec("_P")
_T = TypeVar("_T")


class _Stopwatch:
    """Adds up the time that is spent in a function."""

    def __init__(self) -> None:
        self.spent_s = 0.0

    def wrap(self, function: Callable[_P, _T]) -> Callable[_P, _T]:
        """A function that calls ``function`` and adds the time that it takes."""

        def timed(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            start_s = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.spent_s += time.perf_counter() - start_s

        return timed


def ppo_speed(
    twins: tuple[FittedTwin, ...], seconds: float, batch: int
) -> dict[str, float | None]:
    """Decisions per second while stable-baselines3's PPO trains, and shares of its time.

    Args:
        twins: What it trains on.
        seconds: How long.
        batch: How many nodes at once.
    """
    torch.set_num_threads(1)
    length = 32
    args = Args(n_envs=batch, n_steps=length, batch_size=4096)
    env = TwinVec(twins, batch, args.settings, asymmetric=True, seed=1)
    mean = np.zeros(env.features.size, dtype=np.float32)
    scale = np.ones_like(mean)
    budget = TimeBudget(float("inf"))
    model = make_model(
        env, args, mean, scale, seed=1, budget=budget, critic_features=env.critic_only
    )
    model.learn(length * batch)  # the first rollout pays for allocations
    twin, update = _Stopwatch(), _Stopwatch()
    env.step_wait = twin.wrap(env.step_wait)  # type: ignore[method-assign]
    model.train = update.wrap(model.train)  # type: ignore[method-assign]
    start_s, steps = time.perf_counter(), 0
    while (elapsed_s := time.perf_counter() - start_s) < seconds:
        model.learn(length * batch, reset_num_timesteps=False)
        steps += length * batch
    return {
        "ppo_steps_per_s": steps / elapsed_s,
        "ppo_twin_share": twin.spent_s / elapsed_s,
        "ppo_update_share": update.spent_s / elapsed_s,
    }
