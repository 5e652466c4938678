"""The twin with one whole number as an action, for programs that know only ``Discrete``."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from stallward.agent.desired import SLOTS
from stallward.env.gym.spaces import Actions
from stallward.env.gym.twin_env import TwinEnv

Observation = NDArray[np.float32]


class AllSlotsAlike(gymnasium.ActionWrapper[Observation, np.int64, Actions]):
    """Gives every slot the same choices, so that an action is one of few numbers.

    With the table of levels these are 48: pause or not, one of six limits, one of four tunings; the
    last one changes fastest. Action 0 leaves everything as it is.

    Args:
        env: The environment, whose actions are the choices of an action table.
    """

    def __init__(self, env: TwinEnv) -> None:
        super().__init__(env)
        self._slot_sizes, self._node_sizes = env.table.slot_sizes, env.table.node_sizes
        self._sizes = (*self._slot_sizes, *self._node_sizes)
        self.action_space = gymnasium.spaces.Discrete(int(np.prod(self._sizes)))

    def action(self, action: np.int64) -> NDArray[np.int64]:
        """The choices that a number stands for."""
        choices = [int(choice) for choice in np.unravel_index(int(action), self._sizes)]
        of_slot = choices[: len(self._slot_sizes)]
        return np.array(of_slot * SLOTS + choices[len(self._slot_sizes) :], dtype=np.int64)


def discrete_twin(**keywords: Any) -> AllSlotsAlike:
    """Make it; it takes what :class:`~stallward.env.gym.twin_env.TwinEnv` takes."""
    return AllSlotsAlike(TwinEnv(**keywords))
