"""Where training begins: the actor imitates the best static setting of each scenario.

Which group to hold back for the others is a choice between symmetric ones. An actor without any
preference holds back all of them: it never sees one group at full speed with the application
unharmed, since every other group would have to be held back at the same time and for seconds. So
it first learns to tell the scenarios apart and to do in each what did best there; PPO goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3 import PPO

from stallward.env.simulation import SimulationSettings
from stallward.env.twin.fitted import FittedTwin
from stallward.training.constraints import Constraints
from stallward.training.statics import Statics
from stallward.training.torch_heads import Heads

_NODES: Final = 128
_STEPS: Final = 200
_SEEN_EVERY: Final = 4
_BATCH: Final = 1024


def examples(
    twins: Sequence[FittedTwin],
    statics: Statics,
    constraints: Constraints,
    settings: SimulationSettings,
    *,
    seed: int,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Observations and what should be done in them.

    Half of the nodes do what is best in their scenario; the others change what they do every few
    seconds, so that the way back from anywhere is learned, too.

    Returns:
        ``(N, OBSERVATION_SIZE)`` and ``(N, len(ACTION_SIZES))``.
    """
    rng = np.random.default_rng(seed)
    seen, best = [], statics.best_of_each(constraints)
    for k, twin in enumerate(twins):
        simulation = constraints.one(k).simulate([twin], _NODES, settings, seed=seed)
        actions = np.tile(best[k], (_NODES, 1))
        for step in range(_STEPS):
            if step % 25 == 0:
                chosen = rng.integers(len(statics.actions), size=_NODES // 2)
                actions[: _NODES // 2] = statics.actions[chosen]
            observation = simulation.step(actions).observation
            if step % _SEEN_EVERY == 0:
                seen.append(observation.copy())
    wanted = np.repeat(best, len(seen) // len(twins) * _NODES, axis=0)
    return np.concatenate(seen), wanted


def imitate(
    model: PPO,
    observations: NDArray[np.float32],
    actions: NDArray[np.int64],
    *,
    smoothing: float,
    gradient_steps: int,
    seed: int,
) -> None:
    """Train the actor to choose ``actions``, but for a share ``smoothing`` of the time.

    Args:
        model: Its actor is changed, its critic is not.
        observations: As :func:`examples` returns them.
        actions: The same.
        smoothing: Probability of each head left to the choices that are not wanted, evenly; what
            PPO explores with.
        gradient_steps: How many.
        seed: Of the batches.
    """
    rng = np.random.default_rng(seed)
    policy = model.policy
    actor = [p for name, p in policy.named_parameters() if is_actor(name)]
    optimiser = torch.optim.Adam(actor, lr=1e-3)
    seen, wanted = torch.as_tensor(observations), torch.as_tensor(actions)
    for _ in range(gradient_steps):
        rows = torch.as_tensor(rng.integers(len(seen), size=_BATCH))
        heads = policy.get_distribution(seen[rows])
        assert isinstance(heads, Heads)
        loss = -heads.smoothed_log_prob(wanted[rows], smoothing).mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()


def is_actor(name: str) -> bool:
    """Whether a parameter of the policy belongs to the actor."""
    return name.startswith(("mlp_extractor.policy_net", "action_net"))
