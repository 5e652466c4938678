"""The spaces of the environments, and actions as numbers between -1 and 1."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from stallward.agent.action_table import LEVELS, ActionTable
from stallward.agent.errors import UsageError
from stallward.agent.observation.encoder import BASIC, FEATURE_SETS, FeatureSet
from stallward.env.simulation.simulation import OBSERVATION_BOUND

Actions = NDArray[np.int64] | NDArray[np.float32]
"""Choices of an action table or, where actions are continuous, numbers from -1 to 1."""


def spaces(
    table: ActionTable = LEVELS, features: FeatureSet = BASIC, *, continuous: bool = False
) -> tuple[gymnasium.Space[NDArray[np.float32]], gymnasium.Space[Any]]:
    """The observation space of ``agent.observation``, and the action space of a table.

    Args:
        table: The action table.
        features: What is shown of an observation.
        continuous: Whether actions are numbers from -1 to 1 (:func:`to_choices`), for libraries
            without ``MultiDiscrete`` actions.
    """
    observations = gymnasium.spaces.Box(
        low=-OBSERVATION_BOUND,
        high=OBSERVATION_BOUND,
        shape=(features.size,),
        dtype=np.float32,
    )
    actions: gymnasium.Space[Any]
    if continuous:
        actions = gymnasium.spaces.Box(-1.0, 1.0, (len(table.sizes),), np.float32)
    else:
        actions = gymnasium.spaces.MultiDiscrete(np.array(table.sizes, dtype=np.int64))
    return observations, actions


def find_features(name: str) -> FeatureSet:
    """The set of features with this name.

    Raises:
        UsageError: If there is none.
    """
    if name not in FEATURE_SETS:
        raise UsageError(
            f"There are no features {name!r:.80}.",
            next_step=f"Choose one of: {', '.join(FEATURE_SETS)}.",
        )
    return FEATURE_SETS[name]


def to_choices(actions: Actions, table: ActionTable, *, continuous: bool) -> NDArray[np.int64]:
    """The choices of a table that actions stand for.

    The range from -1 to 1 has an equal part for each choice of an entry, in the table's order.

    Args:
        actions: Actions of the space of :func:`spaces`, ``(..., len(table.sizes))``.
        table: The action table.
        continuous: Whether they are continuous; choices are returned as they are.
    """
    if not continuous:
        return np.asarray(actions, dtype=np.int64)
    sizes = np.array(table.sizes)
    share = 0.5 * (np.asarray(actions, dtype=np.float64) + 1.0)
    return np.asarray(np.clip(np.floor(share * sizes).astype(np.int64), 0, sizes - 1))


def to_continuous(choices: NDArray[np.int64], table: ActionTable) -> NDArray[np.float32]:
    """Continuous actions that stand for choices: the middle of the part of each choice."""
    middle = 2.0 * (choices + 0.5) / np.array(table.sizes) - 1.0
    return np.asarray(middle, dtype=np.float32)
