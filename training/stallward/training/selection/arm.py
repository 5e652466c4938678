"""Controllers on twins: how one acts on a batch of nodes, and what its actions mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from stallward.agent.action_table import LEVELS, SET_POINTS, ActionTableName
from stallward.agent.controllers.partition import PartitionThresholds
from stallward.env.simulation.simulation import SimulationSettings
from stallward.training.selection.rollout import Act, constant

RULE_TICKS: Final = 2
"""The ticks between two decisions of a rule on the twin."""
SET_POINT_TICKS: Final = 10
"""The ticks between two decisions about set-points, a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A controller on twins."""

    make: Callable[[int], Act]
    """Makes it for a batch of this many nodes."""
    action_table: ActionTableName = "levels"
    ticks_per_action: int = RULE_TICKS
    partition: PartitionThresholds = field(default_factory=PartitionThresholds)
    """The numbers of ``partition``, where actions are set-points."""

    def on(self, settings: SimulationSettings) -> SimulationSettings:
        """The settings of a simulation that takes the actions of this arm."""
        return replace(
            settings,
            action_table=self.action_table,
            ticks_per_action=self.ticks_per_action,
            partition=self.partition,
        )

    @classmethod
    def holding(cls, action: NDArray[np.int64]) -> Self:
        """An action of the table of limit levels that is held."""
        return cls(make=lambda _nodes: constant(action))

    @classmethod
    def of_partition(cls, thresholds: PartitionThresholds | None = None) -> Self:
        """``partition`` with these numbers, or with its own."""
        auto = np.zeros(len(SET_POINTS.sizes), dtype=np.int64)
        return cls(
            make=lambda _nodes: constant(auto),
            action_table=SET_POINTS.name,
            ticks_per_action=SET_POINT_TICKS,
            partition=thresholds or PartitionThresholds(),
        )


IDLE: Final = np.zeros(len(LEVELS.sizes), dtype=np.int64)
"""The action that does nothing, of the table of limit levels."""
