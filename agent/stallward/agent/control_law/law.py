"""Laws: rules written once over a batch, run for thousands of twin nodes or for this one.

A :class:`Law` maps observations to actions and remembers what it must; :class:`LawController`
runs one with batch 1 on a node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from stallward.agent.control_law.signals import Observations
from stallward.agent.controller import Decision, NodeContext
from stallward.agent.desired import ACTION_SIZES, RELEASED, decode_action
from stallward.agent.sample import Sample

_NOTHING: Final[tuple[int, ...]] = (0,) * len(ACTION_SIZES)
_LONGEST_S: Final = 1.0
"""Time that passed while nobody decided counts as this much at most."""


class Law(Protocol):
    """A decision over a batch of ``B`` nodes, with memory."""

    def act(self, observations: Observations, elapsed_s: float) -> NDArray[np.int64]:
        """Decide for every node.

        Args:
            observations: ``(B, OBSERVATION_SIZE)``.
            elapsed_s: Since the decision before; 0 at the first.

        Returns:
            ``(B, len(ACTION_SIZES))``.
        """

    def reason(self) -> str:
        """Why the first node's decision is what it is, one short clause."""


class LawController:
    """Runs a law on a node.

    Args:
        name: The controller's name.
        make: Makes the law afresh, for a batch of one.
    """

    needs_processes = False

    def __init__(self, name: str, make: Callable[[], Law]) -> None:
        self.name = name
        self._make = make
        self.reset(NodeContext(zone_limit_bytes=0, slot_names=()))

    def reset(self, context: NodeContext) -> None:
        """Make the law afresh."""
        self._context = context
        self._law = self._make()
        self._before_s: float | None = None

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        """The law's action, in bytes of this node."""
        elapsed_s = 0.0 if self._before_s is None else sample.time_s - self._before_s
        self._before_s = sample.time_s
        if all(state.reference_bytes is None for state in sample.slot_states):
            return Decision(desired=RELEASED, reason="no background", action=_NOTHING)
        chosen = self._law.act(observation[None], min(max(elapsed_s, 0.0), _LONGEST_S))
        action = tuple(int(value) for value in chosen[0])
        floors = [self._context.floor(i) for i in range(len(sample.slots))]
        return Decision(
            desired=decode_action(action, sample.slot_states, floors),
            reason=self._law.reason(),
            action=action,
        )
