"""Where training begins: the actor imitates the teacher (see ``teacher``).

Which group to hold back for the others is a choice between symmetric ones. An actor without any
preference holds back all of them: it never sees one group at full speed with the application
unharmed, since every other group would have to be held back at the same time and for seconds.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.base_class import BaseAlgorithm

from stallward.training.imitation.demonstrations import Demonstrations
from stallward.training.network.softmax_heads import Heads

_BATCH: Final = 1024
_LEARNING_RATE: Final = 2e-3


def imitate(
    model: PPO,
    lessons: Demonstrations,
    *,
    smoothing: float,
    gradient_steps: int,
    seed: int,
) -> None:
    """Train the actor to do what was taught, but for a share ``smoothing`` of the time.

    Args:
        model: Its actor is changed, its critic is not.
        lessons: What was taught.
        smoothing: Probability of each head left to the choices that are not wanted, evenly; what
            PPO explores with.
        gradient_steps: How many.
        seed: Of the batches.
    """
    rng = np.random.default_rng(seed)
    policy = model.policy
    actor = [p for name, p in policy.named_parameters() if is_actor(name)]
    optimiser = torch.optim.Adam(actor, lr=_LEARNING_RATE)
    seen, wanted = (
        torch.as_tensor(padded(model, lessons.observations)),
        torch.as_tensor(lessons.actions),
    )
    for step in range(gradient_steps):
        for group in optimiser.param_groups:
            group["lr"] = _LEARNING_RATE * (1.0 - step / gradient_steps)
        rows = torch.as_tensor(rng.integers(len(seen), size=_BATCH))
        heads = policy.get_distribution(seen[rows])
        assert isinstance(heads, Heads)
        loss = -heads.smoothed_log_prob(wanted[rows], smoothing).mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()


def likeliest(model: BaseAlgorithm, observations: NDArray[np.float32]) -> NDArray[np.int64]:
    """What the actor does when it does not explore."""
    actions, _ = model.predict(padded(model, observations), deterministic=True)
    return np.asarray(actions, dtype=np.int64)


def padded(model: BaseAlgorithm, observations: NDArray[np.float32]) -> NDArray[np.float32]:
    """With zeros for what only the critic is told, which the actor does not look at."""
    space = model.observation_space
    assert space is not None
    assert space.shape is not None
    found = np.zeros((len(observations), *space.shape), dtype=np.float32)
    found[:, : observations.shape[1]] = observations
    return found


def is_actor(name: str) -> bool:
    """Whether a parameter of the policy belongs to the actor."""
    return name.startswith(("mlp_extractor.policy_net", "action_net"))
