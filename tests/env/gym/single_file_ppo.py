"""PPO in one file on Gymnasium's vector interface, for actions that are one number or numbers.

It asks of an environment what programs ask that were written without knowing it.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, Independent, Normal

GAMMA, LAMBDA, CLIP, EPOCHS, PARTS = 0.99, 0.95, 0.2, 4, 4
Envs = gymnasium.vector.VectorEnv[Any, Any, Any]


class Policy(nn.Module):
    """A distribution of actions, and a value."""

    def __init__(self, envs: Envs) -> None:
        super().__init__()
        seen, action = envs.single_observation_space, envs.single_action_space
        assert isinstance(seen, Box)
        assert isinstance(action, Box | Discrete)
        self.number = isinstance(action, Discrete)
        outputs = int(action.n) if isinstance(action, Discrete) else action.shape[0]
        self.critic = nn.Sequential(nn.Linear(seen.shape[0], 64), nn.Tanh(), nn.Linear(64, 1))
        self.actor = nn.Sequential(nn.Linear(seen.shape[0], 64), nn.Tanh(), nn.Linear(64, outputs))
        self.log_spread = nn.Parameter(torch.zeros(outputs))

    def forward(self, seen: Tensor) -> tuple[Distribution, Tensor]:
        """The distribution of actions, and values, ``(N,)``."""
        value = self.critic(seen).flatten()
        if self.number:
            return Categorical(logits=self.actor(seen)), value
        return Independent(Normal(self.actor(seen), self.log_spread.exp()), 1), value


def train(envs: Envs, *, iterations: int, steps: int, seed: int) -> list[float]:
    """Train, and return the mean return of the episodes that ended in each iteration."""
    torch.manual_seed(seed)
    policy = Policy(envs)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3, eps=1e-5)
    seen = torch.as_tensor(envs.reset(seed=seed)[0], dtype=torch.float32)
    means = []
    for _ in range(iterations):
        taken: list[tuple[Tensor, ...]] = []
        returns: list[float] = []
        for _ in range(steps):
            with torch.no_grad():
                distribution, value = policy(seen)
                action = distribution.sample()
            after, reward, terminated, truncated, infos = envs.step(action.numpy())
            ended = torch.as_tensor(np.logical_or(terminated, truncated))
            gained = torch.as_tensor(reward, dtype=torch.float32)
            taken.append((seen, action, distribution.log_prob(action), value, gained, ended))
            seen = torch.as_tensor(after, dtype=torch.float32)
            if "episode" in infos:
                returns += infos["episode"]["r"][infos["_episode"]].tolist()
        means.append(float(np.mean(returns)) if returns else float("nan"))
        observations, actions, logs, values, rewards, ends = map(
            torch.stack, zip(*taken, strict=True)
        )
        with torch.no_grad():
            following = policy(seen)[1]
        advantages, last = torch.zeros_like(rewards), torch.zeros_like(following)
        for t in reversed(range(steps)):
            going_on = (~ends[t]).float()
            surprise = rewards[t] + GAMMA * going_on * following - values[t]
            advantages[t] = last = surprise + GAMMA * LAMBDA * going_on * last
            following = values[t]
        batch = (observations, actions, logs, advantages, advantages + values)
        _improve(policy, optimizer, *(one.flatten(0, 1) for one in batch))
    return means


def _improve(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    observations: Tensor,
    actions: Tensor,
    logs: Tensor,
    advantages: Tensor,
    targets: Tensor,
) -> None:
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(logs)).chunk(PARTS):
            distribution, value = policy(observations[rows])
            ratio = (distribution.log_prob(actions[rows]) - logs[rows]).exp()
            scaled = (advantages[rows] - advantages[rows].mean()) / (advantages[rows].std() + 1e-8)
            clipped = ratio.clamp(1.0 - CLIP, 1.0 + CLIP)
            gain = torch.min(ratio * scaled, clipped * scaled).mean()
            loss = 0.25 * (value - targets[rows]).square().mean() - gain
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            optimizer.step()
