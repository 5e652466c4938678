"""The heads in one softmax compute the same as those of stable-baselines3."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from stable_baselines3.common.distributions import MultiCategoricalDistribution

from stallward.agent.desired import ACTION_SIZES
from stallward.training.network.actor import Heads

SIZES = list(ACTION_SIZES)


def both(logits: torch.Tensor) -> tuple[Heads, MultiCategoricalDistribution]:
    theirs = MultiCategoricalDistribution(SIZES)
    return Heads(SIZES).proba_distribution(logits), theirs.proba_distribution(logits)


def test_probabilities_entropy_and_mode_equal_those_of_the_library() -> None:
    torch.manual_seed(1)
    ours, theirs = both(3.0 * torch.randn(200, sum(SIZES)))
    actions = theirs.sample()
    torch.testing.assert_close(ours.log_prob(actions), theirs.log_prob(actions))
    torch.testing.assert_close(ours.entropy(), theirs.entropy())
    assert (ours.mode() == theirs.mode()).all()


def test_gradients_equal_those_of_the_library() -> None:
    torch.manual_seed(2)
    start = torch.randn(50, sum(SIZES))
    actions = both(start)[1].sample()
    gradients = []
    for k in range(2):
        logits = start.clone().requires_grad_()
        dist = both(logits)[k]
        entropy = dist.entropy()
        assert entropy is not None
        (dist.log_prob(actions).sum() + entropy.sum()).backward()  # type: ignore[no-untyped-call]
        gradients.append(logits.grad)
    torch.testing.assert_close(gradients[0], gradients[1])


def test_samples_have_the_right_frequencies_and_stay_within_the_choices() -> None:
    torch.manual_seed(3)
    logits = torch.randn(1, sum(SIZES))
    ours, theirs = both(logits.repeat(20_000, 1))
    drawn = ours.sample().numpy()
    assert (drawn.max(axis=0) == np.array(SIZES) - 1).all()
    for head, size in enumerate(SIZES):
        share = np.bincount(drawn[:, head], minlength=size) / len(drawn)
        expected = theirs.distribution[head].probs[0].numpy()
        np.testing.assert_allclose(share, expected, atol=0.015)


def test_kept_noise_draws_alike_and_with_the_same_frequencies() -> None:
    torch.manual_seed(4)
    logits = torch.randn(1, sum(SIZES))
    heads = Heads(SIZES, held_decisions=10.0).proba_distribution(logits.repeat(5_000, 1))
    drawn = [heads.sample().numpy() for _ in range(60)]
    theirs = both(logits)[1]
    for head, size in enumerate(SIZES):
        probability = theirs.distribution[head].probs[0].numpy()
        share = np.bincount(drawn[-1][:, head], minlength=size) / len(drawn[-1])
        np.testing.assert_allclose(share, probability, atol=0.03)
        alike = np.mean([(a[:, head] == b[:, head]).mean() for a, b in pairwise(drawn)])
        by_chance = float(np.square(probability).sum())
        assert alike == pytest.approx(0.9 + 0.1 * by_chance, abs=0.01), "one in ten is redrawn"


def test_kept_noise_follows_the_logits() -> None:
    torch.manual_seed(5)
    logits = torch.zeros(2_000, sum(SIZES))
    heads = Heads(SIZES, held_decisions=1e6).proba_distribution(logits)
    heads.sample()
    logits[:, 1] += 3.0
    share = (heads.proba_distribution(logits).sample()[:, 0] == 1).float().mean()
    expected = float(torch.softmax(logits[0, : SIZES[0]], dim=0)[1])
    assert float(share) == pytest.approx(expected, abs=0.03)


def test_a_batch_of_another_size_draws_anew() -> None:
    heads = Heads(SIZES, held_decisions=10.0)
    for count in (8, 3, 8):
        drawn = heads.proba_distribution(torch.zeros(count, sum(SIZES))).sample()
        assert drawn.shape == (count, len(SIZES))
