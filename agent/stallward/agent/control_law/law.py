"""Control laws: rules written once over a batch, for thousands of twins or for one node.

A :class:`Law` maps observations to actions and keeps its own state between decisions.
:class:`LawController` runs a law with a batch of one on a node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from stallward.agent.control_law.signals import Observations
from stallward.agent.controller import (
    Decision,
    Need,
    NodeContext,
    require_needs,
    require_one,
)
from stallward.agent.desired import ACTION_SIZES, RELEASED, decode_action
from stallward.agent.sample import Sample

_NO_ACTION: Final[tuple[int, ...]] = (0,) * len(ACTION_SIZES)
_MAX_ELAPSED_S: Final = 1.0
"""A longer time between two decisions counts as this long."""


class Law(Protocol):
    """Decides for a batch of ``B`` nodes and remembers earlier decisions."""

    def act(self, observations: Observations, elapsed_s: float) -> NDArray[np.int64]:
        """Decide for every node.

        Args:
            observations: The observation of each node, ``(B, OBSERVATION_SIZE)``.
            elapsed_s: Time since the previous decision; 0 at the first.

        Returns:
            The action of each node, ``(B, len(ACTION_SIZES))``.
        """

    def reason(self) -> str:
        """The reason for the first node's decision, one short clause."""


class LawController:
    """Runs a law on a node.

    Args:
        name: The controller's name.
        make: Makes a new law for a batch of one.
        needs: What the law cannot do its work without.
        one_of: Signals of which it needs at least one.
    """

    needs_processes = False

    def __init__(
        self,
        name: str,
        make: Callable[[], Law],
        needs: Sequence[Need] = (),
        one_of: Sequence[Need] = (),
    ) -> None:
        self.name = name
        self._make = make
        self._needs = needs
        self._one_of = one_of
        self.reset(NodeContext(zone_limit_bytes=0, slot_names=()))

    def check(self, context: NodeContext) -> None:
        """Check that the node has what the law needs.

        Raises:
            ControllerError: If it lacks something.
        """
        require_needs(self.name, self._needs, context)
        require_one(self.name, self._one_of, context)

    def reset(self, context: NodeContext) -> None:
        """Replace the law by a new one."""
        self._context = context
        self._law = self._make()
        self._previous_s: float | None = None

    def retarget(self, slo_ms: float) -> None:
        """Do nothing: observations have latencies relative to the target."""

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        """The law's action, decoded for this node."""
        elapsed_s = 0.0 if self._previous_s is None else sample.time_s - self._previous_s
        self._previous_s = sample.time_s
        if all(state.reference_bytes is None for state in sample.slot_states):
            return Decision(desired=RELEASED, reason="no background", action=_NO_ACTION)
        actions = self._law.act(observation[None], min(max(elapsed_s, 0.0), _MAX_ELAPSED_S))
        action = tuple(int(value) for value in actions[0])
        floors = [self._context.floor(i) for i in range(len(sample.slots))]
        return Decision(
            desired=decode_action(action, sample.slot_states, floors),
            reason=self._law.reason(),
            action=action,
        )
