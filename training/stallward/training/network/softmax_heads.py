"""All heads of the action table in one softmax: half the time of a PPO update.

stable-baselines3 makes a distribution object of each head; nine small softmaxes of a few logits
cost more than both networks. Here the heads lie side by side, padded to the widest one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Self

import torch
from stable_baselines3.common.distributions import MultiCategoricalDistribution

_NEVER: Final = -1e9
"""Logit of a choice that a head does not have."""


class Heads(MultiCategoricalDistribution):
    """Independent choices, one for each head.

    Args:
        action_dims: How many choices each head has.
    """

    def __init__(self, action_dims: Sequence[int]) -> None:
        action_dims = [int(size) for size in action_dims]  # numpy's, of some versions of SB3
        super().__init__(action_dims)
        width = max(action_dims)
        self._shape = (len(action_dims), width)
        starts = [sum(action_dims[:k]) for k in range(len(action_dims))]
        at = [
            [start + min(k, size - 1) for k in range(width)]
            for start, size in zip(starts, action_dims, strict=True)
        ]
        self._at = torch.tensor(at).flatten()
        self._missing = torch.tensor([[k >= size for k in range(width)] for size in action_dims])
        self._log = torch.zeros(0)
        self._counts = torch.ones(1, len(action_dims))

    def proba_distribution(self, action_logits: torch.Tensor) -> Self:
        """Set the logits ``(N, sum(action_dims))``, the heads side by side."""
        return self.set(action_logits, torch.ones(1, self._shape[0]))

    def set(self, action_logits: torch.Tensor, counts: torch.Tensor) -> Self:
        """Set the logits, and which heads count.

        Args:
            action_logits: ``(N, sum(action_dims))``, the heads side by side.
            counts: 1 for heads whose choice does anything, 0 for the others, which have no part
                in probabilities and entropies, ``(N, heads)``.
        """
        self._counts = counts
        padded = action_logits.index_select(1, self._at).reshape(-1, *self._shape)
        self._log = torch.log_softmax(padded.masked_fill(self._missing, _NEVER), dim=-1)
        return self

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        """Of actions ``(N, heads)``, ``(N,)``."""
        chosen = actions.long().reshape(-1, self._shape[0], 1)
        return (self._log.gather(-1, chosen)[..., 0] * self._counts).sum(dim=1)

    def smoothed_log_prob(self, actions: torch.Tensor, smoothing: float) -> torch.Tensor:
        """Of actions ``(N, heads)`` where every head is left to chance for a share of the time.

        The best policy by it chooses the action, but for ``smoothing`` (label smoothing).
        """
        there = ~self._missing
        mean = (self._log * there).sum(dim=-1) / there.sum(dim=-1)
        return (1.0 - smoothing) * self.log_prob(actions) + smoothing * (mean * self._counts).sum(
            dim=-1
        )

    def entropy(self) -> torch.Tensor:
        """The sum of the heads', ``(N,)``."""
        return -((self._log.exp() * self._log).sum(dim=2) * self._counts).sum(dim=1)

    def sample(self) -> torch.Tensor:
        """Actions at random, ``(N, heads)`` (Gumbel's trick)."""
        noise = torch.empty_like(self._log).exponential_().log()
        return (self._log - noise).argmax(dim=-1)

    def mode(self) -> torch.Tensor:
        """The likeliest actions, ``(N, heads)``."""
        return self._log.argmax(dim=-1)
