"""The twin with one whole number as an action, for programs that know only ``Discrete``."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorActionWrapper
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from stallward.agent.action_table import ActionTable
from stallward.agent.desired import SLOTS
from stallward.env.gym.spaces import Actions
from stallward.env.gym.twin_env import TwinEnv
from stallward.env.gym.vector_env import TwinVectorEnv

Observation = NDArray[np.float32]


def space_of_numbers(table: ActionTable) -> gymnasium.spaces.Discrete:
    """The numbers of :func:`choices_of`: 48 with the table of levels, 168 with set-points."""
    return gymnasium.spaces.Discrete(int(np.prod((*table.slot_sizes, *table.node_sizes))))


def choices_of(numbers: NDArray[np.int64] | np.int64, table: ActionTable) -> NDArray[np.int64]:
    """The choices that numbers stand for, ``(..., len(table.sizes))``.

    Every slot has the same choices, so that an action is one of few numbers: with the table of
    levels pause or not, one of six limits and one of four tunings, of which the last changes
    fastest. Number 0 leaves everything as it is.

    Args:
        numbers: The numbers, ``(...,)``.
        table: The action table.
    """
    each = np.unravel_index(numbers, (*table.slot_sizes, *table.node_sizes))
    count = len(table.slot_sizes)
    return np.stack([*each[:count] * SLOTS, *each[count:]], axis=-1)


class AllSlotsAlike(gymnasium.ActionWrapper[Observation, np.int64, Actions]):
    """One node whose actions are single numbers (:func:`choices_of`).

    Args:
        env: The environment, whose actions are the choices of an action table.
    """

    def __init__(self, env: TwinEnv) -> None:
        super().__init__(env)
        self._table = env.table
        self.action_space = space_of_numbers(env.table)

    def action(self, action: np.int64) -> NDArray[np.int64]:
        """The choices that a number stands for."""
        return choices_of(action, self._table)


class AllSlotsAlikeVector(VectorActionWrapper):
    """Many nodes with such actions, ``(B,)``.

    Args:
        env: The environments, whose actions are the choices of an action table.
    """

    def __init__(self, env: TwinVectorEnv) -> None:
        super().__init__(env)
        self._table = env.table
        self.single_action_space = space_of_numbers(env.table)
        self.action_space = batch_space(self.single_action_space, env.num_envs)

    def actions(self, actions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The choices that numbers stand for."""
        return choices_of(actions, self._table)


def discrete_twin(**keywords: Any) -> AllSlotsAlike:
    """Make one; it takes what :class:`~stallward.env.gym.twin_env.TwinEnv` takes."""
    return AllSlotsAlike(TwinEnv(**keywords))


def discrete_twins(**keywords: Any) -> AllSlotsAlikeVector:
    """Make many; it takes what :class:`~stallward.env.gym.vector_env.TwinVectorEnv` takes."""
    return AllSlotsAlikeVector(TwinVectorEnv(**keywords))
