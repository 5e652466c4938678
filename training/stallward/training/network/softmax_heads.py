"""All heads of the action table in one softmax, which halves the time of a PPO update.

stable-baselines3 makes one distribution object per head; nine small softmaxes over a few logits
cost more than both networks. Here all heads are one tensor, padded to the widest head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Self

import torch
from stable_baselines3.common.distributions import MultiCategoricalDistribution

_NEVER: Final = -1e9
"""The logit of padding: a choice that a head does not have."""


class Heads(MultiCategoricalDistribution):
    """A distribution over actions that are independent choices, one for each head.

    Args:
        action_dims: The number of choices of each head.
        held_decisions: For how many samples in a row the random numbers of a head are kept, on
            average.
    """

    def __init__(self, action_dims: Sequence[int], held_decisions: float = 1.0) -> None:
        action_dims = [int(size) for size in action_dims]  # some versions of SB3 pass numpy's
        super().__init__(action_dims)
        width = max(action_dims)
        self._shape = (len(action_dims), width)
        starts = [sum(action_dims[:k]) for k in range(len(action_dims))]
        columns = [
            [start + min(k, size - 1) for k in range(width)]
            for start, size in zip(starts, action_dims, strict=True)
        ]
        self._columns = torch.tensor(columns).flatten()
        self._missing = torch.tensor([[k >= size for k in range(width)] for size in action_dims])
        self._log = torch.zeros(0)
        self._counts = torch.ones(1, len(action_dims))
        self._redrawn = 1.0 / held_decisions
        self._noise = torch.zeros(0)

    def proba_distribution(self, action_logits: torch.Tensor) -> Self:
        """Set the logits ``(N, sum(action_dims))``, one head after the other."""
        return self.set(action_logits, torch.ones(1, self._shape[0]))

    def set(self, action_logits: torch.Tensor, counts: torch.Tensor) -> Self:
        """Set the logits, and which heads count.

        Args:
            action_logits: The logits, ``(N, sum(action_dims))``, one head after the other.
            counts: 1 for heads whose choice has an effect, 0 for heads that are left out of
                probabilities and entropies, ``(N, heads)``.
        """
        self._counts = counts
        padded = action_logits.index_select(1, self._columns).reshape(-1, *self._shape)
        self._log = torch.log_softmax(padded.masked_fill(self._missing, _NEVER), dim=-1)
        return self

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        """The log probability of actions ``(N, heads)``, ``(N,)``."""
        chosen = actions.long().reshape(-1, self._shape[0], 1)
        return (self._log.gather(-1, chosen)[..., 0] * self._counts).sum(dim=1)

    def entropy(self) -> torch.Tensor:
        """The entropy, summed over heads, ``(N,)``."""
        return -((self._log.exp() * self._log).sum(dim=2) * self._counts).sum(dim=1)

    def sample(self) -> torch.Tensor:
        """Draw actions, ``(N, heads)``, by the Gumbel-max trick.

        With noise that is kept, each action still has the probability that its logits say, and
        actions that follow one another are alike. What a set-point does shows only after some
        seconds, which noise that is new at every decision never lasts (correlated noise for PPO:
        Hollenstein et al., AAAI 2024).
        """
        noise = torch.empty_like(self._log).exponential_().log()
        if self._redrawn < 1.0 and self._noise.shape == noise.shape:
            redrawn = torch.rand(noise.shape[:2]) < self._redrawn
            noise = torch.where(redrawn[..., None], noise, self._noise)
        self._noise = noise
        return (self._log - noise).argmax(dim=-1)

    def mode(self) -> torch.Tensor:
        """The likeliest actions, ``(N, heads)``."""
        return self._log.argmax(dim=-1)
