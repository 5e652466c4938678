"""PPO as a single-file trainer has it: the loop of CleanRL's ``ppo.py``.

Its names and its order are those of https://github.com/vwxyzjn/cleanrl/blob/master/cleanrl/ppo.py.
What differs is that an action has several entries, each with logits of its own, and that logging
is left out.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.distributions.categorical import Categorical

GAMMA, GAE_LAMBDA, CLIP, ENTROPY, VALUE, EPOCHS, MINIBATCHES = 0.99, 0.95, 0.2, 0.0, 0.5, 4, 4


class Agent(nn.Module):
    def __init__(self, envs: gymnasium.vector.VectorEnv[Any, Any, Any]) -> None:
        super().__init__()
        inputs = int(np.prod(envs.single_observation_space.shape or ()))
        self.sizes = envs.single_action_space.nvec.tolist()  # type: ignore[attr-defined]
        self.critic = nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 1))
        self.actor = nn.Sequential(
            nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, sum(self.sizes))
        )

    def get_action_and_value(
        self, x: torch.Tensor, action: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        heads: list[Any] = [
            Categorical(logits=one) for one in self.actor(x).split(self.sizes, dim=1)
        ]
        if action is None:
            action = torch.stack([head.sample() for head in heads], dim=1)
        chosen = zip(heads, action.unbind(dim=1), strict=True)
        log_prob = torch.stack([head.log_prob(one) for head, one in chosen]).sum(dim=0)
        entropy = torch.stack([head.entropy() for head in heads]).sum(dim=0)
        return action, log_prob, entropy, self.critic(x).flatten()


def train(
    envs: gymnasium.vector.VectorEnv[Any, Any, Any], *, iterations: int, steps: int, seed: int
) -> list[float]:
    """Train, and return the mean return of the episodes that ended in each iteration."""
    torch.manual_seed(seed)
    agent = Agent(envs)
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-3, eps=1e-5)
    shape = (steps, envs.num_envs)
    obs = torch.zeros((*shape, *(envs.single_observation_space.shape or ())))
    actions = torch.zeros((*shape, len(agent.sizes)), dtype=torch.int64)
    logprobs, rewards, dones, values = torch.zeros((4, *shape))
    next_obs = torch.as_tensor(envs.reset(seed=seed)[0])
    next_done = torch.zeros(envs.num_envs)
    means = []
    for _ in range(iterations):
        returns_of_episodes: list[float] = []
        for step in range(steps):
            obs[step], dones[step] = next_obs, next_done
            with torch.no_grad():
                action, logprob, _, value = agent.get_action_and_value(next_obs)
            values[step], actions[step], logprobs[step] = value, action, logprob
            seen, reward, terminations, truncations, infos = envs.step(action.numpy())
            rewards[step] = torch.as_tensor(reward)
            next_obs = torch.as_tensor(seen)
            next_done = torch.as_tensor(np.logical_or(terminations, truncations)).float()
            if "episode" in infos:
                returns_of_episodes += infos["episode"]["r"][infos["_episode"]].tolist()
        means.append(float(np.mean(returns_of_episodes)))
        with torch.no_grad():
            next_value = agent.critic(next_obs).flatten()
        advantages, last = torch.zeros(shape), torch.zeros(envs.num_envs)
        for t in reversed(range(steps)):
            going_on = 1.0 - (next_done if t == steps - 1 else dones[t + 1])
            following = next_value if t == steps - 1 else values[t + 1]
            delta = rewards[t] + GAMMA * following * going_on - values[t]
            advantages[t] = last = delta + GAMMA * GAE_LAMBDA * going_on * last
        _update(agent, optimizer, obs, actions, logprobs, advantages, advantages + values)
    return means


def _update(
    agent: Agent,
    optimizer: torch.optim.Optimizer,
    *rollout: torch.Tensor,
) -> None:
    b_obs, b_actions, b_logprobs, b_advantages, b_returns = (one.flatten(0, 1) for one in rollout)
    for _ in range(EPOCHS):
        for mb in torch.randperm(len(b_obs)).chunk(MINIBATCHES):
            _, logprob, entropy, value = agent.get_action_and_value(b_obs[mb], b_actions[mb])
            ratio = (logprob - b_logprobs[mb]).exp()
            advantage = b_advantages[mb]
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            clipped = torch.clamp(ratio, 1.0 - CLIP, 1.0 + CLIP)
            policy_loss = torch.max(-advantage * ratio, -advantage * clipped).mean()
            value_loss = 0.5 * ((value - b_returns[mb]) ** 2).mean()
            loss = policy_loss - ENTROPY * entropy.mean() + VALUE * value_loss
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
